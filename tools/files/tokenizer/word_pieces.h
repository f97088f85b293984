// WordPiece (Schuster and Nakajima 2012, as in BERT), which is used in place of byte pairs. A word
// becomes the longest token with which it begins, then the longest token that continues it, and so
// on. If no token fits, the whole word becomes the unknown token.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// The pieces of one vocabulary.
class WordPieces {
 public:
  // Builds the table of pieces. It contains no control tokens, so that a text cannot become one.
  // Throws UserError if the file has no unknown token.
  explicit WordPieces(const TokenizerFile& file);

  // Appends the ids of one word.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  // A token at the beginning of a text: its id and its number of bytes.
  struct Piece {
    int32_t id;
    size_t bytes;
  };
  // Returns the longest token with which the text begins; 0 bytes if no such token is longer than
  // `minimum` bytes.
  Piece longest(std::string_view text, size_t minimum) const;

  const WordPieceRules rules_;
  int32_t unknown_;
  // id of each token that may be a piece, by its name
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> id_of_name_;
  size_t longest_bytes_ = 0;  // bytes of the longest name in the table
};

// Returns the text of a token. For a token that continues a word, this is the name without its
// prefix; for other tokens, a space and the name. If punctuation is joined, some marks and
// contractions have no space before them. Source: github.com/huggingface/tokenizers,
// decoders/wordpiece.rs.
std::string text_of_piece(const WordPieceRules& rules, const std::string& name);

}  // namespace reprise
