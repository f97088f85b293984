// Converts text to token ids and back like the model's own tokenizer: byte-pair encoding over bytes
// or over SentencePiece's characters, or WordPiece. The source is tokenizer.json, BERT's vocab.txt
// or a GGUF file. A model can only be trained and used with its own ids.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/files/tokenizer/added_tokens.h"
#include "tools/files/tokenizer/cut.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/tokenizer/word_cache.h"

namespace reprise {

// The tokens of one row of a net's input.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> types;  // type of each token; {} if all types are 0
};

// The tokenizer of one model.
class Tokenizer {
 public:
  // Opens a tokenizer. `path` is as in read_tokenizer().
  static std::unique_ptr<Tokenizer> open(const std::string& path);
  explicit Tokenizer(const TokenizerFile& file);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the ids of a text of fewer than 2^31 bytes; no tokens are added before or after it.
  // Control tokens are read from the text only if `parse_special`. If the vocabulary has neither a
  // token for a byte nor an unknown token, the byte is left out, as in the libraries that write
  // such files. `place` matters only for tokenizers that put a space before a text. Throws
  // UserError with the byte if the text is not UTF-8. Every thread may call it; calls run one at a
  // time.
  std::vector<int32_t> encode(std::string_view text, bool parse_special, TextPlace place = TextPlace::kBegins) const;

  // Returns the ids of a text that is a whole sample, with the tokens that the file puts before and
  // after a text. If there are more than `maximum` in total, the text's own ids are cut at their
  // end. `is_cut`, unless null, is set to true if ids were cut, otherwise to false. Throws
  // UserError like encode(), and if the tokens around a text are more than `maximum`.
  std::vector<int32_t> encode_whole(std::string_view text, size_t maximum, bool* is_cut = nullptr) const;

  // Returns the ids of two texts in one row, joined as the file states, and the type of each token.
  // If there are more than `maximum` in total, the longer text is cut at its end until both have
  // equal lengths. Then both are cut in turn, like transformers' `longest_first`. Throws like
  // encode_whole().
  TokenRow encode_pair(std::string_view first, std::string_view second, size_t maximum, bool* is_cut = nullptr) const;

  using Place = AddedTokens::Match;
  // Returns the added tokens that encode() with parse_special finds in the text, in ascending
  // order, with the white space that they include. Tokens that are searched for only in the
  // normalised text are found if the text is already normalised.
  std::vector<Place> find_added(std::string_view text, const AddedTokens::ControlFilter& may_be = {}) const;
  // Returns the tokens of find_added() that are control tokens.
  std::vector<Place> find_control(std::string_view text, const AddedTokens::ControlFilter& may_be = {}) const;

  // Returns the text of these tokens, including control tokens. It may end within a character. A
  // space that encode() put before the text is removed. Throws UserError if an id has no token.
  std::string decode(std::span<const int32_t> ids) const;

  // Returns the bytes of these tokens, as the continuation of other tokens: no space is removed.
  std::string bytes_of(std::span<const int32_t> ids) const;

  uint32_t vocabulary() const { return static_cast<uint32_t>(bytes_.size()); }  // returns the largest id plus 1
  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> pad() const { return pad_; }
  bool adds_bos() const { return adds_bos_; }  // true if the model expects bos before a text
  bool has_token(int32_t id) const;
  std::string token(int32_t id) const;  // returns the token's bytes
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
  std::vector<std::string> bytes_;  // bytes of each token, by id
  std::vector<TokenKind> kinds_;    // kind of each token, by id
  AddedTokens in_text_, in_normalised_text_;
  bool composes_;
  std::optional<BertRules> bert_;
  bool adds_bos_;
  std::optional<int32_t> bos_, eos_, pad_;
  std::vector<int32_t> behind_;  // tokens after a text that is a whole sample
  std::vector<PairPiece> pair_;  // parts of a row with two texts
  Cutter cutter_;
  WordModel model_;
  mutable std::mutex cache_in_use_;
  mutable WordCache cache_;
};

}  // namespace reprise
