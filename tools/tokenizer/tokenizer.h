// Text to token ids and back, as the model's own tokenizer has it: byte-pair encoding over bytes or over SentencePiece's characters, or
// WordPiece, from tokenizer.json, BERT's vocab.txt or a GGUF file.
// Here because a model can only be trained and asked in the ids that it knows.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tokenizer/added_tokens.h"
#include "tools/tokenizer/cut.h"
#include "tools/tokenizer/tokenizer_file.h"
#include "tools/tokenizer/word_cache.h"

namespace reprise {

// What a net reads in one row.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> types;  // of each; {}: all are 0
};

class Tokenizer {
 public:
  // As read_tokenizer() finds it.
  static std::unique_ptr<Tokenizer> open(const std::string& path);
  explicit Tokenizer(const TokenizerFile& file);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of a text of fewer than 2^31 bytes; nothing is put before or behind it. Control tokens are read out of the text only with
  // `parse_special`. A byte for which the vocabulary has neither a token nor an unknown one is left out, as the libraries do that write
  // such files. Throws UserError that names the byte where the text is not UTF-8. From any thread, one at a time. What stands
  // before the text matters to a tokenizer that puts a space before it.
  std::vector<int32_t> encode(std::string_view text, bool parse_special, TextPlace place = TextPlace::kBegins) const;

  // The ids of a text as a model reads it that stands for itself: with what the file puts before and behind, its own cut at its end where
  // all would be more than `most`, which `is_cut` says. Throws UserError as encode() does, and where there is no room for what stands around it.
  std::vector<int32_t> encode_whole(std::string_view text, size_t most, bool* is_cut = nullptr) const;

  // The ids of two texts that stand in one row, as the file joins them, and the type of each token. Where all would be more than `most`, the
  // longer text is cut at its end until both are as long, then both in turn, as transformers' `longest_first` does. Throws as encode_whole() does.
  TokenRow encode_pair(std::string_view first, std::string_view second, size_t most, bool* is_cut = nullptr) const;

  // The added tokens that encode() with parse_special reads out of the text, each with the white space that it takes; ascending.
  // Those that are looked for in the normalised text only are found where the text is normal as it is.
  struct Place {
    size_t begin, end;
    int32_t id;
  };
  std::vector<Place> find_added(std::string_view text) const;
  std::vector<Place> find_control(std::string_view text) const;  // of these those of control

  // The text of these tokens, control tokens as their text; a character may be incomplete. A space that encode() has put before the text is
  // left out again. Throws UserError for an id that is none.
  std::string decode(std::span<const int32_t> ids) const;

  // The bytes of these tokens, which go on behind others.
  std::string bytes_of(std::span<const int32_t> ids) const;

  uint32_t vocabulary() const { return static_cast<uint32_t>(bytes_.size()); }  // the largest id and one
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> pad() const { return pad_; }
  bool adds_bos() const { return adds_bos_; }  // whether a text that a model reads begins with bos
  bool has_token(int32_t id) const;
  std::string token(int32_t id) const;         // its bytes
  bool is_control(int32_t id) const;

 private:
  size_t index_of(int32_t id) const;
  std::string_view normalised(std::string_view text, TextPlace place, std::string& buffer) const;
  void encode_normalised(std::string_view text, bool parse_special, TextPlace place, std::vector<int32_t>& ids) const;
  void encode_words(std::string_view text, TextPlace place, std::vector<int32_t>& ids) const;

  std::string path_;
  Alphabet alphabet_;
  SpaceBefore space_before_;
  bool marks_before_added_, drops_first_space_;
  std::vector<std::string> bytes_;  // of each token
  std::vector<TokenKind> kinds_;
  AddedTokens in_text_, in_normalised_text_;
  bool composes_;
  std::optional<BertRules> bert_;
  bool adds_bos_;
  std::optional<int32_t> bos_, eos_, pad_;
  std::vector<int32_t> behind_;
  std::vector<PairPiece> pair_;
  Cutter cutter_;
  WordModel model_;
  mutable std::mutex cache_in_use_;
  mutable WordCache cache_;
};

}  // namespace reprise
