// A recipe as JSON again, in one canonical form.
// The compiled program carries its recipe in itself, and equal recipes must give equal bytes there and in the manifest.
// It must not read files.
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/recipe.h"

namespace reprise {
namespace {

using nlohmann::json;

json model_json(const ResNetModel& model) {
  return {{"family", "resnet"},
          {"block", model.block == ResNetModel::Block::kBasic ? "basic" : "bottleneck"},
          {"units", model.units},
          {"width", model.width},
          {"stem", model.stem == ResNetModel::Stem::kCifar ? "cifar" : "imagenet"},
          {"classes", model.classes},
          {"image", {model.image_height, model.image_width, model.image_channels}}};
}

json model_json(const Gpt2Model& model) {
  json value = {{"family", "gpt2"},
                {"vocab_size", model.vocab_size},
                {"n_positions", model.n_positions},
                {"n_embd", model.n_embd},
                {"n_layer", model.n_layer},
                {"n_head", model.n_head},
                {"n_inner", model.n_inner},
                {"activation_function", "gelu_new"},
                {"resid_pdrop", model.resid_pdrop},
                {"embd_pdrop", model.embd_pdrop},
                {"attn_pdrop", model.attn_pdrop},
                {"layer_norm_epsilon", model.layer_norm_epsilon},
                {"initializer_range", model.initializer_range},
                {"tie_word_embeddings", model.tie_word_embeddings}};
  if (!model.huggingface_folder.empty()) value["huggingface"] = model.huggingface_folder;
  return value;
}

const char* kind_name(DataSource::Kind kind) {
  switch (kind) {
    case DataSource::Kind::kNone: return "none";
    case DataSource::Kind::kIdx: return "idx";
    case DataSource::Kind::kImageFolder: return "image_folder";
    case DataSource::Kind::kTensors: return "tensors";
    case DataSource::Kind::kTokens: return "tokens";
    case DataSource::Kind::kText: return "text";
    case DataSource::Kind::kSynthetic: return "synthetic";
  }
  return "";
}

json data_json(const DataSource& data) {
  json value = {{"kind", kind_name(data.kind)},
                {"shuffle", data.shuffle},
                {"augment", {{"flip", data.flip}, {"crop", data.crop}}},
                {"token_bytes", data.token_bytes}};
  if (!data.path.empty()) value["path"] = data.path;
  if (!data.eval_path.empty()) value["eval_path"] = data.eval_path;
  if (!data.mean.empty()) value["mean"] = data.mean;
  if (!data.std.empty()) value["std"] = data.std;
  return value;
}

json optimizer_json(const OptimizerRecipe& optimizer) {
  json value = {{"lr", optimizer.lr}, {"weight_decay", optimizer.weight_decay}, {"no_decay", optimizer.no_decay}};
  if (optimizer.name == OptimizerRecipe::Name::kSgd) {
    value.update({{"name", "sgd"}, {"momentum", optimizer.momentum}, {"nesterov", optimizer.nesterov}});
  } else {
    value.update({{"name", "adamw"}, {"betas", {optimizer.beta1, optimizer.beta2}}, {"eps", optimizer.eps}});
  }
  return value;
}

json lr_schedule_json(const LrSchedule& schedule) {
  const char* names[] = {"constant", "step", "cosine"};
  json value = {{"kind", names[static_cast<int>(schedule.kind)]},
                {"warmup_steps", schedule.warmup_steps},
                {"milestones", schedule.milestones},
                {"gamma", schedule.gamma}};
  if (schedule.steps > 0) value["steps"] = schedule.steps;
  return value;
}

json schedule_json(const ScheduleRecipe& schedule) {
  json value = {{"strategy", schedule.strategy}, {"policy", schedule.policy}, {"residues", schedule.residues}};
  if (schedule.k > 0) value["k"] = schedule.k;
  if (schedule.slots > 0) value["slots"] = schedule.slots;
  if (schedule.disk_bytes > 0) value["disk"] = schedule.disk_bytes;
  if (schedule.write_cost) value["write_cost"] = *schedule.write_cost;
  if (schedule.read_cost) value["read_cost"] = *schedule.read_cost;
  return value;
}

}  // namespace

std::string canonical_recipe(const Recipe& recipe) {
  const char* backends[] = {"cpu", "cuda", "auto"};
  json value = {{"name", recipe.name},
                {"model", std::visit([](const auto& model) { return model_json(model); }, recipe.model)},
                {"batch", recipe.batch},
                {"accumulate", recipe.accumulate},
                {"dtype", recipe.dtype == Recipe::Dtype::kF32 ? "f32" : "bf16"},
                {"optimizer", optimizer_json(recipe.optimizer)},
                {"lr_schedule", lr_schedule_json(recipe.lr_schedule)},
                {"gradient_release", recipe.gradient_release},
                {"freeze", recipe.freeze},
                {"evaluate_every", recipe.evaluate_every},
                {"schedule", schedule_json(recipe.schedule)},
                {"seed", recipe.seed},
                {"backend", backends[static_cast<int>(recipe.backend)]}};
  if (recipe.data.kind != DataSource::Kind::kNone) value["data"] = data_json(recipe.data);
  if (recipe.sequence > 0) value["sequence"] = recipe.sequence;
  if (recipe.clip_norm) value["clip_norm"] = *recipe.clip_norm;
  if (recipe.steps > 0) value["steps"] = recipe.steps;
  if (recipe.budget_bytes) value["budget"] = *recipe.budget_bytes;
  if (recipe.feature_map_budget_bytes) value["feature_map_budget"] = *recipe.feature_map_budget_bytes;
  try {
    return value.dump(2, ' ', true) + "\n";
  } catch (const json::type_error&) {
    throw UserError(recipe.name + ": the path of a folder is not UTF-8, which JSON needs; rename the folder");
  }
}

}  // namespace reprise
