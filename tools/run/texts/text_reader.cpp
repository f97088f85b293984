// See text_reader.h.
#include "tools/run/texts/text_reader.h"

#include <algorithm>

#include "tools/files/io/error.h"

namespace reprise {

TextReader::TextReader(const Recipe& recipe)
    : tokenizer_(Tokenizer::open(recipe.data.tokenizer)),
      most_(static_cast<size_t>(describe_model(recipe.model).text_length)),
      types_(describe_model(recipe.model).token_types) {
  const int vocabulary = describe_model(recipe.model).vocabulary;
  if (tokenizer_->vocabulary() > static_cast<uint32_t>(vocabulary)) {
    throw UserError(recipe.data.tokenizer + ": has ids up to " + std::to_string(tokenizer_->vocabulary() - 1) +
                    ", and the net's table " + std::to_string(vocabulary) +
                    " rows; it must be the model's own tokenizer");
  }
  if (tokenizer_->encode_whole("", most_).size() >= most_) {
    throw UserError(recipe.data.tokenizer + ": what it puts around a text leaves no room for it: the net reads " +
                    std::to_string(most_) + " tokens");
  }
}

TokenRow TextReader::read(const std::string& text, const std::string& place, bool* is_cut) const {
  try {
    return {tokenizer_->encode_whole(text, most_, is_cut), {}};
  } catch (const UserError& error) {
    throw UserError(place + ": " + error.what());
  }
}

TokenRow TextReader::read_pair(const std::string& first, const std::string& second, const std::string& place,
                               bool* is_cut) const {
  try {
    TokenRow row = tokenizer_->encode_pair(first, second, most_, is_cut);
    if (types_ == 0) row.types.clear();  // the net reads no types
    const auto largest = std::max_element(row.types.begin(), row.types.end());
    if (largest == row.types.end() || *largest < types_) return row;
    throw UserError("the tokenizer gives a pair's tokens types up to " + std::to_string(*largest) +
                    ", and the net tells " + std::to_string(types_) + " apart; it must be the model's own tokenizer");
  } catch (const UserError& error) {
    throw UserError(place + ": " + error.what());
  }
}

}  // namespace reprise
