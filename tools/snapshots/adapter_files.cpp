// See adapter_files.h.
#include "tools/snapshots/adapter_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/snapshots/state_tensors.h"
#include "tools/weights/peft_adapter.h"

namespace reprise {
namespace {

constexpr const char* kState = "state.safetensors";  // the adapters under the state's names, while PEFT's files are made of it

void require_same_layer(const AdapterLayer& layer, const LoraSettings& settings, const LoraSettings& recipe, const std::string& folder) {
  const auto refuse = [&](const std::string& is, const std::string& must_be) {
    throw UserError(folder + "/adapter_config.json: " + is + "; the recipe's lora has " + must_be + " for " + json_shown(layer.name));
  };
  const auto key = [&](const auto& patterns, const char* of_all, const char* of_some) { return patterns.count(layer.name) > 0 ? of_some : of_all; };
  const int is = settings.rank_of(layer.name), must_be = recipe.rank_of(layer.name);
  if (is != must_be) refuse(key(settings.rank_pattern, "r", "rank_pattern") + (": is " + std::to_string(is)), std::to_string(must_be));
  if (settings.scale_of(layer.name) == recipe.scale_of(layer.name)) return;
  const auto words = [&](const LoraSettings& s) { return (s.rslora ? "rslora, alpha " : "alpha ") + nlohmann::json(s.alpha_of(layer.name)).dump(); };
  refuse(key(settings.alpha_pattern, "lora_alpha", "alpha_pattern") + (": is another scale: " + words(settings)), words(recipe));
}

}  // namespace

void save_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& folder) {
  std::vector<std::string> names = peft_files();
  names.push_back(kState);
  SnapshotDirectory directory(folder, names);
  directory.begin();
  const std::string state = directory.file(kState);
  write_state(trainer, state, StatePart::kSaved, {});
  const Adapter adapter = find_adapter(open_weights(state), *recipe.lora, describe_model(recipe.model).input_major);
  write_peft_adapter(adapter, recipe.place.path(), {directory.file(peft_files()[0]), directory.file(peft_files()[1])});
  std::filesystem::remove(state);
  directory.commit();
}

void load_adapter(const Trainer& trainer, const Recipe& recipe, const std::string& folder) {
  if (!recipe.lora) throw UserError(recipe.name + ": --init-adapter: the recipe trains no adapter; give it \"lora\"");
  const Adapter adapter = open_peft_adapter(folder);
  for (const AdapterLayer& layer : adapter.layers) require_same_layer(layer, adapter.settings, *recipe.lora, folder);
  for (const std::string& name : adapter.weights->names()) {
    const auto is_it = [&](const StateTensor& state) { return state.name == name; };
    if (std::any_of(trainer.plan->state.begin(), trainer.plan->state.end(), is_it)) continue;
    throw UserError(adapter.weights->path() + ": tensor " + json_shown(name) + ": the recipe's lora has no adapter there: it is of another model, or of other targets");
  }
  read_state(trainer, *adapter.weights, StatePart::kSaved);
}

}  // namespace reprise
