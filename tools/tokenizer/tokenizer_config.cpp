// See tokenizer_config.h.
#include "tools/tokenizer/tokenizer_config.h"

#include <filesystem>

#include "tools/formats/error.h"
#include "tools/formats/input_file.h"

namespace reprise {
namespace {

nlohmann::json read_if_there(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return nlohmann::json::object();
  return parse_json(text_of_tokenizer(path), path);
}

}  // namespace

std::string text_of_tokenizer(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{64} << 20;
  const InputFile file(path);
  if (file.bytes() > kMostBytes)
    throw UserError(path + ": is no tokenizer: it is larger than " + std::to_string(kMostBytes) + " bytes");
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

TokenizerConfig::TokenizerConfig(const std::string& tokenizer)
    : path_((std::filesystem::path(tokenizer).parent_path() / "tokenizer_config.json").string()),
      json_(read_if_there(path_)),
      fields_(json_, {path_}, "") {}

std::optional<std::string> TokenizerConfig::token(const std::string& key) const {
  if (!fields_.has_value(key)) return std::nullopt;
  std::string name;
  if (fields_.at(key).is_object()) {
    fields_.object(key).require("content", "give the token's text");
    fields_.object(key).read("content", name);
  } else {
    fields_.read(key, name);
  }
  return name;
}

}  // namespace reprise
