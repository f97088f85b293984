// A text that stands for itself in the tokens of a net that reads it: whole, with what its tokenizer puts around it, cut at the net's length.
// Here because a text is the same whether it is learned from or said something of. It must not be included outside tools/data.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/recipes/recipe.h"
#include "tools/tokenizer/tokenizer.h"

namespace reprise {

class TextReader {
 public:
  // Opens the recipe's tokenizer. Throws UserError where it has ids that the net has not, or leaves a text no room.
  explicit TextReader(const Recipe& recipe);

  size_t most() const { return most_; }
  // Each throws UserError that begins with `place` where it is no text.
  TokenRow read(const std::string& text, const std::string& place, bool* is_cut = nullptr) const;
  // Of two texts in one row; also where the net does not tell as many types of tokens apart as the tokenizer gives.
  TokenRow read_pair(const std::string& first, const std::string& second, const std::string& place, bool* is_cut = nullptr) const;

 private:
  const std::unique_ptr<Tokenizer> tokenizer_;
  const size_t most_;
  const int types_;  // that the net tells apart
};

}  // namespace reprise
