// Tokens that a person adds to a vocabulary, as transformers' add_tokens does.
// Here because the ids must be the same wherever a text is read, a table has rows for them, and a file is written that names them.
#pragma once

#include <string>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

constexpr float kAddedScore = -1000;  // of an added token, as llama.cpp's converters have it

// Each token is cut out of every text as it is written, before the text is normalised or cut into words. Ids begin behind the last token
// that is no padding. One that is an added token already stays what it is. One that merges make becomes an added token with its own id. Throws
// UserError that names the token for what cannot be one: a byte of the vocabulary's, its spelling of another text, and a mark of a space where
// it has such.
NewTokens add_tokens(TokenizerFile& file, const std::vector<std::string>& tokens);

}  // namespace reprise
