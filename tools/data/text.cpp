// A text file in the tokens of the recipe's model: tokenised once, then read in windows as a token file is.
// Here so that a text is what the model's own tokenizer makes of it; a model without one reads bytes (tokens.cpp).
#include <algorithm>

#include "tools/data/held_out.h"
#include "tools/data/sample_order.h"
#include "tools/data/sources.h"
#include "tools/data/token_store.h"
#include "tools/data/token_window.h"
#include "tools/formats/error.h"
#include "tools/formats/input_file.h"
#include "tools/progress/long_work.h"
#include "tools/tokenizer/tokenizer.h"
#include "tools/weights/model_files.h"

namespace reprise {
namespace {

// A text of any size, tokenised in pieces that its tokens do not cross: a piece ends behind a newline where a letter follows, which is a
// boundary of words in every pre-tokenizer of the known families, and where no new token stands across it.
class TextPieces {
 public:
  TextPieces(const std::string& path, const std::vector<std::string>& new_tokens) : file_(path), new_tokens_(new_tokens) {}

  uint64_t bytes() const { return file_.bytes(); }
  uint64_t done() const { return at_; }

  // The next piece; empty at the end.
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
  // The last place at or after `from`, and not the end, at which the text can be cut; 0: none.
  size_t last_boundary(size_t from) const {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    for (size_t i = piece_.size(); i-- > std::max<size_t>(from, 1);) {
      if (piece_[i - 1] == '\n' && is_letter(piece_[i]) && !cuts_new_token(i)) return i;
    }
    return 0;
  }

  // Or what may become one behind the piece's end.
  bool cuts_new_token(size_t at) const {
    const auto stands_across = [&](const std::string& token) {
      for (size_t before = 1; before < token.size() && before <= at; ++before) {
        const std::string_view there = std::string_view(piece_).substr(at - before, token.size());
        if (token.starts_with(there)) return true;
      }
      return false;
    };
    return std::any_of(new_tokens_.begin(), new_tokens_.end(), stands_across);
  }

  InputFile file_;
  const std::vector<std::string> new_tokens_;
  uint64_t at_ = 0;
  std::string piece_;
};

class TextDataset : public Dataset {
 public:
  TextDataset(const Recipe& recipe, Split split, const DataPart& part, DataLook* look)
      : part_(part), windows_(windows_of(tokenise(recipe, part.path(), look))), window_(static_cast<uint64_t>(recipe.sequence)), order_(recipe, split, windows_) {
    set_size(recipe, windows_, static_cast<uint64_t>(recipe.sequence));
    fingerprint_ = fingerprint_of(size_, "", {part.path()});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      if (sample) sample = part_.sample(*sample);
      window_.add_to(sink, sample, [this](uint64_t first, uint64_t count, int32_t* to) { store_.read(first, count, to); });
      real += sample.has_value();
    }
    return real;
  }

 private:
  // How many of the text's windows the part has; of a text that was looked at in part nobody can say.
  uint64_t windows_of(uint64_t windows) const { return is_whole_ ? part_.size(windows) : windows; }

  // How many windows the text has.
  uint64_t tokenise(const Recipe& recipe, const std::string& path, DataLook* look) {
    const Tokenizer tokenizer(ModelFiles::open(recipe.place).tokenizer());
    const auto vocabulary = static_cast<uint32_t>(describe_model(recipe.model).vocabulary);
    TextPieces pieces(path, recipe.place.new_tokens);
    LongWork work("tokens of " + path);
    const uint64_t sequence = static_cast<uint64_t>(recipe.sequence);
    for (;;) {
      const uint64_t begin = pieces.done();
      if (look != nullptr && begin >= look->most_bytes && store_.size() > sequence) {
        is_whole_ = pieces.next().empty();
        break;
      }
      const std::string& piece = pieces.next();
      if (piece.empty()) break;
      try {
        store_.add(tokens_of(tokenizer, piece, path, begin, vocabulary));
      } catch (const UserError& error) {
        if (look == nullptr) throw;
        look->add(error.what());
      }
      work.done(static_cast<double>(pieces.done()) / static_cast<double>(pieces.bytes()));
    }
    store_.finish();
    const uint64_t tokens = store_.size();
    if (tokens < sequence + 1) {
      throw UserError(path + ": too short: " + std::to_string(tokens) + " tokens, but one sample of sequence " + std::to_string(sequence) +
                      " needs " + std::to_string(sequence + 1));
    }
    return (tokens - 1) / sequence;
  }

  static std::vector<int32_t> tokens_of(const Tokenizer& tokenizer, const std::string& piece, const std::string& path, uint64_t begin,
                                        uint32_t vocabulary) {
    std::vector<int32_t> tokens;
    try {
      tokens = tokenizer.encode(piece, false, begin == 0 ? TextPlace::kBegins : TextPlace::kGoesOn);
    } catch (const UserError& error) {
      throw UserError(path + ": in the text from byte " + std::to_string(begin) + " on: " + error.what());
    }
    for (const int32_t token : tokens) {
      if (static_cast<uint32_t>(token) >= vocabulary) {
        throw UserError(path + ": token " + std::to_string(token) + " of the tokenizer is none of the model's " + std::to_string(vocabulary));
      }
    }
    return tokens;
  }

  const DataPart part_;
  TokenStore store_;
  bool is_whole_ = true;
  const uint64_t windows_;
  TokenWindow window_;
  const SampleOrder order_;
};

// A folder may hold a model's config without its tokenizer. Then bytes are the tokens, of a model that knows bytes: a published one of more
// tokens would learn nonsense.
bool has_tokenizer(const Recipe& recipe) {
  const std::string& path = recipe.place.path();
  if (path.empty()) return false;
  if (ModelFiles::open(path).has_tokenizer()) return true;
  const int vocabulary = describe_model(recipe.model).vocabulary;
  if (vocabulary <= 256 || recipe.init.random) return false;
  throw UserError(path + ": holds no tokenizer that can be read, which a text in the tokens of a model of " + std::to_string(vocabulary) + " needs: tokenizer.json, or tokenizer.ggml of a GGUF");
}

}  // namespace

std::unique_ptr<Dataset> open_text(const Recipe& recipe, Split split, DataLook* look) {
  return has_tokenizer(recipe) ? open_part<TextDataset>(recipe, split, look) : open_tokens(recipe, split, look);
}

}  // namespace reprise
