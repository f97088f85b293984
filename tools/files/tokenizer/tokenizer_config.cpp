// See tokenizer_config.h.
#include "tools/files/tokenizer/tokenizer_config.h"

#include <filesystem>

#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/input_file.h"

namespace reprise {
namespace {

nlohmann::json read_if_there(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nlohmann::json::object();
  return parse_json(text_of_tokenizer(path), path);
}

std::optional<std::string> token_in(const JsonFields& fields, const std::string& key) {
  if (!fields.has_value(key)) return std::nullopt;
  std::string name;
  if (fields.at(key).is_object()) {
    fields.object(key).require("content", "give the token's text");
    fields.object(key).read("content", name);
  } else {
    fields.read(key, name);
  }
  return name;
}

}  // namespace

std::string text_of_tokenizer(const std::string& path) {
  constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  const InputFile file(path);
  refuse_other_kinds(file, "a tokenizer: tokenizer.json, vocab.txt, or a GGUF file");
  if (file.bytes() > kMaxBytes)
    throw UserError(path + ": is no tokenizer: it is larger than " + std::to_string(kMaxBytes) + " bytes");
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

TokenizerConfig::TokenizerConfig(const std::string& tokenizer)
    : path_((std::filesystem::path(tokenizer).parent_path() / "tokenizer_config.json").string()),
      json_(read_if_there(path_)),
      fields_(json_, {path_}, "") {}

std::optional<std::string> TokenizerConfig::token(const std::string& key) const { return token_in(fields_, key); }

std::optional<std::string> TokenizerConfig::token_of_map(const std::string& key) const {
  const std::string file = (std::filesystem::path(path_).parent_path() / "special_tokens_map.json").string();
  const nlohmann::json map = read_if_there(file);
  return token_in(JsonFields(map, {file}, ""), key);
}

}  // namespace reprise
