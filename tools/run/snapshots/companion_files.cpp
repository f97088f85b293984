// See companion_files.h.
#include "tools/run/snapshots/companion_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/weights/tokenizer_texts.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char *kGeneration = "generation_config.json", *kEosIds = "eos_token_id";

// Returns a tokenizer_config.json that transformers 4 and 5 can read. Version 5 names a class that
// version 4 does not have, and writes a list under a key that is an object in version 4.
std::string tokenizer_config_for_both(const std::string& text, const std::string& file) {
  json config = parse_json(text, file);
  if (!config.is_object()) return text;
  const bool is_newer = config.value("tokenizer_class", json()) == "TokenizersBackend",
             lists = config.contains("extra_special_tokens") && config["extra_special_tokens"].is_array();
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
  std::error_code ignored;
  // If there are several templates, all of them are written into tokenizer_config.json.
  const bool has_more = fs::is_directory(place.huggingface + "/" + kMoreTemplates, ignored);
  if (has_more && name == "chat_template.jinja") return;
  std::string text = read_file(from);
  if (has_more && name == "tokenizer_config.json") {
    json config = parse_json(text, from);
    config["chat_template"] = chat_template_field(ModelFiles::open(place).chat_templates());
    text = config.dump(2) + "\n";
  }
  if (!place.new_tokens.empty())
    text = with_new_tokens(name, text, from, ModelFiles::open(place).tokenizer(), place.new_tokens);
  write_file(folder.file(name), name == "tokenizer_config.json" ? tokenizer_config_for_both(text, from) : text);
}

// Writes the folder's generation_config.json with additional end tokens. If there is none, writes
// one with the tokens that begin, end and pad a text.
void write_generation_config(const ModelPlace& place, const std::optional<AnswerEnds>& ends,
                             const SnapshotDirectory& folder) {
  const std::string from = place.huggingface + "/" + kGeneration;
  const bool is_there = !place.huggingface.empty() && fs::is_regular_file(from);
  const std::string text = is_there ? read_file(from) : "{}";
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  json ids;
  if (ends) {
    config = parse_ordered_json(text, from);
    if (!config.is_object()) throw UserError(from + ": must be an object");
    ids = eos_ids_with(parse_json(text, from), *ends);
  }
  if (ids.is_null() || (is_there && json(config.value(kEosIds, nlohmann::ordered_json())) == ids)) {
    if (is_there) write_file(folder.file(kGeneration), text);
    return;
  }
  if (!is_there) {
    const TokenizerFile tokenizer = ModelFiles::open(place).tokenizer();
    if (tokenizer.bos) config["bos_token_id"] = *tokenizer.bos;
    if (tokenizer.pad) config["pad_token_id"] = *tokenizer.pad;
  }
  config[kEosIds] = ids;
  write_file(folder.file(kGeneration), config.dump(2) + "\n");
}

}  // namespace

const std::vector<std::string>& tokenizer_files() {
  static const std::vector<std::string> kNames = {
      "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
      "merges.txt",     "tokenizer.model",       "chat_template.jinja"};
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

json with_special_ids(json config, const ModelPlace& place) {
  if (!config.contains("vocab_size") || !config.contains("model_type")) return config;
  json published;
  std::error_code ignored;
  if (!place.path().empty() && fs::exists(place.path(), ignored)) {
    try {
      published = ModelFiles::open(place.path()).config();
    } catch (const UserError&) {  // if the file is missing, there are no ids
    }
  }
  for (const char* key : {"bos_token_id", kEosIds, "pad_token_id"}) {
    if (published.is_object() && published.contains(key)) {
      config[key] = published[key];
    } else if (place.huggingface.empty()) {
      config[key] = nullptr;
    }
  }
  return config;
}

std::optional<AnswerEnds> answer_ends_of(const ModelPlace& place) {
  if (place.path().empty() || !ModelFiles::open(place).has_tokenizer()) return std::nullopt;
  try {
    return find_answer_ends(ModelFiles::open(place));
  } catch (const UserError&) {  // this tokenizer cannot be read and is only copied
    return std::nullopt;
  }
}

void write_tokenizer(const ModelPlace& place, const SnapshotDirectory& folder) {
  if (place.path().empty()) return;
  if (place.gguf.empty()) {
    for (const std::string& name : tokenizer_files()) copy(name, place, folder);
    return;
  }
  const ModelFiles files = ModelFiles::open(place);
  if (!files.has_tokenizer()) return;
  const TokenizerTexts texts = tokenizer_texts(files.tokenizer(), files.chat_templates());
  write_file(folder.file("tokenizer.json"), texts.tokenizer);
  write_file(folder.file("tokenizer_config.json"), texts.config);
}

void write_companions(const ModelPlace& place, const std::optional<AnswerEnds>& ends, const SnapshotDirectory& folder) {
  write_tokenizer(place, folder);
  write_generation_config(place, ends, folder);
}

}  // namespace reprise
