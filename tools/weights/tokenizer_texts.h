// A tokenizer as Hugging Face's files say it.
// Here because a model that came from a GGUF file and goes out as a folder takes its tokenizer with it.
#pragma once

#include <string>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

// The texts of tokenizer.json and tokenizer_config.json. Throws UserError where a cut is none that has a word there.
struct TokenizerTexts {
  std::string tokenizer, config;
};
TokenizerTexts tokenizer_texts(const TokenizerFile& tokenizer, const std::string& chat_template);

// The text of a tokenizer's file as it is with these of the tokenizer's tokens added: tokenizer.json, and tokenizer_config.json and
// added_tokens.json where they list added tokens; any other file's as it is. `path` begins refusals.
std::string with_new_tokens(const std::string& name, const std::string& text, const std::string& path, const TokenizerFile& tokenizer,
                            const std::vector<std::string>& tokens);

}  // namespace reprise
