// See model_files.h.
#include "tools/files/weights/model_files.h"

#include <algorithm>
#include <filesystem>

#include "tools/files/formats/checksum.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/gguf_weights.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

using Templates = std::map<std::string, std::string>;

// Returns the templates in a config's "chat_template": a text, or a list of {"name", "template"}.
Templates templates_in(const json& config, const std::string& file) {
  if (!config.is_object()) throw UserError(file + ": must be an object");
  if (!config.contains("chat_template") || config["chat_template"].is_null()) return {};
  const json& given = config["chat_template"];
  if (given.is_string()) return {{kDefaultTemplate, given.get<std::string>()}};
  if (!given.is_array())
    throw UserError(file + ": chat_template: must be a string or a list of named templates, not " + json_kind(given));
  Templates templates;
  for (const json& entry : given) {
    const bool named = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!named) throw UserError(file + ": chat_template: every element must have a name and a template");
    templates[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return templates;
}

// Reads templates as transformers does. The config's templates are used if the folder has no
// template file. If the folder has template files, but no default template, only the config's
// default is added.
Templates folder_templates(const std::string& folder) {
  std::error_code ignored;
  Templates templates;
  if (const std::string jinja = folder + "/chat_template.jinja"; fs::exists(jinja, ignored))
    templates[kDefaultTemplate] = read_file(jinja);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/" + kMoreTemplates, ignored)) {
    if (entry.path().extension() == ".jinja")
      templates[entry.path().stem().string()] = read_file(entry.path().string());
  }
  const std::string config = folder + "/tokenizer_config.json";
  if (templates.count(kDefaultTemplate) > 0 || !fs::exists(config, ignored)) return templates;
  Templates others = templates_in(parse_json(read_file(config), config), config);
  if (templates.empty()) return others;
  if (const auto found = others.find(kDefaultTemplate); found != others.end()) templates.insert(*found);
  return templates;
}

Templates gguf_templates(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  Templates templates;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with(kKey) || !value.value.is_string()) continue;
    const std::string name = key.substr(kKey.size());
    if (name.empty() || name.starts_with('.'))
      templates[name.empty() ? kDefaultTemplate : name.substr(1)] = value.value.get<std::string>();
  }
  return templates;
}

}  // namespace

ModelFiles ModelFiles::open(const std::string& path) {
  std::error_code ignored;
  ModelFiles files;
  files.path_ = path;
  files.is_gguf_ = !fs::is_directory(path, ignored);
  if (!files.is_gguf_) return files;
  const InputFile readable(path);  // the constructor throws, with the reason, if the file is not readable
  refuse_other_kinds(readable, "a model: a folder with a config.json, or a GGUF file", {FileKind::kGguf});
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

json ModelFiles::config() const {
  return is_gguf_ ? gguf_config(GgufFile(path_)) : parse_json(read_file(config_path()), config_path());
}

bool ModelFiles::has_tokenizer() const {
  std::error_code ignored;
  return is_gguf_ ? GgufFile(path_).find_value("tokenizer.ggml.model") != nullptr
                  : fs::exists(path_ + "/tokenizer.json", ignored);
}

std::map<std::string, std::string> ModelFiles::chat_templates() const {
  Templates templates = is_gguf_ ? gguf_templates(GgufFile(path_)) : folder_templates(path_);
  std::erase_if(templates, [](const auto& named) { return named.second.empty(); });
  return templates;
}

std::map<std::string, std::string> ModelFiles::text_sums() const {
  std::map<std::string, std::string> sums;
  const auto add = [&sums](const std::string& name, const std::string& text) {
    if (!text.empty()) sums[name] = checksum_of(text);
  };
  for (const auto& [name, source] : chat_templates())
    add(name == kDefaultTemplate ? kChatTemplate : kChatTemplate + (" " + name), source);
  if (!is_gguf_) {
    if (!has_tokenizer()) return sums;
    add("tokenizer.json", read_file(path_ + "/tokenizer.json"));
    for (const std::string name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      std::error_code ignored;
      const std::string settings = path_ + "/" + name;
      if (!fs::exists(settings, ignored)) continue;
      const json config = parse_json(read_file(settings), settings);
      json tokens = json::object();
      for (const char* key : {"bos_token", "eos_token", "pad_token", "add_bos_token"})
        tokens[key] = config.is_object() ? config.value(key, json()) : json();
      add(name, tokens.dump());
    }
    return sums;
  }
  const GgufFile file(path_);
  std::string tokenizer;
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with("tokenizer.ggml."))
      tokenizer += key + " " + value.value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  add(kGgufTokenizer, tokenizer);
  return sums;
}

std::string folder_weights(const std::string& folder) {
  // A broken link counts as present, because the error that opening it raises is clearer than "no
  // weights".
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
    for (const char* ending :
         {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".incomplete"}) {
      if (name.ends_with(ending)) names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace reprise
