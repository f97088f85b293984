// A tokenizer as Hugging Face's files say it.
// Here because a model that came from a GGUF file and goes out as a folder takes its tokenizer with it.
#pragma once

#include <string>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

// The texts of tokenizer.json and tokenizer_config.json. Throws UserError where a cut is none that has a word there.
struct TokenizerTexts {
  std::string tokenizer, config;
};
TokenizerTexts tokenizer_texts(const TokenizerFile& tokenizer, const std::string& chat_template);

}  // namespace reprise
