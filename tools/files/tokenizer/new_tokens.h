// Adds a user's tokens to a vocabulary, like transformers' add_tokens. Reading texts, adding rows
// to tables and writing files all use the ids that add_tokens() returns.
#pragma once

#include <string>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

constexpr float kAddedScore = -1000;  // score of an added token, as in llama.cpp's converters

// Adds the tokens and returns their ids. In every text they are found exactly as they are written,
// before the text is normalised or cut into words. New ids begin after the last token that is not
// padding. An existing added token is unchanged; an existing normal token becomes an added token
// and keeps its id. Throws UserError with the token if it is a byte of the vocabulary, or a name
// that the vocabulary uses for another text. In a vocabulary that spells spaces as U+2581, a token
// that contains U+2581 is refused too.
NewTokens add_tokens(TokenizerFile& file, const std::vector<std::string>& tokens);

}  // namespace reprise
