// The files of a snapshot: model.safetensors, optimizer.safetensors, config.json (the model), training.json (step, formats).
// Weights in files have other frameworks' names and layouts; the rest is ours.
#include "tools/training/snapshot.h"

#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/training/weights.h"

namespace reprise {

using nlohmann::json;

const std::vector<std::string>& snapshot_files() {
  static const std::vector<std::string> kFiles = {"config.json", "model.safetensors", "optimizer.safetensors", "training.json"};
  return kFiles;
}

void save_snapshot(const Trainer& trainer, const Recipe& recipe, const std::string& folder) {
  const json canonical = json::parse(canonical_recipe(recipe));
  const json training = {{"format", kSnapshotFormat}, {"plan_format", kPlanFormat}, {"step", trainer.step},
                         {"kernel_set", trainer.backend->kernel_set}, {"backend", trainer.backend->rules->name}, {"recipe", canonical}};
  SnapshotDirectory snapshot(folder);
  write_state(trainer, snapshot.file("model.safetensors"), StatePart::kModel, {{"format", "pt"}});
  write_state(trainer, snapshot.file("optimizer.safetensors"), StatePart::kOptimizer, {});
  write_file(snapshot.file("config.json"), model_config(recipe.model).dump(1) + "\n");
  write_file(snapshot.file("training.json"), training.dump(1) + "\n");
  snapshot.commit();
}

namespace {

json read_training_file(const std::string& path) {
  const json training = json::parse(read_file(path), nullptr, false);
  if (!training.is_object()) throw UserError(path + ": must be the JSON object that --save wrote");
  const auto require = [&](const char* field, bool right, const std::string& wanted) {
    if (!right) throw UserError(path + ": " + field + ": must be " + wanted);
  };
  const auto field = [&training](const char* key) { return training.contains(key) ? training[key] : json(); };
  require("format", field("format") == kSnapshotFormat, std::to_string(kSnapshotFormat) + ", the only one this program reads");
  require("step", field("step").is_number_unsigned(), "the number of steps done");
  require("kernel_set", field("kernel_set").is_string(), "the name of the kernels that it was trained with");
  require("recipe", field("recipe").is_object() && field("recipe").contains("model"), "the recipe that it was trained from");
  return training;
}

// The model's fields, without where it came from.
json model_of(const json& recipe) {
  json model = recipe.at("model");
  if (model.is_object()) model.erase("huggingface");
  return model;
}

// The first difference that makes the run another one than an uninterrupted run would be; "" for none.
std::string difference(const json& training, const json& recipe, const std::string& kernel_set) {
  const std::string theirs = training.at("kernel_set").get<std::string>();
  if (theirs != kernel_set) {
    return "saved with kernel set \"" + theirs + "\", this machine uses \"" + kernel_set +
           "\": training goes on, but its bits may differ from an uninterrupted run";
  }
  for (const char* key : {"data", "batch", "accumulate", "seed", "optimizer", "lr_schedule", "sequence", "clip_norm", "freeze"}) {
    if (training.at("recipe").value(key, json()) != recipe.value(key, json())) {
      return std::string("saved from a recipe with another \"") + key + "\": training goes on with this recipe's";
    }
  }
  return "";
}

}  // namespace

std::string resume_snapshot(Trainer& trainer, const Recipe& recipe, const std::string& folder) {
  recover_snapshot(folder);
  const json training = read_training_file(folder + "/training.json");
  const json ours = json::parse(canonical_recipe(recipe));
  if (model_of(training.at("recipe")) != model_of(ours)) {
    throw UserError(folder + "/training.json: recipe.model: the snapshot is of another model; resume with the recipe it was saved from");
  }
  const SafetensorsFile model(folder + "/model.safetensors"), optimizer(folder + "/optimizer.safetensors");
  read_state(trainer, model, StatePart::kModel);
  read_state(trainer, optimizer, StatePart::kOptimizer);
  trainer.step = training["step"].get<uint64_t>();
  const std::string warning = difference(training, ours, trainer.backend->kernel_set);
  return warning.empty() ? "" : folder + ": " + warning;
}

}  // namespace reprise
