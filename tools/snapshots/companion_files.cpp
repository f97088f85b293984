// See companion_files.h.
#include "tools/snapshots/companion_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/formats/json_text.h"
#include "tools/formats/output_file.h"
#include "tools/weights/tokenizer_texts.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kGeneration = "generation_config.json";

// Transformers 5 names a class that transformers 4 does not know, and lists tokens under a key that is an object there.
std::string tokenizer_config_for_both(const std::string& text, const std::string& file) {
  json config = parse_json(text, file);
  if (!config.is_object()) return text;
  const bool is_newer = config.value("tokenizer_class", json()) == "TokenizersBackend", lists = config.contains("extra_special_tokens") && config["extra_special_tokens"].is_array();
  if (!is_newer && !lists) return text;
  if (is_newer) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (lists) {
    config["additional_special_tokens"] = config["extra_special_tokens"];
    config.erase("extra_special_tokens");
  }
  return config.dump(2) + "\n";
}

void copy(const std::string& name, const ModelPlace& place, const SnapshotDirectory& folder) {
  const std::string from = place.huggingface + "/" + name;
  if (!fs::is_regular_file(from)) return;
  std::string text = read_file(from);
  if (!place.new_tokens.empty()) text = with_new_tokens(name, text, from, ModelFiles::open(place).tokenizer(), place.new_tokens);
  write_file(folder.file(name), name == "tokenizer_config.json" ? tokenizer_config_for_both(text, from) : text);
}

}  // namespace

const std::vector<std::string>& tokenizer_files() {
  static const std::vector<std::string> kNames = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                                  "vocab.json",     "merges.txt",            "tokenizer.model",         "chat_template.jinja"};
  return kNames;
}

const std::vector<std::string>& companion_files() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names = tokenizer_files();
    names.push_back(kGeneration);
    return names;
  }();
  return kNames;
}

void write_tokenizer(const ModelPlace& place, const SnapshotDirectory& folder) {
  if (place.path().empty()) return;
  if (place.gguf.empty()) {
    for (const std::string& name : tokenizer_files()) copy(name, place, folder);
    return;
  }
  const ModelFiles files = ModelFiles::open(place);
  if (!files.has_tokenizer()) return;
  const TokenizerTexts texts = tokenizer_texts(files.tokenizer(), files.chat_template());
  write_file(folder.file("tokenizer.json"), texts.tokenizer);
  write_file(folder.file("tokenizer_config.json"), texts.config);
}

void write_companions(const ModelPlace& place, const SnapshotDirectory& folder) {
  write_tokenizer(place, folder);
  if (!place.huggingface.empty()) copy(kGeneration, {.huggingface = place.huggingface, .gguf = ""}, folder);
}

}  // namespace reprise
