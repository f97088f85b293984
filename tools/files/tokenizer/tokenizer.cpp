// Tokenises a text in these steps: cut out added tokens, normalise, cut out added tokens that are
// normalised, cut into words, encode words by byte pairs or word pieces.
#include "tools/files/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/input_file.h"
#include "tools/files/tokenizer/bert_text.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/files/tokenizer/new_tokens.h"
#include "tools/files/tokenizer/space_mark.h"

namespace reprise {
namespace {

std::vector<std::string> bytes_of_tokens(const TokenizerFile& file) {
  std::vector<std::string> bytes;
  bytes.reserve(file.tokens.size());
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    const FileToken& token = file.tokens[id];
    if (file.alphabet == Alphabet::kBytes) {
      bytes.push_back(token.kind == TokenKind::kNormal ? bytes_of_name(token.name) : token.name);
      continue;
    }
    if (first_byte_not_utf8(token.name) != std::string::npos)
      throw UserError(file.path + ": the token " + std::to_string(id) + " is not UTF-8");
    bytes.push_back(file.alphabet == Alphabet::kWordPieces ? text_of_piece(file.pieces, token.name)
                                                           : bytes_of_marked(token));
  }
  return bytes;
}

WordModel word_model_of(const TokenizerFile& file, const std::vector<std::string>& bytes) {
  if (file.alphabet == Alphabet::kWordPieces) return WordPieces(file);
  return BytePairs(file, bytes);
}

// Cuts two texts, which have more than `space` tokens together, so that they have exactly `space`.
// A text of at most space / 2 tokens is not cut. If both are longer, each gets half. An odd token
// goes to the longer text, or to the second one if they are equal. Source:
// github.com/huggingface/tokenizers, utils/truncation.rs.
void cut_longest(std::vector<int32_t> (&texts)[2], size_t space) {
  const size_t longer = texts[0].size() > texts[1].size() ? 0 : 1, shorter = 1 - longer;
  const size_t minimum = std::min(texts[shorter].size(), space / 2);
  texts[shorter].resize(minimum);
  texts[longer].resize(space - minimum);
}

enum class Format { kGguf, kJson, kLines };

// Detects the format. GGUF has a magic number. JSON begins with a brace; blanks and a byte order
// mark may precede the brace. A file whose first 63 bytes are only blanks also counts as JSON.
// Everything else is a list of lines.
Format format_of(const std::string& path) {
  const InputFile file(path);
  char first[64] = {};
  file.read(0, first, std::min(file.bytes(), uint64_t{sizeof first - 1}));
  if (std::memcmp(first, "GGUF", 4) == 0) return Format::kGguf;
  const std::string_view text(first);
  const size_t at = text.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  return at == std::string_view::npos || text[at] == '{' ? Format::kJson : Format::kLines;
}

// Cuts the added tokens out of the text. Calls between(piece, begins) for the text around them;
// `begins` states whether the piece is at the beginning of the text.
template <typename Between>
void cut_out(const AddedTokens& tokens, std::string_view text, bool with_control, std::vector<int32_t>& ids,
             const Between& between) {
  size_t at = 0;
  while (const auto match = tokens.find(text, at, with_control)) {
    if (match->begin > at) between(text.substr(at, match->begin - at), at == 0);
    ids.push_back(match->id);
    at = match->end;
  }
  if (at < text.size()) between(text.substr(at), at == 0);
}

}  // namespace

std::string tokenizer_in(const std::string& folder) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "vocab.txt"}) {
    const std::string file = (std::filesystem::path(folder) / name).string();
    if (std::filesystem::exists(file, ignored)) return file;
  }
  return "";
}

std::string tokenizer_path(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const std::string file = tokenizer_in(path);
  if (file.empty())
    throw UserError(
        path + ": holds no tokenizer.json and no vocab.txt; name a folder that does, the file itself, or a GGUF file");
  return file;
}

TokenizerFile read_tokenizer(const std::string& path, const std::vector<std::string>& new_tokens, NewTokens* made) {
  const std::string file = tokenizer_path(path);
  const Format format = format_of(file);
  if (format == Format::kJson) return read_tokenizer_json(file, new_tokens, made);
  TokenizerFile read = format == Format::kGguf ? read_tokenizer_gguf(file) : read_tokenizer_lines(file);
  NewTokens added = add_tokens(read, new_tokens);
  if (made != nullptr) *made = std::move(added);
  return read;
}

std::unique_ptr<Tokenizer> Tokenizer::open(const std::string& path) {
  return std::make_unique<Tokenizer>(read_tokenizer(path));
}

Tokenizer::Tokenizer(const TokenizerFile& file)
    : path_(file.path),
      alphabet_(file.alphabet),
      space_before_(file.space_before),
      marks_before_added_(file.marks_before_added),
      drops_first_space_(file.drops_first_space),
      bytes_(bytes_of_tokens(file)),
      composes_(file.composes),
      bert_(file.bert),
      adds_bos_(file.adds_bos),
      bos_(file.bos),
      eos_(file.eos),
      pad_(file.pad),
      behind_(file.behind),
      pair_(file.pair),
      cutter_(file),
      model_(word_model_of(file, bytes_)) {
  for (const FileToken& token : file.tokens) kinds_.push_back(token.kind);
  for (const AddedToken& added : file.added) {
    const auto id = static_cast<size_t>(added.id);
    const std::string& name = file.tokens[id].name;
    if (first_byte_not_utf8(name) != std::string::npos)
      throw UserError(path_ + ": the added token " + std::to_string(added.id) + " is not UTF-8");
    std::string buffer;
    // A control token is searched for in the form that templates write. With a space mark in front
    // it would be found only after a space.
    const bool is_control = kinds_[id] == TokenKind::kControl,
               is_normalised = added.normalized && !(is_control && marks_before_added_);
    const std::string_view text = is_normalised && !name.empty() ? normalised(name, TextPlace::kBegins, buffer) : name;
    AddedTokens& tokens = is_normalised ? in_normalised_text_ : in_text_;
    const std::string refusal = path_ + ": the added token " + std::to_string(added.id) + ", " + json_shown(name);
    if (text.size() > AddedTokens::kLongest)
      throw UserError(refusal + ", has " + std::to_string(text.size()) + " bytes; must have at most " +
                      std::to_string(AddedTokens::kLongest));
    if (tokens.is_full())
      throw UserError(refusal +
                      ": the added tokens have more than 4 MiB of text together, which is the most that is available");
    tokens.add(added, text, is_control);
  }
}

// Applies the normalisation steps that precede the search for added tokens in the normalised text.
std::string_view Tokenizer::normalised(std::string_view text, TextPlace place, std::string& buffer) const {
  if (bert_) return bert_text(*bert_, text, buffer);
  const std::string_view form = composes_ ? composed(text, buffer) : text;
  if (!marks_before_added_) return form;
  std::string marked;
  marked_spaces(form, space_before_, place, marked);
  buffer = std::move(marked);
  return buffer;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special, TextPlace place) const {
  constexpr size_t kLongest = INT32_MAX;
  if (text.size() > kLongest)
    throw UserError("text: " + std::to_string(text.size()) + " bytes at once; at most " + std::to_string(kLongest) +
                    " can be tokenised");
  const size_t fault = first_byte_not_utf8(text);
  if (fault != std::string_view::npos) {
    char shown[8];
    std::snprintf(shown, sizeof shown, "0x%02x", static_cast<unsigned>(static_cast<uint8_t>(text[fault])));
    throw UserError("text: not UTF-8 at byte " + std::to_string(fault) + ", which is " + shown);
  }
  const std::lock_guard one_at_a_time(cache_in_use_);
  std::vector<int32_t> ids;
  cut_out(in_text_, text, parse_special, ids, [&](std::string_view piece, bool begins) {
    std::string buffer;
    const TextPlace here = begins ? place : TextPlace::kBehindToken;
    encode_normalised(normalised(piece, here, buffer), parse_special, here, ids);
  });
  return ids;
}

void Tokenizer::encode_normalised(std::string_view text, bool parse_special, TextPlace place,
                                  std::vector<int32_t>& ids) const {
  cut_out(in_normalised_text_, text, parse_special, ids, [&](std::string_view piece, bool begins) {
    encode_words(piece, begins ? place : TextPlace::kBehindToken, ids);
  });
}

void Tokenizer::encode_words(std::string_view text, TextPlace place, std::vector<int32_t>& ids) const {
  std::string buffer;
  if (alphabet_ == Alphabet::kCharacters && !marks_before_added_)
    text = marked_spaces(text, space_before_, place, buffer);
  cutter_.cut(text, [&](std::string_view word) { cache_.encode(model_, word, ids); });
}

std::vector<int32_t> Tokenizer::encode_whole(std::string_view text, size_t maximum, bool* is_cut) const {
  const size_t around = (adds_bos_ ? 1 : 0) + behind_.size();
  if (around > maximum)
    throw UserError(path_ + ": puts " + std::to_string(around) + " tokens around a text, and all may be " +
                    std::to_string(maximum));
  std::vector<int32_t> ids = encode(text, false);
  if (is_cut != nullptr) *is_cut = ids.size() > maximum - around;
  ids.resize(std::min(ids.size(), maximum - around));
  if (adds_bos_) ids.insert(ids.begin(), *bos_);
  ids.insert(ids.end(), behind_.begin(), behind_.end());
  return ids;
}

TokenRow Tokenizer::encode_pair(std::string_view first, std::string_view second, size_t maximum, bool* is_cut) const {
  const auto is_token = [](const PairPiece& piece) { return piece.what == PairPiece::What::kToken; };
  const auto around = static_cast<size_t>(std::count_if(pair_.begin(), pair_.end(), is_token));
  if (around + 2 > maximum)
    throw UserError(path_ + ": puts " + std::to_string(around) + " tokens around a pair of texts, and all may be " +
                    std::to_string(maximum));
  std::vector<int32_t> texts[] = {encode(first, false), encode(second, false)};
  const bool is_longer = texts[0].size() + texts[1].size() > maximum - around;
  if (is_cut != nullptr) *is_cut = is_longer;
  if (is_longer) cut_longest(texts, maximum - around);
  TokenRow row;
  for (const PairPiece& piece : pair_) {
    if (is_token(piece)) {
      row.ids.push_back(piece.token);
    } else {
      const std::vector<int32_t>& text = texts[piece.what == PairPiece::What::kSecond];
      row.ids.insert(row.ids.end(), text.begin(), text.end());
    }
    row.types.resize(row.ids.size(), piece.type);
  }
  return row;
}

std::vector<Tokenizer::Place> Tokenizer::find_added(std::string_view text,
                                                    const AddedTokens::ControlFilter& may_be) const {
  std::vector<Place> places;
  const auto find_in = [&](const AddedTokens& tokens, size_t begin, size_t end, const auto& between) {
    const std::string_view piece = text.substr(begin, end - begin);
    AddedTokens::ControlFilter in_piece;
    if (may_be)
      in_piece = [&](size_t first, size_t last, int32_t id) { return may_be(begin + first, begin + last, id); };
    size_t at = 0;
    while (const auto match = tokens.find(piece, at, true, in_piece)) {
      between(begin + at, begin + match->begin);
      places.push_back(
          {begin + match->begin, begin + match->end, match->id, begin + match->text_begin, begin + match->text_end});
      at = match->end;
    }
    between(begin + at, end);
  };
  find_in(in_text_, 0, text.size(),
          [&](size_t begin, size_t end) { find_in(in_normalised_text_, begin, end, [](size_t, size_t) {}); });
  return places;
}

std::vector<Tokenizer::Place> Tokenizer::find_control(std::string_view text,
                                                      const AddedTokens::ControlFilter& may_be) const {
  std::vector<Place> places = find_added(text, may_be);
  std::erase_if(places, [this](const Place& place) { return !is_control(place.id); });
  return places;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text = bytes_of(ids);
  if (drops_first_space_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string Tokenizer::bytes_of(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += bytes_[index_of(id)];
  return text;
}

std::string Tokenizer::token(int32_t id) const { return bytes_[index_of(id)]; }

bool Tokenizer::is_control(int32_t id) const { return kinds_[index_of(id)] == TokenKind::kControl; }

bool Tokenizer::has_token(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < kinds_.size() && kinds_[static_cast<size_t>(id)] != TokenKind::kAbsent;
}

size_t Tokenizer::index_of(int32_t id) const {
  if (has_token(id)) return static_cast<size_t>(id);
  throw UserError(path_ + ": no token has the id " + std::to_string(id) + "; ids are 0 to " +
                  std::to_string(static_cast<int64_t>(kinds_.size()) - 1));
}

}  // namespace reprise
