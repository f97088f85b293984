// WordPiece (Schuster and Nakajima 2012, as BERT uses it): of a word the longest token that it begins with, then of what is left the longest
// token that goes on within a word, and so on; where nothing fits the whole word is unknown.
// Here because this is the other way, beside byte pairs, by which a word becomes ids.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

class WordPieces {
 public:
  // A text never becomes a token of control. Throws UserError where the file has no unknown token.
  explicit WordPieces(const TokenizerFile& file);

  // Appends the ids of one word.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  // The longest token with which `text` begins: its id and its bytes. None where it is no longer than `least`.
  struct Piece {
    int32_t id;
    size_t bytes;
  };
  Piece longest(std::string_view text, size_t least) const;

  const WordPieceRules rules_;
  int32_t unknown_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> id_of_name_;
  size_t longest_bytes_ = 0;  // of a name
};

// What stands for a token in a text: a space and its name, or of one that goes on the name without its prefix. Where punctuation is joined there
// is none before it. Source: github.com/huggingface/tokenizers, decoders/wordpiece.rs.
std::string text_of_piece(const WordPieceRules& rules, const std::string& name);

}  // namespace reprise
