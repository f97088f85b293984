// Reads a recipe: JSON text to plain values, each field checked by itself.
// Here because the words of the file and their defaults should stand in one place, in the order of DESIGN 9.
// It must not know what the values are used for.
#include "tools/formats/recipe.h"

#include <fnmatch.h>

#include <filesystem>
#include <limits>

#include "tools/formats/error.h"
#include "tools/formats/json_fields.h"
#include "tools/formats/json_text.h"
#include "tools/formats/output_file.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int kMaxCount = std::numeric_limits<int>::max();
constexpr uint64_t kMaxSteps = std::numeric_limits<uint32_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr FieldRange kNonNegative = {0, kInfinity};
constexpr FieldRange kPositive = {.low = 0, .high = kInfinity, .low_open = true};
constexpr FieldRange kBelowOne = {.low = 0, .high = 1, .high_open = true};

std::string absolute_path(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  return fs::absolute(fs::path(folder.empty() ? "." : folder) / path).lexically_normal().string();
}

void read_path(const JsonFields& fields, const std::string& key, const std::string& folder, std::string& target) {
  std::string path;
  fields.read(key, path);
  if (!fields.has(key)) return;
  if (path.empty()) fields.refuse(key, "must be a path, not \"\"");
  target = absolute_path(path, folder);
}

std::vector<int> read_integers(const JsonFields& fields, const std::string& key, int low, int high) {
  std::vector<int> numbers;
  for (const json& value : fields.list_at(key)) {
    numbers.push_back(static_cast<int>(
        fields.integer_in(key, value, static_cast<uint64_t>(low), static_cast<uint64_t>(high))));
  }
  return numbers;
}

ResNetModel read_resnet(const JsonFields& fields) {
  fields.allow_only({"family", "block", "units", "width", "stem", "classes", "image"});
  using M = ResNetModel;
  M model;
  fields.read_choice<M::Block>("block", model.block,
                               {{"basic", M::Block::kBasic}, {"bottleneck", M::Block::kBottleneck}});
  if (fields.has("units")) model.units = read_integers(fields, "units", 1, 100000);
  if (model.units.size() != 3 && model.units.size() != 4) {
    fields.refuse("units", "must be a list of three or four stages, not of " + std::to_string(model.units.size()));
  }
  fields.read_choice<M::Stem>("stem", model.stem, {{"cifar", M::Stem::kCifar}, {"imagenet", M::Stem::kImagenet}});
  if (model.stem == M::Stem::kImagenet) model.width = 64;
  fields.read("width", model.width, 1, 65536);
  fields.read("classes", model.classes, 2, kMaxCount);
  if (!fields.has("image")) fields.refuse("image", "missing; give [height, width, channels], for example [28, 28, 1]");
  const std::vector<int> image = read_integers(fields, "image", 1, 65536);
  if (image.size() != 3)
    fields.refuse("image", "must be [height, width, channels], not " + json_shown(fields.at("image")));
  model.image_height = image[0];
  model.image_width = image[1];
  model.image_channels = image[2];
  return model;
}

// GPT2Config answers to both names of a field.
void read_gpt2_size(const JsonFields& fields, const std::string& name, const std::string& alias, int& target) {
  int aliased = target;
  fields.read(alias, aliased, 1, kMaxCount);
  if (!fields.has(name)) target = aliased;
  fields.read(name, target, 1, kMaxCount);
  if (fields.has(alias) && aliased != target)
    fields.refuse(alias, "contradicts \"" + name + "\", its other name; give one");
}

// Variants of GPT-2's mathematics that a config can switch on: silently ignoring one would train another model.
void refuse_gpt2_variants(const JsonFields& fields) {
  const auto must_be = [&](const char* key, bool right) {
    bool value = right;
    fields.read(key, value);
    if (value != right) fields.refuse(key, std::string("is not available yet; must be ") + (right ? "true" : "false"));
  };
  must_be("scale_attn_weights", true);
  must_be("scale_attn_by_inverse_layer_idx", false);
  must_be("add_cross_attention", false);
  bool gelu_new = true;  // three names of one function
  fields.read_choice<bool>("activation_function", gelu_new,
                           {{"gelu_new", true}, {"gelu_pytorch_tanh", true}, {"gelu_fast", true}});
}

Gpt2Model read_gpt2(const JsonFields& fields) {
  Gpt2Model model;
  fields.read("vocab_size", model.vocab_size, 2, kMaxCount);
  read_gpt2_size(fields, "n_positions", "max_position_embeddings", model.n_positions);
  read_gpt2_size(fields, "n_embd", "hidden_size", model.n_embd);
  read_gpt2_size(fields, "n_layer", "num_hidden_layers", model.n_layer);
  read_gpt2_size(fields, "n_head", "num_attention_heads", model.n_head);
  if (model.n_embd % model.n_head != 0) {
    fields.refuse("n_embd", "must be a multiple of n_head (" + std::to_string(model.n_head) + "), not " +
                                std::to_string(model.n_embd));
  }
  if (fields.has_value("n_inner")) {
    fields.read("n_inner", model.n_inner, 1, kMaxCount);
  } else if (model.n_embd > kMaxCount / 4) {
    fields.refuse("n_embd",
                  "must be at most " + std::to_string(kMaxCount / 4) + ", not " + std::to_string(model.n_embd));
  } else {
    model.n_inner = 4 * model.n_embd;
  }
  refuse_gpt2_variants(fields);
  fields.read("resid_pdrop", model.resid_pdrop, kBelowOne);
  fields.read("embd_pdrop", model.embd_pdrop, kBelowOne);
  fields.read("attn_pdrop", model.attn_pdrop, kBelowOne);
  fields.read("layer_norm_epsilon", model.layer_norm_epsilon, kPositive);
  fields.read("initializer_range", model.initializer_range, kPositive);
  fields.read("tie_word_embeddings", model.tie_word_embeddings);
  return model;
}

Gpt2Model read_huggingface(const JsonFields& fields, const std::string& folder) {
  fields.allow_only({"huggingface"});
  std::string model_folder;
  read_path(fields, "huggingface", folder, model_folder);
  const std::string file = model_folder + "/config.json";
  if (!std::filesystem::is_regular_file(file)) {
    fields.refuse("huggingface", "must be a folder with a config.json; there is no " + file);
  }
  const json config = parse_json(read_file(file), file);
  const JsonFields config_fields(config, file, "");
  std::string type;
  config_fields.read("model_type", type);
  if (type != "gpt2")
    config_fields.refuse("model_type", "must be \"gpt2\", the one available, not " + json_shown(type));
  Gpt2Model model = read_gpt2(config_fields);
  model.huggingface_folder = model_folder;
  return model;
}

Model read_model(const JsonFields& fields, const std::string& folder) {
  if (fields.has("huggingface") && !fields.has("family")) return read_huggingface(fields, folder);
  if (!fields.has("family"))
    fields.refuse("family", "missing; give \"resnet\" or \"gpt2\" (or \"huggingface\": FOLDER)");
  std::string family;
  fields.read("family", family);
  if (family == "resnet") return read_resnet(fields);
  if (family == "gpt2") {
    Gpt2Model model = read_gpt2(fields);
    read_path(fields, "huggingface", folder, model.huggingface_folder);  // a canonical recipe says where its config was
    return model;
  }
  fields.refuse("family", json_shown(family) + " is not available (yet); available are \"resnet\", \"gpt2\"");
}

std::vector<double> read_channel_numbers(const JsonFields& fields, const std::string& key, const FieldRange& range) {
  if (!fields.has(key)) return {};
  if (!fields.at(key).is_array()) return {fields.number_in(key, fields.at(key), range)};
  std::vector<double> numbers;
  for (const json& value : fields.list_at(key)) numbers.push_back(fields.number_in(key, value, range));
  if (numbers.empty()) fields.refuse(key, "must be a number or a list of one number for each channel, not []");
  return numbers;
}

DataSource read_data(const JsonFields& fields, const std::string& folder) {
  fields.allow_only({"kind", "path", "eval_path", "shuffle", "mean", "std", "augment", "token_bytes"});
  using Kind = DataSource::Kind;
  DataSource data;
  if (!fields.has("kind"))
    fields.refuse("kind",
                  "missing; give \"idx\", \"image_folder\", \"tensors\", \"tokens\", \"text\" or \"synthetic\"");
  fields.read_choice<Kind>("kind", data.kind, {{"idx", Kind::kIdx}, {"image_folder", Kind::kImageFolder},
                                               {"tensors", Kind::kTensors}, {"tokens", Kind::kTokens},
                                               {"text", Kind::kText}, {"synthetic", Kind::kSynthetic}});
  read_path(fields, "path", folder, data.path);
  read_path(fields, "eval_path", folder, data.eval_path);
  if (data.path.empty() && data.kind != Kind::kSynthetic)
    fields.refuse("path", "missing; give the file or folder of the data");
  fields.read("shuffle", data.shuffle);
  data.mean = read_channel_numbers(fields, "mean", {-kInfinity, kInfinity});
  data.std = read_channel_numbers(fields, "std", kPositive);
  if (fields.has("augment")) {
    const JsonFields augment = fields.object("augment");
    augment.allow_only({"flip", "crop"});
    augment.read("flip", data.flip);
    augment.read("crop", data.crop, 0, 65536);
  }
  fields.read("token_bytes", data.token_bytes, 2, 4);
  if (data.token_bytes == 3) fields.refuse("token_bytes", "must be 2 or 4, not 3");
  return data;
}

OptimizerRecipe read_optimizer(const JsonFields& fields) {
  OptimizerRecipe optimizer;
  if (!fields.has("name")) fields.refuse("name", "missing; give \"sgd\" or \"adamw\"");
  fields.read_choice<OptimizerRecipe::Name>(
      "name", optimizer.name, {{"sgd", OptimizerRecipe::Name::kSgd}, {"adamw", OptimizerRecipe::Name::kAdamW}});
  if (optimizer.name == OptimizerRecipe::Name::kSgd) {
    fields.allow_only({"name", "lr", "momentum", "nesterov", "weight_decay", "no_decay"});
    fields.read("momentum", optimizer.momentum, kNonNegative);
    fields.read("nesterov", optimizer.nesterov);
  } else {
    fields.allow_only({"name", "lr", "betas", "eps", "weight_decay", "no_decay"});
    optimizer.weight_decay = 0.01;
    if (fields.has("betas")) {
      const json& betas = fields.list_at("betas");
      if (betas.size() != 2) fields.refuse("betas", "must be a list of two numbers, not " + json_shown(betas));
      optimizer.beta1 = fields.number_in("betas", betas[0], kBelowOne);
      optimizer.beta2 = fields.number_in("betas", betas[1], kBelowOne);
    }
    fields.read("eps", optimizer.eps, kNonNegative);
  }
  fields.read("lr", optimizer.lr, kNonNegative);
  fields.read("weight_decay", optimizer.weight_decay, kNonNegative);
  fields.read("no_decay", optimizer.no_decay);
  return optimizer;
}

LrSchedule read_lr_schedule(const JsonFields& fields) {
  fields.allow_only({"kind", "warmup_steps", "steps", "milestones", "gamma"});
  using Kind = LrSchedule::Kind;
  LrSchedule schedule;
  if (!fields.has("kind")) fields.refuse("kind", "missing; give \"constant\", \"step\" or \"cosine\"");
  fields.read_choice<Kind>("kind", schedule.kind,
                           {{"constant", Kind::kConstant}, {"step", Kind::kStep}, {"cosine", Kind::kCosine}});
  fields.read("warmup_steps", schedule.warmup_steps, 0, kMaxSteps);
  fields.read("steps", schedule.steps, 1, kMaxSteps);
  fields.read("gamma", schedule.gamma, kPositive);
  if (!fields.has("milestones")) return schedule;
  for (const json& value : fields.list_at("milestones")) {
    const uint64_t step = fields.integer_in("milestones", value, 1, kMaxSteps);
    if (!schedule.milestones.empty() && step <= schedule.milestones.back()) {
      fields.refuse("milestones",
                    "must rise; " + std::to_string(step) + " follows " + std::to_string(schedule.milestones.back()));
    }
    schedule.milestones.push_back(step);
  }
  return schedule;
}

std::optional<uint64_t> read_bytes(const JsonFields& fields, const std::string& key, const std::string& file, uint64_t least = 1) {
  if (!fields.has_value(key)) return std::nullopt;
  const json& value = fields.at(key);
  if (value.is_string()) return parse_bytes(value.get<std::string>(), file + ": " + fields.path_of(key));
  if (value.is_number()) return fields.integer_in(key, value, least, uint64_t{std::numeric_limits<int64_t>::max()});
  fields.refuse(key, "must be bytes, an integer or a text as \"512MiB\", not " + json_shown(value));
}

constexpr double kMostCost = 1e12;  // of a byte

ScheduleRecipe read_schedule(const JsonFields& recipe, const std::string& file) {
  ScheduleRecipe schedule;
  if (recipe.at("schedule").is_string()) {
    recipe.read("schedule", schedule.strategy);
    return schedule;
  }
  const JsonFields fields = recipe.object("schedule");
  fields.allow_only({"strategy", "k", "slots", "policy", "residues", "disk", "write_cost", "read_cost"});
  fields.read("strategy", schedule.strategy);
  fields.read("k", schedule.k, 1, kMaxCount);
  fields.read("slots", schedule.slots, 1, kMaxCount);
  fields.read("policy", schedule.policy);
  fields.read("residues", schedule.residues);
  schedule.disk_bytes = read_bytes(fields, "disk", file, 0).value_or(0);
  const FieldRange cost = {0, kMostCost};
  if (fields.has_value("write_cost")) schedule.write_cost = fields.number_in("write_cost", fields.at("write_cost"), cost);
  if (fields.has_value("read_cost")) schedule.read_cost = fields.number_in("read_cost", fields.at("read_cost"), cost);
  return schedule;
}

bool is_name(const std::string& name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (name.empty() || name.size() > 100 || !is_word(name[0])) return false;
  for (const char c : name) {
    if (!is_word(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

// The name becomes a folder and an identifier in messages: from any file name, something that is_name accepts.
std::string name_of_file(const std::string& file) {
  std::string name = std::filesystem::path(file).stem().string().substr(0, 100);
  for (char& c : name) {
    if (!is_name(std::string("a") + c)) c = '_';
  }
  return is_name(name) ? name : "recipe";
}

void read_training(const JsonFields& fields, const std::string& file, Recipe& recipe) {
  using Dtype = Recipe::Dtype;
  using BackendChoice = Recipe::BackendChoice;
  if (!fields.has("batch")) fields.refuse("batch", "missing; give the number of samples in one micro-batch");
  fields.read("batch", recipe.batch, 1, kMaxCount);
  fields.read("accumulate", recipe.accumulate, 1, kMaxCount);
  fields.read_choice<Dtype>("dtype", recipe.dtype, {{"f32", Dtype::kF32}, {"bf16", Dtype::kBf16}});
  if (fields.has("optimizer")) recipe.optimizer = read_optimizer(fields.object("optimizer"));
  if (fields.has("lr_schedule")) recipe.lr_schedule = read_lr_schedule(fields.object("lr_schedule"));
  if (fields.has_value("clip_norm"))
    recipe.clip_norm = fields.number_in("clip_norm", fields.at("clip_norm"), kPositive);
  fields.read("gradient_release", recipe.gradient_release);
  fields.read("freeze", recipe.freeze);
  if (fields.has_value("lora")) fields.refuse("lora", "is not available yet; leave it out");
  fields.read("evaluate_every", recipe.evaluate_every, 0, kMaxSteps);
  fields.read("steps", recipe.steps, 1, kMaxSteps);
  if (recipe.lr_schedule.steps == 0 && recipe.lr_schedule.kind == LrSchedule::Kind::kCosine) {
    recipe.lr_schedule.steps = recipe.steps;
  }
  if (fields.has("schedule")) recipe.schedule = read_schedule(fields, file);
  recipe.budget_bytes = read_bytes(fields, "budget", file);
  recipe.feature_map_budget_bytes = read_bytes(fields, "feature_map_budget", file);
  fields.read("seed", recipe.seed, 0, std::numeric_limits<uint64_t>::max());
  fields.read_choice<BackendChoice>("backend", recipe.backend, {{"cpu", BackendChoice::kCpu},
                                                                {"cuda", BackendChoice::kCuda},
                                                                {"auto", BackendChoice::kAuto}});
}

}  // namespace

Recipe parse_recipe(const std::string& text, const std::string& file, const std::string& folder) {
  const json value = parse_json(text, file);
  const JsonFields fields(value, file, "");
  fields.allow_only({"name", "model", "data", "batch", "sequence", "accumulate", "dtype", "optimizer", "lr_schedule",
                     "clip_norm", "gradient_release", "freeze", "lora", "evaluate_every", "steps", "schedule", "budget",
                     "feature_map_budget", "seed", "backend"});
  Recipe recipe;
  recipe.name = name_of_file(file);
  fields.read("name", recipe.name);
  if (!fields.has("model")) fields.refuse("model", "missing; give {\"family\": ...} or {\"huggingface\": FOLDER}");
  recipe.model = read_model(fields.object("model"), folder);
  if (fields.has("data")) recipe.data = read_data(fields.object("data"), folder);
  read_training(fields, file, recipe);
  if (const Gpt2Model* gpt2 = std::get_if<Gpt2Model>(&recipe.model)) {
    recipe.sequence = gpt2->n_positions;
    fields.read("sequence", recipe.sequence, 1, kMaxCount);
  } else if (fields.has("sequence")) {
    fields.refuse("sequence", "is for language models only; leave it out");
  }
  if (!is_name(recipe.name)) {
    fields.refuse("name", "must be 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first, not " +
                              json_shown(recipe.name));
  }
  check_recipe(recipe, file);
  return recipe;
}

Recipe read_recipe(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UserError(path + ": is a folder; give a recipe, a JSON file");
  return parse_recipe(read_file(path), path, std::filesystem::path(path).parent_path().string());
}

uint64_t parse_bytes(const std::string& text, const std::string& field) {
  const auto refuse = [&]() -> uint64_t {
    throw UserError(field +
                    ": must be bytes from 1 to 2^63 - 1, an integer or with a unit of KiB, MiB, GiB, TiB, KB, MB, GB, "
                    "TB (\"7GiB\", \"1.5GiB\"), not " +
                    json_shown(text));
  };
  constexpr size_t kMostDigits = 18;  // digits * 2^40 stays below 2^127
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, unit_at);
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at);
  const size_t point = number.find('.');
  const std::string whole = number.substr(0, point);
  const std::string fraction = point == std::string::npos ? "" : number.substr(point + 1);
  unsigned __int128 scale = 0;
  const std::pair<const char*, uint64_t> units[] = {
      {"", 1},         {"B", 1},       {"KiB", 1ull << 10}, {"MiB", 1ull << 20},    {"GiB", 1ull << 30},
      {"TiB", 1ull << 40}, {"KB", 1000}, {"MB", 1000000},     {"GB", 1000000000}, {"TB", 1000000000000}};
  for (const auto& [name, bytes] : units) {
    if (unit == name) scale = bytes;
  }
  const bool has_digits = !whole.empty() && (point == std::string::npos || !fraction.empty());
  if (scale == 0 || !has_digits || fraction.find('.') != std::string::npos) return refuse();
  if (scale == 1 && !fraction.empty()) return refuse();
  const size_t first_digit = std::min(whole.find_first_not_of('0'), whole.size());
  if (whole.size() - first_digit + fraction.size() > kMostDigits + (scale == 1 ? 1 : 0)) return refuse();
  unsigned __int128 digits = 0, divisor = 1;
  for (const char c : whole + fraction) digits = digits * 10 + static_cast<unsigned>(c - '0');
  for (size_t i = 0; i < fraction.size(); ++i) divisor *= 10;
  const unsigned __int128 bytes = digits * scale / divisor;
  if (bytes == 0 || bytes > static_cast<unsigned __int128>(std::numeric_limits<int64_t>::max())) return refuse();
  return static_cast<uint64_t>(bytes);
}

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace reprise
