// See text_reader.h.
#include "tools/data/text_reader.h"

#include "tools/formats/error.h"

namespace reprise {

TextReader::TextReader(const Recipe& recipe)
    : tokenizer_(Tokenizer::open(recipe.data.tokenizer)), most_(static_cast<size_t>(describe_model(recipe.model).text_length)) {
  const int vocabulary = describe_model(recipe.model).vocabulary;
  if (tokenizer_->vocabulary() > static_cast<uint32_t>(vocabulary)) {
    throw UserError(recipe.data.tokenizer + ": has ids up to " + std::to_string(tokenizer_->vocabulary() - 1) +
                    ", and the net's table " + std::to_string(vocabulary) + " rows; it must be the model's own tokenizer");
  }
  if (tokenizer_->encode_whole("", most_).size() >= most_) {
    throw UserError(recipe.data.tokenizer + ": what it puts around a text leaves no room for it: the net reads " +
                    std::to_string(most_) + " tokens");
  }
}

std::vector<int32_t> TextReader::read(const std::string& text, const std::string& place, bool* is_cut) const {
  try {
    return tokenizer_->encode_whole(text, most_, is_cut);
  } catch (const UserError& error) {
    throw UserError(place + ": " + error.what());
  }
}

}  // namespace reprise
