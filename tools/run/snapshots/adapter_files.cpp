// See adapter_files.h.
#include "tools/run/snapshots/adapter_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/adapters/base_name.h"
#include "tools/files/adapters/gguf_adapter.h"
#include "tools/files/adapters/peft_adapter.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/io/snapshot_directory.h"
#include "tools/files/weights/gguf_names.h"
#include "tools/files/weights/gguf_weights.h"
#include "tools/files/weights/tied_head.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/snapshots/companion_files.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {

using nlohmann::json;

namespace {

// A temporary file with the adapter under State's names; PEFT's files are made from it.
constexpr const char* kState = "state.safetensors";

void require_same_layer(const AdapterLayer& layer, const LoraSettings& settings, const LoraSettings& recipe,
                        const std::string& config) {
  const auto refuse = [&](const std::string& is, const std::string& must_be) {
    throw UserError(config + ": " + is + "; the recipe's lora has " + must_be + " for " + json_shown(layer.name));
  };
  const auto key = [&](const auto& patterns, const char* of_all, const char* of_some) {
    return patterns.count(layer.name) > 0 ? of_some : of_all;
  };
  const int is = settings.rank_of(layer.name), must_be = recipe.rank_of(layer.name);
  if (is != must_be)
    refuse(key(settings.rank_pattern, "r", "rank_pattern") + (": is " + std::to_string(is)), std::to_string(must_be));
  if (settings.scale_of(layer.name) == recipe.scale_of(layer.name)) return;
  const auto words = [&](const LoraSettings& s) {
    return (s.rslora ? "rslora, alpha " : "alpha ") + nlohmann::json(s.alpha_of(layer.name)).dump();
  };
  refuse(key(settings.alpha_pattern, "lora_alpha", "alpha_pattern") + (": is another scale: " + words(settings)),
         words(recipe));
}

void require_same_kind(const LoraSettings& settings, const LoraSettings& recipe, const std::string& config) {
  if (settings.dora == recipe.dora) return;
  throw UserError(config + ": use_dora: is " + (settings.dora ? "true" : "false") +
                  "; the recipe's lora has \"dora\" " + (recipe.dora ? "true" : "false"));
}

bool is_tied(const Recipe& recipe) { return model_json(recipe.model).value("tie_word_embeddings", false); }

// Checks an adapter of a model whose head is tied to its embeddings. PEFT's files have two tensors
// for the one table in State. Throws UserError if the adapter has only one of the two, or if they
// differ.
void require_one_table(const Adapter& adapter) {
  const std::string table = find_embeddings(*adapter.weights);
  const bool has_head = adapter.weights->find(kHead) != nullptr;
  if (!has_head && table.empty()) return;
  const std::string refusal = adapter.weights->path() + ": tensor " + json_shown(has_head ? kHead : table) + ": ";
  if (!has_head || table.empty())
    throw UserError(refusal +
                    "was trained without the other of head and embeddings, which the recipe's model ties: set "
                    "tie_word_embeddings to false");
  if (has_other_head(*adapter.weights))
    throw UserError(
        refusal + "differs from the embeddings, which the recipe's model ties to it: set tie_word_embeddings to false");
}

// Throws UserError if the adapter has a tensor that the recipe does not train.
void require_trained(const Trainer& trainer, const Adapter& adapter, bool tied) {
  for (const std::string& name : adapter.weights->names()) {
    const auto is_it = [&](const StateTensor& state) {
      return state.name == name && belongs(*trainer.plan, state, StatePart::kSaved);
    };
    if (std::any_of(trainer.plan->state.begin(), trainer.plan->state.end(), is_it) || (tied && name == kHead)) continue;
    throw UserError(adapter.weights->path() + ": tensor " + json_shown(name) +
                    (is_adapter_tensor(name)
                         ? ": the recipe's lora has no adapter there: it is of another model, or of other targets"
                         : ": was trained whole, which the recipe's lora.modules_to_save does not name"));
  }
}

// Opens an adapter file of llama.cpp. Sets `said` to a description of its conversion; leaves it
// unchanged if there was none.
Adapter open_llama_cpps(const Recipe& recipe, const std::string& path, std::string& said) {
  const json config = model_config(recipe.model);
  GgufAdapter opened = open_gguf_adapter(path, config.value("head_dim", uint64_t{0}),
                                         describe_model(recipe.model).input_major, *recipe.lora);
  const std::string architecture = gguf_architecture_of(config.at("model_type"));
  if (opened.architecture != architecture) {
    throw UserError(path + ": general.architecture: is " + json_shown(opened.architecture) +
                    "; the recipe's model is " + json_shown(architecture));
  }
  if (opened.unfolded.layers > 0) {
    said = "B of " + std::to_string(opened.unfolded.layers) +
           " layers multiplied for the recipe's alpha, which the file has not" +
           (opened.unfolded.rounded > 0 ? " (of " + std::to_string(opened.unfolded.rounded) + " rounded once to f32)"
                                        : "");
  }
  return std::move(opened.adapter);
}

}  // namespace

Adapter find_adapter(const Recipe& recipe, std::shared_ptr<const WeightSource> weights) {
  Adapter adapter = find_adapter(std::move(weights), *recipe.lora, describe_model(recipe.model).input_major);
  adapter.is_tied = is_tied(recipe);
  adapter.is_of_language = describe_model(recipe.model).input == ModelDescription::Input::kTokens;
  for (const auto& [name, form] : stored_forms(recipe)) {
    for (AdapterLayer& layer : adapter.layers) {
      if (form.before == std::vector<std::string>{layer.weight()}) layer.own_weight = name;
    }
  }
  return adapter;
}

FolderKind adapter_folder(const Recipe& recipe) {
  std::vector<std::string> names = peft_files();
  names.push_back(kState);
  if (!recipe.place.new_tokens.empty()) names.insert(names.end(), tokenizer_files().begin(), tokenizer_files().end());
  const auto is_own = [](const std::string& folder) { return is_written_here(folder + "/" + peft_files()[1]); };
  return {"adapter", names, is_own, "--adapter"};
}

void write_adapter(const Adapter& adapter, const Recipe& recipe, const SnapshotDirectory& folder) {
  write_peft_adapter(adapter, base_name_of(recipe.place).name,
                     {folder.file(peft_files()[0]), folder.file(peft_files()[1])});
  if (!recipe.place.new_tokens.empty()) write_tokenizer(recipe.place, folder);
}

std::vector<std::string> adapter_lines(const Recipe& recipe, const std::string& folder) {
  if (recipe.place.path().empty() || describe_model(recipe.model).input != ModelDescription::Input::kTokens) return {};
  std::vector<std::string> lines;
  try {
    lines.push_back(base_line(recipe.place, folder));
    const std::optional<AnswerEnds> ends = answer_ends_of(recipe.place);
    if (!ends || !ends->of_reply || stops_at(ModelFiles::open(recipe.place), *ends->of_reply)) return lines;
    lines.push_back("ends: replies end with token " + std::to_string(*ends->of_reply) +
                    ", at which the base's own files do not stop: give generate() eos_token_id=" +
                    nlohmann::json(ends->tokens).dump());
  } catch (const UserError&) {  // the model's files are gone; the adapter is already written
  }
  return lines;
}

void save_adapter(const Trainer& trainer, const Recipe& recipe, SnapshotDirectory& folder) {
  folder.begin();
  try {
    const std::string state = folder.file(kState);
    write_state(trainer, state, StatePart::kSaved, {}, stored_forms(recipe));
    write_adapter(find_adapter(recipe, open_weights(state)), recipe, folder);
    std::filesystem::remove(state);
    folder.commit();
  } catch (...) {
    folder.abandon();
    throw;
  }
}

std::string load_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& path) {
  if (!recipe.lora) throw UserError(recipe.name + ": --init-adapter: the recipe trains no adapter; give it \"lora\"");
  if (is_gguf(path) && recipe.lora->dora)
    throw UserError(path + ": holds no DoRA, which the recipe's lora is: a GGUF adapter has no magnitudes");
  std::string said;
  const Adapter adapter = is_gguf(path) ? open_llama_cpps(recipe, path, said) : open_peft_adapter(path);
  const std::string config = is_gguf(path) ? path : path + "/adapter_config.json";
  require_same_kind(adapter.settings, *recipe.lora, config);
  for (const AdapterLayer& layer : adapter.layers) require_same_layer(layer, adapter.settings, *recipe.lora, config);
  const bool tied = is_tied(recipe);
  if (tied) require_one_table(adapter);
  require_trained(trainer, adapter, tied);
  read_state(trainer, *as_graph_has(adapter.weights, stored_forms(recipe)), StatePart::kSaved);
  return said;
}

}  // namespace reprise
