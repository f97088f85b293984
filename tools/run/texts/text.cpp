// A text file as tokens of the recipe's model. It is tokenised once with the model's own tokenizer,
// then read in windows like a token file. A model without a tokenizer reads bytes (tokens.cpp).
#include <algorithm>

#include "tools/files/chat/answer_ends.h"
#include "tools/files/chat/reading_notes.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/input_file.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/model_files.h"
#include "tools/run/data/held_out.h"
#include "tools/run/data/sample_order.h"
#include "tools/run/data/sources.h"
#include "tools/run/data/token_window.h"
#include "tools/run/texts/token_store.h"

namespace reprise {
namespace {

// Cuts a text of any size into pieces; no token crosses the end of a piece. A piece ends after a
// newline that precedes a letter: every pre-tokenizer of the known families ends a word there.
// Tokens of `whole` are matched in the text before it is cut into words; a piece does not cut these
// either.
class TextPieces {
 public:
  // `whole`: tokens that the pieces must not cut.
  TextPieces(const std::string& path, std::vector<std::string> whole) : file_(path), whole_(std::move(whole)) {
    refuse_other_kinds(file_, "a text in UTF-8", {FileKind::kHtml, FileKind::kXml});
  }

  uint64_t bytes() const { return file_.bytes(); }
  uint64_t done() const { return at_; }

  // Returns the next piece; "" at the end of the text.
  const std::string& next() {
    constexpr uint64_t kWanted = uint64_t{1} << 20;
    piece_.clear();
    while (at_ + piece_.size() < file_.bytes()) {
      const size_t known = piece_.size();
      const uint64_t more = std::min(kWanted, file_.bytes() - at_ - known);
      piece_.resize(known + more);
      file_.read(at_ + known, piece_.data() + known, more);
      const size_t end = last_boundary(known);
      if (end == 0) continue;
      piece_.resize(end);
      break;
    }
    at_ += piece_.size();
    return piece_;
  }

 private:
  // Returns the last position, at or after `from` and before the end, at which the text can be cut;
  // 0 if there is none.
  size_t last_boundary(size_t from) const {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    for (size_t i = piece_.size(); i-- > std::max<size_t>(from, 1);) {
      if (piece_[i - 1] == '\n' && is_letter(piece_[i]) && !cuts_token(i)) return i;
    }
    return 0;
  }

  // True if a token of whole_ begins before `at` and ends after it, or could do so once more text
  // is read.
  bool cuts_token(size_t at) const {
    const auto stands_across = [&](const std::string& token) {
      for (size_t before = 1; before < token.size() && before <= at; ++before) {
        const std::string_view there = std::string_view(piece_).substr(at - before, token.size());
        if (token.starts_with(there)) return true;
      }
      return false;
    };
    return std::any_of(whole_.begin(), whole_.end(), stands_across);
  }

  InputFile file_;
  const std::vector<std::string> whole_;
  uint64_t at_ = 0;
  std::string piece_;
};

class TextDataset : public Dataset {
 public:
  TextDataset(const Recipe& recipe, Split split, const DataPart& part, DataLook* look)
      : part_(part),
        windows_(windows_of(tokenise(recipe, split, part.path(), look))),
        window_(static_cast<uint64_t>(recipe.sequence)),
        order_(recipe, split, windows_) {
    set_size(recipe, windows_, static_cast<uint64_t>(recipe.sequence));
    fingerprint_ = fingerprint_of(size_, "", {part.path()});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      if (sample) sample = part_.sample(*sample);
      window_.add_to(sink, sample,
                     [this](uint64_t first, uint64_t count, int32_t* to) { store_.read(first, count, to); });
      real += sample.has_value();
    }
    return real;
  }

 private:
  // Returns how many of the text's windows are in this part of the data. Returns all windows if
  // only the beginning of the text was checked.
  uint64_t windows_of(uint64_t windows) const { return is_whole_ ? part_.size(windows) : windows; }

  // Tokenises the text. Returns how many windows it has.
  uint64_t tokenise(const Recipe& recipe, Split split, const std::string& path, DataLook* look) {
    const ModelFiles files = ModelFiles::open(recipe.place);
    const Tokenizer tokenizer(files.tokenizer());
    const auto vocabulary = static_cast<uint32_t>(describe_model(recipe.model).vocabulary);
    reads_control_ = recipe.data.chat.control_tokens;
    std::vector<std::string> whole = recipe.place.new_tokens;
    for (int32_t id = 0; reads_control_ && id < static_cast<int32_t>(tokenizer.vocabulary()); ++id) {
      if (tokenizer.has_token(id) && tokenizer.is_control(id)) whole.push_back(tokenizer.token(id));
    }
    // A piece ends after a newline, so that only tokens that contain a newline can be cut.
    std::erase_if(whole, [](const std::string& token) { return token.find('\n') == std::string::npos; });
    TextPieces pieces(path, std::move(whole));
    NoteCounts notes;
    std::optional<int32_t> last;
    LongWork work("tokens of " + path);
    const uint64_t sequence = static_cast<uint64_t>(recipe.sequence);
    for (;;) {
      const uint64_t begin = pieces.done();
      if (look != nullptr && begin >= look->max_bytes && store_.size() > sequence) {
        is_whole_ = pieces.next().empty();
        break;
      }
      const std::string& piece = pieces.next();
      if (piece.empty()) break;
      try {
        const std::vector<int32_t> ids = tokens_of(tokenizer, piece, path, begin, vocabulary);
        if (!ids.empty()) last = ids.back();
        store_.add(ids);
        if (!reads_control_) notes.add(letters_of(tokenizer, piece), 1, path);
      } catch (const UserError& error) {
        if (look == nullptr) throw;
        look->add(error.what());
      }
      work.done(static_cast<double>(pieces.done()) / static_cast<double>(pieces.bytes()));
    }
    const std::optional<int32_t> end = end_of_text(files, tokenizer);
    if (is_whole_ && end && end != last && static_cast<uint32_t>(*end) < vocabulary)
      store_.add(std::vector<int32_t>{*end});
    if (split == Split::kTraining && !end) warnings_.push_back(path + ": " + no_text_end(files));
    store_.finish();
    for (std::string& line : notes.warnings(path)) warnings_.push_back(std::move(line));
    const uint64_t tokens = store_.size();
    if (tokens < sequence + 1) {
      throw UserError(path + ": too short: " + std::to_string(tokens) + " tokens, but one sample of sequence " +
                      std::to_string(sequence) + " needs " + std::to_string(sequence + 1));
    }
    return (tokens - 1) / sequence;
  }

  // Returns the token that ends a text. Reads a chat template only if the other files name no end.
  static std::optional<int32_t> end_of_text(const ModelFiles& files, const Tokenizer& tokenizer) {
    const std::optional<int32_t> end = find_answer_ends(files, tokenizer, nullptr).of_text();
    return end ? end : find_answer_ends(files).of_text();
  }

  static ReadingNotes letters_of(const Tokenizer& tokenizer, const std::string& piece) {
    ReadingNotes notes;
    for (const Tokenizer::Place& place : tokenizer.find_control(piece))
      ++notes.letters[json_shown(tokenizer.token(place.id))];
    return notes;
  }

  std::vector<int32_t> tokens_of(const Tokenizer& tokenizer, const std::string& piece, const std::string& path,
                                 uint64_t begin, uint32_t vocabulary) const {
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer.encode(piece, reads_control_, begin == 0 ? TextPlace::kBegins : TextPlace::kGoesOn);
    } catch (const UserError& error) {
      throw UserError(path + ": in the text from byte " + std::to_string(begin) + " on: " + error.what());
    }
    for (const int32_t token : tokens) {
      if (static_cast<uint32_t>(token) >= vocabulary) {
        throw UserError(path + ": token " + std::to_string(token) + " of the tokenizer is none of the model's " +
                        std::to_string(vocabulary));
      }
    }
    return tokens;
  }

  const DataPart part_;
  TokenStore store_;
  bool is_whole_ = true, reads_control_ = true;
  const uint64_t windows_;
  TokenWindow window_;
  const SampleOrder order_;
};

// True if the recipe's model has a tokenizer. Without one, bytes are the tokens. Throws UserError
// then if a published model has more than 256 tokens and its own weights, because it would learn
// nonsense.
bool has_tokenizer(const Recipe& recipe) {
  const std::string& path = recipe.place.path();
  if (path.empty()) return false;
  if (ModelFiles::open(path).has_tokenizer()) return true;
  const int vocabulary = describe_model(recipe.model).vocabulary;
  if (vocabulary <= 256 || recipe.init.random) return false;
  throw UserError(path + ": holds no tokenizer that can be read, which a text in the tokens of a model of " +
                  std::to_string(vocabulary) + " needs: tokenizer.json, or tokenizer.ggml of a GGUF");
}

}  // namespace

std::unique_ptr<Dataset> open_text(const Recipe& recipe, Split split, DataLook* look) {
  return has_tokenizer(recipe) ? open_part<TextDataset>(recipe, split, look) : open_tokens(recipe, split, look);
}

}  // namespace reprise
