// Reads the tokenizer_config.json next to a tokenizer.json or vocab.txt, and the older
// special_tokens_map.json. Readers of tokenizers look up the texts of special tokens in these
// files. text_of_tokenizer() reads a tokenizer's own file.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tools/files/formats/json_fields.h"

namespace reprise {

// Returns the contents of a tokenizer's file. Throws UserError if it is larger than 64 MiB or of
// another kind.
std::string text_of_tokenizer(const std::string& path);

// The config of one tokenizer.
class TokenizerConfig {
 public:
  // Reads the config next to `tokenizer`, the path of the tokenizer's own file. If there is no
  // config, it has no fields. Throws UserError if it is not JSON.
  explicit TokenizerConfig(const std::string& tokenizer);
  TokenizerConfig(const TokenizerConfig&) = delete;
  TokenizerConfig& operator=(const TokenizerConfig&) = delete;

  const JsonFields& fields() const { return fields_; }
  // Returns the text of a special token, given as "<s>" or {"content": "<s>", ...}; nothing if it
  // is null or absent.
  std::optional<std::string> token(const std::string& key) const;
  // Returns the text of a special token in the special_tokens_map.json next to the tokenizer's own
  // file. Throws UserError if special_tokens_map.json is not JSON.
  std::optional<std::string> token_of_map(const std::string& key) const;

 private:
  const std::string path_;
  const nlohmann::json json_;
  const JsonFields fields_;
};

}  // namespace reprise
