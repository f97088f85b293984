// Tokenises a text that is a whole sample. Adds the tokens that the tokenizer puts around a text,
// and cuts it to the net's length. Training and prediction both use it, so that they read a text in
// the same way. Must not be included outside tools/run/texts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/files/tokenizer/tokenizer.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

class TextReader {
 public:
  // Opens the recipe's tokenizer. Throws UserError if it has ids that the net does not have, or if
  // the tokens around a text leave no space for it.
  explicit TextReader(const Recipe& recipe);

  size_t maximum() const { return most_; }
  // Returns the tokens of a text; sets `is_cut` to whether the text was cut. Throws UserError that
  // begins with `place` if the text cannot be tokenised.
  TokenRow read(const std::string& text, const std::string& place, bool* is_cut = nullptr) const;
  // Returns the tokens of two texts in one row. Throws like read(), and if the tokenizer gives more
  // types of tokens than the net has.
  TokenRow read_pair(const std::string& first, const std::string& second, const std::string& place,
                     bool* is_cut = nullptr) const;

 private:
  const std::unique_ptr<Tokenizer> tokenizer_;
  const size_t most_;
  const int types_;  // number of token types that the net has; 0 if it reads no types
};

}  // namespace reprise
