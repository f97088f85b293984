// The tokenizer_config.json that stands beside a tokenizer.json or a vocab.txt, and how a JSON file of a tokenizer is opened at all.
// Here because both readers take tokens from it by their texts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tools/formats/json_fields.h"

namespace reprise {

// A tokenizer's file whole. Throws UserError where it is far larger than any.
std::string text_of_tokenizer(const std::string& path);

class TokenizerConfig {
 public:
  // Of the tokenizer's own file. Where there is none beside it, it has no field. Throws UserError where it is no JSON.
  explicit TokenizerConfig(const std::string& tokenizer);
  TokenizerConfig(const TokenizerConfig&) = delete;
  TokenizerConfig& operator=(const TokenizerConfig&) = delete;

  const JsonFields& fields() const { return fields_; }
  // A token's text, which stands as "<s>" or {"content": "<s>", ...}; none where it is null or not given.
  std::optional<std::string> token(const std::string& key) const;

 private:
  const std::string path_;
  const nlohmann::json json_;
  const JsonFields fields_;
};

}  // namespace reprise
