// The way of a text: added tokens out, normal form, normalised added tokens out, cut into words, byte pairs.
#include "tools/tokenizer/tokenizer.h"

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tools/formats/error.h"
#include "tools/formats/input_file.h"
#include "tools/tokenizer/byte_alphabet.h"
#include "tools/tokenizer/characters.h"

namespace reprise {
namespace {

std::vector<std::string> bytes_of_tokens(const TokenizerFile& file) {
  std::vector<std::string> bytes;
  bytes.reserve(file.tokens.size());
  for (const FileToken& token : file.tokens) bytes.push_back(token.kind == TokenKind::kNormal ? bytes_of_name(token.name) : token.name);
  return bytes;
}

bool is_gguf(const std::string& path) {
  const InputFile file(path);
  char magic[4] = {};
  if (file.bytes() >= sizeof magic) file.read(0, magic, sizeof magic);
  return std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

// Cuts the matches out of the text; `between` gets the text around them.
template <typename Between>
void cut_out(const AddedTokens& tokens, std::string_view text, bool with_control, std::vector<int32_t>& ids, const Between& between) {
  size_t at = 0;
  while (const auto match = tokens.find(text, at, with_control)) {
    if (match->begin > at) between(text.substr(at, match->begin - at));
    ids.push_back(match->id);
    at = match->end;
  }
  if (at < text.size()) between(text.substr(at));
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::open(const std::string& path) {
  std::string file = path;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    file = (std::filesystem::path(path) / "tokenizer.json").string();
    if (!std::filesystem::exists(file, ignored)) throw UserError(path + ": holds no tokenizer.json; name a folder that does, the file itself, or a GGUF file");
  }
  return std::make_unique<Tokenizer>(is_gguf(file) ? read_tokenizer_gguf(file) : read_tokenizer_json(file));
}

Tokenizer::Tokenizer(const TokenizerFile& file)
    : path_(file.path),
      bytes_(bytes_of_tokens(file)),
      composes_(file.composes),
      adds_bos_(file.adds_bos),
      bos_(file.bos),
      eos_(file.eos),
      pad_(file.pad),
      cutter_(file),
      pairs_(file, bytes_) {
  for (const FileToken& token : file.tokens) kinds_.push_back(token.kind);
  for (const AddedToken& added : file.added) {
    const auto id = static_cast<size_t>(added.id);
    if (first_byte_not_utf8(bytes_[id]) != std::string::npos) throw UserError(path_ + ": the added token " + std::to_string(added.id) + " is not UTF-8");
    std::string buffer;
    const std::string_view text = added.normalized && composes_ ? composed(bytes_[id], buffer) : bytes_[id];
    (added.normalized ? in_normalised_text_ : in_text_).add(added, text, kinds_[id] == TokenKind::kControl);
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  constexpr size_t kLongest = INT32_MAX;
  if (text.size() > kLongest) throw UserError("text: " + std::to_string(text.size()) + " bytes at once; at most " + std::to_string(kLongest) + " can be tokenised");
  const size_t fault = first_byte_not_utf8(text);
  if (fault != std::string_view::npos) {
    char shown[8];
    std::snprintf(shown, sizeof shown, "0x%02x", static_cast<unsigned>(static_cast<uint8_t>(text[fault])));
    throw UserError("text: not UTF-8 at byte " + std::to_string(fault) + ", which is " + shown);
  }
  const std::lock_guard one_at_a_time(cache_in_use_);
  std::vector<int32_t> ids;
  cut_out(in_text_, text, parse_special, ids, [&](std::string_view piece) {
    std::string buffer;
    encode_normalised(composes_ ? composed(piece, buffer) : piece, parse_special, ids);
  });
  return ids;
}

void Tokenizer::encode_normalised(std::string_view text, bool parse_special, std::vector<int32_t>& ids) const {
  cut_out(in_normalised_text_, text, parse_special, ids, [&](std::string_view piece) { encode_words(piece, ids); });
}

void Tokenizer::encode_words(std::string_view text, std::vector<int32_t>& ids) const {
  cutter_.cut(text, [&](std::string_view word) { cache_.encode(pairs_, word, ids); });
}

std::vector<Tokenizer::Place> Tokenizer::find_control(std::string_view text) const {
  std::vector<Place> places;
  const auto find_in = [&](const AddedTokens& tokens, size_t begin, size_t end, const auto& between) {
    const std::string_view piece = text.substr(begin, end - begin);
    size_t at = 0;
    while (const auto match = tokens.find(piece, at, true)) {
      between(begin + at, begin + match->begin);
      if (is_control(match->id)) places.push_back({begin + match->begin, begin + match->end, match->id});
      at = match->end;
    }
    between(begin + at, end);
  };
  find_in(in_text_, 0, text.size(), [&](size_t begin, size_t end) { find_in(in_normalised_text_, begin, end, [](size_t, size_t) {}); });
  return places;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
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
  throw UserError(path_ + ": no token has the id " + std::to_string(id) + "; ids are 0 to " + std::to_string(static_cast<int64_t>(kinds_.size()) - 1));
}

}  // namespace reprise
