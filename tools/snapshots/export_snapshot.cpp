// See export_snapshot.h.
#include "tools/snapshots/export_snapshot.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/output_file.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/formats/text.h"
#include "tools/snapshots/adapter_files.h"
#include "tools/snapshots/snapshot.h"
#include "tools/weights/export_model.h"
#include "tools/weights/gguf_weights.h"
#include "tools/weights/merged_weights.h"
#include "tools/weights/model_files.h"
#include "tools/weights/peft_adapter.h"
#include "tools/weights/tokenizer_texts.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// What a folder of Hugging Face has beside config.json and the weights.
const std::vector<std::string>& companion_files() {
  static const std::vector<std::string> kNames = {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                                  "added_tokens.json",      "vocab.json",     "merges.txt",            "tokenizer.model",
                                                  "chat_template.jinja"};
  return kNames;
}

std::vector<std::string> merged_files() {
  std::vector<std::string> names = companion_files();
  names.insert(names.end(), {"config.json", "model.safetensors"});
  return names;
}

// Runs `write(folder)` and puts what it wrote in the folder's place.
template <typename Write>
void write_folder(const std::string& path, const std::vector<std::string>& files, const Write& write) {
  SnapshotDirectory folder(path, files);
  folder.begin();
  write(folder);
  folder.commit();
}

// The same of one file of llama.cpp: `write(path)`. What is no regular file, as /dev/stdout, is written in place. An export of before is
// replaced, and no other file: an adapter takes the place of an adapter, a model that of a GGUF file.
template <typename Write>
void write_gguf(const std::string& path, const char* type, const Write& write) {
  if (fs::exists(path) && !fs::is_regular_file(path)) return write(path);
  if (fs::exists(path) && (!is_gguf(path) || GgufFile(path).text("general.type").value_or("model") != type)) {
    throw UserError(path + ": is there, and no " + type + " in GGUF: it would be lost; give another name");
  }
  const std::string fresh = temporary_beside(path);
  write(fresh);
  std::error_code error;
  fs::rename(fresh, path, error);
  if (!error) return;
  fs::remove(fresh);
  throw UserError(path + ": cannot be put in place: " + error.message());
}

struct Snapshot {
  const Recipe& recipe;  // that was trained
  const std::string& folder;
  json config;  // the model's, as a snapshot has it
  std::shared_ptr<const WeightSource> weights;  // of the snapshot: of a training of adapters these alone

  Adapter adapter() const {
    if (!recipe.lora) throw UserError(recipe.name + ": lora: missing; the recipe trains no adapter: export --merged or --merged-gguf");
    return find_adapter(recipe, weights);
  }
  std::shared_ptr<const WeightSource> merged() const { return recipe.lora ? merge_adapter(open_base(), adapter()) : weights; }

 private:
  // The weights beside which the adapter was trained: the same bytes still.
  std::shared_ptr<const WeightSource> open_base() const {
    const std::optional<BaseWeights> base = read_facts(folder).base;
    if (!base || !recipe.init.skip.empty()) {
      throw UserError(folder + ": the adapter was trained beside weights that no file has whole; export --adapter or --adapter-gguf");
    }
    std::shared_ptr<const WeightSource> weights = open_weights(find_base(*base, recipe, folder));
    require_same_base(sum_base(*weights), *base, folder);
    return weights;
  }
};

// The snapshot's config.json, beside what else the model's own files say, such as the ids of its special tokens; with the type of the
// weights that stand beside it, under its newer and its older name.
json published_config(const Snapshot& snapshot, BlockType type) {
  const std::string base = snapshot.recipe.place.path();
  json config = base.empty() ? json::object() : ModelFiles::open(base).config();
  config.update(snapshot.config);
  config.erase("quantization_config");
  config["dtype"] = type == BlockType::kF16 ? "float16" : type == BlockType::kBf16 ? "bfloat16" : "float32";
  config["torch_dtype"] = config["dtype"];
  return config;
}

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

void copy_companions(const Recipe& recipe, const SnapshotDirectory& folder) {
  const std::string path = recipe.place.path();
  if (path.empty()) return;
  if (recipe.place.gguf.empty()) {
    for (const std::string& name : companion_files()) {
      if (!fs::is_regular_file(path + "/" + name)) continue;
      const std::string text = read_file(path + "/" + name);
      write_file(folder.file(name), name == "tokenizer_config.json" ? tokenizer_config_for_both(text, path + "/" + name) : text);
    }
    return;
  }
  if (GgufFile(path).find_value("tokenizer.ggml.model") == nullptr) return;  // a model without a tokenizer
  const TokenizerTexts texts = tokenizer_texts(read_tokenizer_gguf(path), ModelFiles::open(path).chat_template());
  write_file(folder.file("tokenizer.json"), texts.tokenizer);
  write_file(folder.file("tokenizer_config.json"), texts.config);
}

// "adapter of 4 layers, rank 2 to 8"
std::string adapter_text(const Adapter& adapter) {
  const auto [least, most] = std::minmax_element(adapter.layers.begin(), adapter.layers.end(), [](const AdapterLayer& a, const AdapterLayer& b) { return a.rank < b.rank; });
  return "adapter of " + std::to_string(adapter.layers.size()) + " layers, rank " + std::to_string(least->rank) +
         (least->rank == most->rank ? "" : " to " + std::to_string(most->rank)) +
         (adapter.saved.empty() ? "" : ", and " + std::to_string(adapter.saved.size()) + (adapter.saved.size() == 1 ? " whole tensor" : " whole tensors"));
}

// Of an adapter in GGUF: what its one alpha cannot say.
std::string folded_text(const FoldedScales& folded) {
  if (folded.layers == 0) return "";
  return "; B of " + std::to_string(folded.layers) + " holds a factor, because a GGUF adapter has one alpha" +
         (folded.rounded == 0 ? ", exactly" : " (" + std::to_string(folded.rounded) + " of them rounded once to F32, by at most 2^-24 of each number)");
}

std::string export_adapter(const Snapshot& snapshot, const ExportRequest& request) {
  const Adapter adapter = snapshot.adapter();
  const std::string base = snapshot.recipe.place.path();
  write_folder(request.to, peft_files(), [&](const SnapshotDirectory& folder) {
    write_peft_adapter(adapter, base, {folder.file(peft_files()[0]), folder.file(peft_files()[1])});
  });
  return adapter_text(adapter);
}

std::string export_adapter_gguf(const Snapshot& snapshot, const ExportRequest& request) {
  const Adapter adapter = snapshot.adapter();
  const std::string architecture = snapshot.config.at("model_type");
  const uint64_t head = snapshot.config.value("head_dim", uint64_t{0});
  FoldedScales folded;
  write_gguf(request.to, "adapter", [&](const std::string& to) { folded = write_gguf_adapter(adapter, architecture, head, to); });
  return adapter_text(adapter) + folded_text(folded);
}

std::string export_merged(const Snapshot& snapshot, const ExportRequest& request) {
  if (request.type == BlockType::kQ8_0) throw UserError("--type: \"q8_0\" is for --merged-gguf; give f32, f16 or bf16", UserError::kUsage);
  const std::shared_ptr<const WeightSource> weights = snapshot.merged();
  const json config = published_config(snapshot, request.type);
  write_folder(request.to, merged_files(), [&](const SnapshotDirectory& folder) {
    write_safetensors_model(*weights, request.type, folder.file("model.safetensors"));
    write_file(folder.file("config.json"), config.dump(2) + "\n");
    copy_companions(snapshot.recipe, folder);
  });
  return std::string("model of ") + block_layout(request.type).name + (snapshot.recipe.lora ? ", the adapter merged" : "");
}

std::string export_merged_gguf(const Snapshot& snapshot, const ExportRequest& request) {
  const std::string base = snapshot.recipe.place.gguf;
  if (base.empty()) {
    throw UserError(snapshot.recipe.name + ": model: --merged-gguf copies tokenizer and settings from the GGUF file that the recipe names, and it names none: " +
                    "export --merged, or --adapter-gguf");
  }
  require_other_file(request.to, base);
  const GgufFile like(base);
  const std::shared_ptr<const WeightSource> weights = snapshot.merged();
  write_gguf(request.to, "model", [&](const std::string& to) { write_gguf_model(*weights, like, request.type, to); });
  return std::string("model of ") + block_layout(request.type).name + (snapshot.recipe.lora ? ", the adapter merged" : "");
}

}  // namespace

std::string export_snapshot(const Recipe& recipe, const ExportRequest& request) {
  std::vector<std::string> warnings;
  const Recipe trained = trained_recipe(recipe, request.snapshot, warnings);
  for (const std::string& warning : warnings) std::cerr << "warning: " << warning << "\n";
  if (request.form == ExportForm::kAdapter || request.form == ExportForm::kMerged) {
    const std::optional<BaseWeights> base = read_facts(request.snapshot).base;
    const std::string beside = base ? fs::path(base->path).parent_path().string() : "";
    require_replaceable(request.to, {request.snapshot, recipe.place.huggingface, trained.place.huggingface, beside});
  }
  const Snapshot snapshot = {trained, request.snapshot, model_config(trained.model), open_weights(request.snapshot + "/model.safetensors")};
  const auto write = [&] {
    switch (request.form) {
      case ExportForm::kAdapter: return export_adapter(snapshot, request);
      case ExportForm::kAdapterGguf: return export_adapter_gguf(snapshot, request);
      case ExportForm::kMerged: return export_merged(snapshot, request);
      default: return export_merged_gguf(snapshot, request);
    }
  };
  return request.to + ": " + write();
}

}  // namespace reprise
