// Writes a tokenizer as Hugging Face's files, for a model that was read from a GGUF file and is
// written as a folder.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// The contents of tokenizer.json and tokenizer_config.json.
struct TokenizerTexts {
  std::string tokenizer, config;
};
// Returns the files' contents for a tokenizer that was read from a GGUF file.
TokenizerTexts tokenizer_texts(const TokenizerFile& tokenizer,
                               const std::map<std::string, std::string>& chat_templates);

// Returns the value of "chat_template": the text of the template "default" if it is the only one,
// otherwise a list of all templates with their names.
nlohmann::json chat_template_field(const std::map<std::string, std::string>& chat_templates);

// Returns the content of a tokenizer's file after the new tokens `tokens` of the tokenizer were
// added. Only tokenizer.json, and tokenizer_config.json and added_tokens.json if they list added
// tokens, are changed. Other files are returned unchanged. `path` is the file's name in error
// messages.
std::string with_new_tokens(const std::string& name, const std::string& text, const std::string& path,
                            const TokenizerFile& tokenizer, const std::vector<std::string>& tokens);

}  // namespace reprise
