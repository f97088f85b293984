// See model_files.h.
#include "tools/weights/model_files.h"

#include <algorithm>
#include <filesystem>

#include "tools/formats/checksum.h"
#include "tools/formats/error.h"
#include "tools/formats/gguf.h"
#include "tools/formats/json_text.h"
#include "tools/tokenizer/tokenizer_file.h"
#include "tools/weights/gguf_model.h"
#include "tools/weights/gguf_weights.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Either one text, or a list of {"name", "template"}, of which "default" is meant.
std::string template_in(const json& config, const std::string& file) {
  if (!config.is_object()) throw UserError(file + ": must be an object");
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return "";
  const json& given = config["chat_template"];
  if (given.is_string()) return given.get<std::string>();
  if (!given.is_array()) throw UserError(file + ": chat_template: must be a string or a list of named templates, not " + json_kind(given));
  for (const json& entry : given) {
    const bool named = entry.is_object() && entry.contains("name") && entry.contains("template") && entry["template"].is_string();
    if (!named) throw UserError(file + ": chat_template: every element must have a name and a template");
    if (entry["name"] == "default") return entry["template"].get<std::string>();
  }
  throw UserError(file + ": chat_template: none of its templates is named \"default\"");
}

std::string folder_template(const std::string& folder) {
  std::error_code ignored;
  if (const std::string jinja = folder + "/chat_template.jinja"; fs::exists(jinja, ignored)) return read_file(jinja);
  const std::string config = folder + "/tokenizer_config.json";
  return fs::exists(config, ignored) ? template_in(parse_json(read_file(config), config), config) : "";
}

}  // namespace

ModelFiles ModelFiles::open(const std::string& path) {
  std::error_code ignored;
  ModelFiles files;
  files.path_ = path;
  files.is_gguf_ = !fs::is_directory(path, ignored);
  if (!files.is_gguf_) return files;
  const InputFile readable(path);  // says why where it is not
  if (!reprise::is_gguf(path)) throw UserError(path + ": must be a model: a folder with a config.json, or a GGUF file");
  return files;
}

ModelFiles ModelFiles::open(const ModelPlace& place) {
  ModelFiles files = open(place.path());
  files.new_tokens_ = place.new_tokens;
  return files;
}

TokenizerFile ModelFiles::tokenizer(NewTokens* made) const {
  return read_tokenizer(path_, new_tokens_, made);
}

json ModelFiles::config() const { return is_gguf_ ? gguf_config(GgufFile(path_)) : parse_json(read_file(config_path()), config_path()); }

bool ModelFiles::has_tokenizer() const {
  std::error_code ignored;
  return is_gguf_ ? GgufFile(path_).find_value("tokenizer.ggml.model") != nullptr : fs::exists(path_ + "/tokenizer.json", ignored);
}

std::string ModelFiles::chat_template() const {
  return is_gguf_ ? GgufFile(path_).text("tokenizer.chat_template").value_or("") : folder_template(path_);
}

std::map<std::string, std::string> ModelFiles::text_sums() const {
  std::map<std::string, std::string> sums;
  const auto add = [&sums](const std::string& name, const std::string& text) {
    if (!text.empty()) sums[name] = checksum_of(text);
  };
  if (!is_gguf_) {
    add(kChatTemplate, chat_template());
    if (!has_tokenizer()) return sums;
    add("tokenizer.json", read_file(path_ + "/tokenizer.json"));
    std::error_code ignored;
    const std::string settings = path_ + "/tokenizer_config.json";
    if (!fs::exists(settings, ignored)) return sums;
    const json config = parse_json(read_file(settings), settings);
    json tokens = json::object();
    for (const char* key : {"bos_token", "eos_token", "pad_token", "add_bos_token"}) tokens[key] = config.is_object() ? config.value(key, json()) : json();
    add("tokenizer_config.json", tokens.dump());
    return sums;
  }
  const GgufFile file(path_);
  std::string tokenizer;
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with("tokenizer.ggml.")) tokenizer += key + " " + value.value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  add(kGgufTokenizer, tokenizer);
  add(kChatTemplate, file.text("tokenizer.chat_template").value_or(""));
  return sums;
}

std::string folder_weights(const std::string& folder) {
  // A link that leads nowhere is there, too: opening it says what is wrong.
  const auto is_there = [](const std::string& path) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(path, ignored));
  };
  const std::string one = folder + "/model.safetensors";
  if (is_there(one)) return one;
  return is_there(one + ".index.json") ? folder : "";
}

std::vector<std::string> other_weight_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".incomplete"}) {
      if (name.ends_with(ending)) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace reprise
