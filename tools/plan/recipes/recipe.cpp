// The recipe as a whole. Its outermost keys are read, checked and written here, and each section's
// keys in the section's file.
#include "tools/plan/recipes/recipe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/model_files.h"
#include "tools/plan/recipes/sections.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr Word<Recipe::Dtype> kDtypes[] = {{"f32", Recipe::Dtype::kF32}, {"bf16", Recipe::Dtype::kBf16}};
constexpr Word<Recipe::BackendChoice> kBackends[] = {{"cpu", Recipe::BackendChoice::kCpu},
                                                     {"cuda", Recipe::BackendChoice::kCuda},
                                                     {"auto", Recipe::BackendChoice::kAuto}};
constexpr const char* kRandom = "random";
constexpr Word<Recipe::CoreSize> kCores[] = {{"small", Recipe::CoreSize::kSmall}, {"large", Recipe::CoreSize::kLarge}};
constexpr Word<Recipe::CardSize> kCards[] = {{"small", Recipe::CardSize::kSmall}, {"large", Recipe::CardSize::kLarge}};
constexpr Word<Recipe::Math> kMaths[] = {{"f32", Recipe::Math::kF32},
                                         {"tf32", Recipe::Math::kTf32},
                                         {"bf16x3", Recipe::Math::kBf16x3}};

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

// Returns a name for the recipe that is_name() accepts, from any file name. The name becomes a
// folder, and an identifier in messages.
std::string name_of_file(const std::string& file) {
  std::string name = std::filesystem::path(file).stem().string().substr(0, 100);
  for (char& c : name) {
    if (!is_name(std::string("a") + c)) c = '_';
  }
  return is_name(name) ? name : "recipe";
}

void read_batch(const JsonFields& fields, Recipe& recipe) {
  fields.require("batch", "give the number of samples in one micro-batch");
  fields.read("batch", recipe.batch, 1, kMaxCount, {"The size of one micro-batch", "samples"});
  recipe.sequence = describe_model(recipe.model).longest_sequence;
  if (recipe.sequence == 0 && fields.has("sequence"))
    fields.refuse("sequence", "is for language models only; leave it out");
  fields.read("sequence", recipe.sequence, 1, kMaxCount,
              {"The length of one sample; of language models only", "tokens", "the model's longest"});
  fields.read("accumulate", recipe.accumulate, 1, kMaxCount, {"What goes into one step", "micro-batches"});
  fields.read_choice("dtype", recipe.dtype, kDtypes, {"How activations and their gradients are stored"});
}

InitialWeights read_init(const JsonFields& recipe, const std::string& folder) {
  InitialWeights init;
  recipe.note(
      "init", [] { return either_form(word_form({kRandom}), object_form()); }, [] { return json(); },
      {"What the training starts from; \"random\": weights drawn from the seed, although the model names a folder or a "
       "file",
       "", "the model's folder or file, or the seed"});
  if (!recipe.has("init")) return init;
  if (recipe.at("init").is_string()) {
    recipe.require_one_of("init", {kRandom});
    init.random = true;
    return init;
  }
  const JsonFields fields = recipe.object("init");
  fields.allow_only({"from", "skip", "allow_missing"});
  fields.read_path("from", folder, init.from,
                   {"A file of weights, safetensors", "", "the model's folder, or the seed"});
  fields.read("skip", init.skip, {"Patterns of tensors that keep their initial values, as of a new head"});
  fields.read("allow_missing", init.allow_missing, {"Whether tensors that the file has not keep theirs too"});
  if (init.from.empty() && !(init == InitialWeights()))
    fields.refuse("from", "missing; give the file of weights whose tensors are skipped or missing");
  return init;
}

EarlyStopping read_early_stopping(const JsonFields& fields) {
  EarlyStopping stopping;
  fields.allow_only({"patience"});
  fields.require("patience", "give the number of evaluations without gain that end the training");
  fields.read("patience", stopping.patience, 1, kMaxSteps,
              {"How many in turn may have no smaller loss than the best before them", "evaluations"});
  return stopping;
}

constexpr Word<bool> kOrders[] = {{"flat", false}, {"two-level", true}};  // values of `two_levels`

ParallelRecipe read_parallel(const JsonFields& fields) {
  ParallelRecipe parallel;
  fields.allow_only({"ranks", "order", "shard_optimizer", "shard_weights", "timeout"});
  fields.require("ranks", "give the number of processes that take a step together");
  fields.read("ranks", parallel.ranks, 1, kMaxRanks,
              {"How many processes take a step together, each on its own micro-batches", "processes"});
  fields.read_choice("order", parallel.two_levels, kOrders,
                     {"In which order gradients are added: that of all micro-batches, or each process's own first, "
                      "with less over the network"});
  fields.read(
      "shard_optimizer", parallel.shard_optimizer,
      {"Each process keeps the optimizer's moments of a part of the parameters, updates these, and sends them to all"});
  fields.read("shard_weights", parallel.shard_weights,
              {"Each process holds a part of the weights that weights.stream names, and gets the others' parts from "
               "them ahead of their use"});
  fields.read("timeout", parallel.timeout, {1, 86400},
              {"How long a process waits for another before that counts as lost", "seconds", "60"});
  return parallel;
}

void read_training(const JsonFields& fields, Recipe& recipe) {
  if (fields.has("optimizer"))
    recipe.optimizer =
        read_optimizer(fields.object("optimizer", {"What updates the weights", "", "sgd with its defaults"}));
  if (fields.has("lr_schedule"))
    recipe.lr_schedule = read_lr_schedule(
        fields.object("lr_schedule", {"What the learning rate is multiplied by, step after step", "", "constant"}));
  if (fields.has_value("loss"))
    recipe.loss = read_loss(fields.object("loss", {"How pairs of answers are judged, for data of kind \"preferences\"",
                                                   "", "none: each label is learned"}));
  fields.read("clip_norm", recipe.clip_norm, kPositive,
              {"The largest norm of all gradients together; they are scaled down to it", "", "none"});
  recipe.gradient_release = recipe.optimizer.update == Op::kAdafactor && recipe.optimizer.small;
  fields.read("gradient_release", recipe.gradient_release,
              {"Updates each weight after its gradient's last write; not with clip_norm or accumulate"});
  fields.read("freeze", recipe.freeze,
              {"Patterns of the parameters that are not trained; `reprise parameters` lists the names. A batch-norm "
               "whose weight is one normalises by its running statistics"});
  if (fields.has("weights"))
    recipe.weights = read_weights(
        fields.object("weights", {"How what is not trained lies in memory", "", "as the model's file stores it"}));
  if (fields.has("trained"))
    recipe.trained = read_trained(fields.object("trained", {"How what is trained lies in memory", "", "as f32"}));
  if (fields.has_value("lora"))
    recipe.lora = read_lora(
        fields.object("lora", {"Trains low-rank adapters beside the model, whose own parameters stay as they are", "",
                               "none"}));
  fields.read("evaluate_every", recipe.evaluate_every, 0, kMaxSteps,
              {"How often the evaluation set is gone through, and once at the end; 0: not at all", "steps",
               "once, at the end; synthetic data are not evaluated unasked"});
  fields.read("evaluate_batches", recipe.evaluate_batches, 1, kMaxSteps,
              {"How much of the evaluation set is gone through at most", "micro-batches", "the whole set"});
  fields.read("evaluate_first", recipe.evaluate_first,
              {"Whether the evaluation set is gone through before the first step, too"});
  if (fields.has_value("early_stopping")) {
    recipe.early_stopping =
        read_early_stopping(fields.object("early_stopping", {"Ends the training where evaluations show no gain", "",
                                                             "none: it runs to its end"}));
  }
  if (fields.has_value("parallel")) {
    recipe.parallel = read_parallel(
        fields.object("parallel",
                      {"Several processes, on one machine or on several, that train together with the bits of one", "",
                       "none: one process"}));
  }
  fields.read("prompts", recipe.prompts,
              {"Texts that a language model answers before the first step and after the last"});
  fields.read("answer_tokens", recipe.answer_tokens, 1, kMaxCount,
              {"The longest answer to one of the prompts", "tokens"});
  fields.read("steps", recipe.steps, 1, kMaxSteps,
              {"How long to train", "steps", "none: epochs or the command line must say"});
  fields.read("epochs", recipe.epochs, kPasses,
              {"How long to train, in place of steps: as many steps as so many passes over the training set take",
               "passes", "none"});
  if (recipe.epochs && recipe.steps > 0) fields.refuse("epochs", "cannot go with steps; leave one out");
  if (LrSchedule& rate = recipe.lr_schedule;
      rate.kind == LrSchedule::Kind::kCosine && rate.steps == 0 && !rate.epochs) {
    rate.steps = recipe.steps;
    rate.epochs = recipe.epochs;
  }
  fields.read("seed", recipe.seed, 0, std::numeric_limits<uint64_t>::max(),
              {"Where the random numbers of weights, samples' order and dropout start"});
}

// Reads how a card multiplies. If "auto" chooses the CPU, products are f32, and the name of the
// plan's kernel set has no "+tf32" or "+bf16x3".
void read_math(const JsonFields& fields, Recipe& recipe) {
  fields.read_choice(
      "math", recipe.math, kMaths,
      {"How a card multiplies matrices of f32: \"f32\"; on tensor cores \"tf32\", whose operands have 11 "
       "significant bits, or \"bf16x3\", three products of bf16 with about 16. Sums are f32"});
  if (recipe.math == Recipe::Math::kF32) return;
  const std::string asked = "\"" + std::string(word_of(kMaths, recipe.math)) + "\" ";
  if (recipe.backend == Recipe::BackendChoice::kCpu) {
    fields.refuse("math", asked +
                              "is how a card multiplies, and the backend is \"cpu\"; take \"backend\": \"cuda\" or "
                              "\"auto\", or \"math\": \"f32\"");
  }
  if (recipe.dtype == Recipe::Dtype::kBf16) {
    fields.refuse("math", asked +
                              "is of activations that are stored as f32; with \"dtype\": \"bf16\" products are bf16 "
                              "already: leave it out");
  }
}

void read_memory(const JsonFields& fields, Recipe& recipe) {
  if (fields.has("schedule")) recipe.schedule = read_schedule(fields);
  fields.read_bytes("budget", recipe.budget_bytes, 1,
                    {"What the whole arena may take", "", "none: as much as the schedule wants"});
  fields.read_bytes("budgets", recipe.budgets, 1,
                    {"What the whole arena may take, at least two of it: a plan for each in one program, which begins "
                     "in the first and changes between steps when told",
                     "", "none"});
  if (fields.has("budgets")) {
    if (fields.has_value("budget")) fields.refuse("budgets", "cannot go with budget; leave one out");
    if (recipe.budgets.size() < 2 || recipe.budgets.size() > kMaxBudgets) {
      fields.refuse("budgets", "must be 2 to " + std::to_string(kMaxBudgets) + " budgets, not " +
                                   std::to_string(recipe.budgets.size()) + "; one alone is a \"budget\"");
    }
    recipe.budget_bytes = recipe.budgets[0];
  }
  fields.read_bytes(
      "feature_map_budget", recipe.feature_map_budget_bytes, 1,
      {"What boundaries, tapes, residues, activation gradients and the kernels' scratch may take; not with budget", "",
       "none"});
  fields.read_choice("backend", recipe.backend, kBackends,
                     {"\"cuda\" plans on any machine, and trains on an NVIDIA card of sm_80 or later; \"auto\" has a "
                      "plan for each, and takes the card where it can"});
  fields.read_choice("core", recipe.core, kCores,
                     {"The core of \"cpu\": \"small\" is a microcontroller's, whose stack is a few kilobytes; such a "
                      "plan trains on any processor, with the same bits"});
  if (recipe.core == Recipe::CoreSize::kSmall && recipe.backend != Recipe::BackendChoice::kCpu) {
    fields.refuse("core",
                  "\"small\" is of a processor, and the backend is not \"cpu\"; take \"backend\": \"cpu\", or "
                  "\"core\": \"large\"");
  }
  fields.read_choice("card", recipe.card, kCards,
                     {"The card that sums are split for: \"small\" up to 16 multiprocessors, as Orin; \"large\" more. "
                      "Either runs on any; the bits differ"});
  read_math(fields, recipe);
}

}  // namespace

const char* backend_word(Recipe::BackendChoice backend) { return word_of(kBackends, backend); }

Recipe read_fields(const JsonFields& fields, const std::string& file, const std::string& folder) {
  fields.allow_only({"name",
                     "model",
                     "data",
                     "batch",
                     "sequence",
                     "accumulate",
                     "dtype",
                     "optimizer",
                     "lr_schedule",
                     "loss",
                     "clip_norm",
                     "gradient_release",
                     "init",
                     "freeze",
                     "weights",
                     "trained",
                     "lora",
                     "evaluate_every",
                     "evaluate_batches",
                     "evaluate_first",
                     "early_stopping",
                     "parallel",
                     "prompts",
                     "answer_tokens",
                     "steps",
                     "epochs",
                     "schedule",
                     "budget",
                     "budgets",
                     "feature_map_budget",
                     "seed",
                     "backend",
                     "core",
                     "card",
                     "math",
                     "$schema",
                     kWriterKey});
  Recipe recipe;
  recipe.name = name_of_file(file);
  fields.read("name", recipe.name,
              {"The folder of its plan: 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first", "",
               "the file's name without its ending"});
  fields.require("model", "give {\"family\": ...}, {\"huggingface\": FOLDER}, {\"gguf\": FILE} or {\"graph\": FILE}");
  recipe.model = read_model(
      fields.object(
          "model",
          {"The network: a family and its fields, a folder of Hugging Face, a GGUF file, or a file of a net's nodes"}),
      folder, recipe.place);
  if (fields.has("data")) {
    recipe.data = read_data(fields.object("data", {"What it is trained on", "",
                                                   "none: such a recipe can be planned, not trained"}),
                            folder);
  }
  recipe.init = read_init(fields, folder);
  read_batch(fields, recipe);
  read_training(fields, recipe);
  read_memory(fields, recipe);
  std::string schema;
  fields.read("$schema", schema, {"For editors alone: where the output of `reprise recipe --schema` lies", "", "none"});
  std::string writer;
  fields.read(kWriterKey, writer,
              {"The mark by which `reprise import` recognises a recipe that it wrote and nobody has changed: it "
               "replaces no other",
               "", "none"});
  if (!is_name(recipe.name)) {
    fields.refuse("name", "must be 1 to 100 letters, digits, '.', '_' or '-', a letter or digit first, not " +
                              json_shown(recipe.name));
  }
  return recipe;
}

Recipe parse_recipe(const std::string& text, const std::string& file, const std::string& folder) {
  const json value = parse_json(text, file, JsonComments::kAllowed);
  const Recipe recipe = read_fields(JsonFields(value, {file, &text}, ""), file, folder);
  check_recipe(recipe, {file, text});
  return recipe;
}

namespace {

std::string recipe_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UserError(path + ": is a folder; give a recipe, a JSON file");
  return read_file(path);
}

}  // namespace

Recipe read_recipe(const std::string& path) {
  RecipeRules unused;
  return read_recipe(path, unused);
}

Recipe read_recipe(const std::string& path, RecipeRules& rules) {
  rules = {path, recipe_text(path)};
  return parse_recipe(rules.text, path, std::filesystem::path(path).parent_path().string());
}

namespace {

// Returns "model" and "init" of a recipe that trains the model at this path.
json model_at(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.ends_with(".json")) {
    json other = json::parse(canonical_recipe(read_recipe(path)));
    return {{"model", other["model"]}, {"init", other.value("init", json::object())}};
  }
  const ModelFiles files = ModelFiles::open(path);
  return {{"model", {{files.is_gguf() ? "gguf" : "huggingface", fs::absolute(path).string()}}},
          {"init", json::object()}};
}

}  // namespace

Recipe read_recipe_of_model(const std::string& path, const std::string& model, RecipeRules& rules) {
  const json theirs = model_at(model);
  json value = parse_json(recipe_text(path), path, JsonComments::kAllowed);
  if (value.is_object()) value.update(theirs);
  rules = {path + " with " + model};
  Recipe recipe =
      read_fields(JsonFields(value, {rules.file}, ""), path, std::filesystem::path(path).parent_path().string());
  recipe.data.kind = DataSource::Kind::kNone;
  recipe.sequence = std::min(recipe.sequence, describe_model(recipe.model).longest_sequence);
  check_recipe(recipe, rules);
  return recipe;
}

namespace {

void check_lora(const Recipe& recipe, const RecipeRules& rules) {
  if (!recipe.lora) return;
  rules.require(recipe.freeze.empty(), "freeze", "leave it out: \"lora\" freezes all of the model's own parameters");
}

}  // namespace

// Returns the size of a micro-batch. `pairs` is a maximum: a pair in a packed row has at least four
// tokens, two of a prompt and one of each answer. In kto one sample of a set may have no partner,
// and then has at least two tokens.
MicroBatch micro_batch_of(const Recipe& recipe) {
  const int pairs_of_row = recipe.data.pack ? std::max(1, (recipe.sequence + 2) / 4) : 1;
  return {.samples = recipe.batch,
          .sequence = recipe.sequence,
          .documents = recipe.data.pack || recipe.loss,
          .pairs = recipe.loss ? recipe.batch * pairs_of_row : 0};
}

bool has_reference(const Recipe& recipe) {
  return recipe.loss && static_cast<PreferenceKind>(recipe.loss->kind) != PreferenceKind::kOrpo;
}

void check_recipe(const Recipe& recipe, const RecipeRules& rules) {
  check_model(recipe.model, rules, micro_batch_of(recipe));
  check_data(recipe, rules);
  check_optimizer(recipe, rules);
  check_lora(recipe, rules);
  check_loss(recipe, rules);
  check_weights(recipe, rules);
  check_lr_schedule(recipe.lr_schedule, rules);
  rules.require(!recipe.gradient_release || !recipe.clip_norm, "gradient_release",
                "cannot go with clip_norm: the norm needs every gradient at once; leave one out");
  rules.require(!recipe.gradient_release || recipe.accumulate == 1, "gradient_release",
                "cannot go with accumulate above 1: a released gradient cannot be added to; leave one out");
  rules.require(!recipe.gradient_release || !recipe.parallel, "gradient_release",
                "cannot go with parallel: a released gradient cannot be added to those of other ranks; leave one out");
  rules.require(!recipe.parallel || recipe.ranks() == 1 || recipe.backend == Recipe::BackendChoice::kCpu, "parallel",
                "of several ranks is for \"backend\": \"cpu\"; a card's arena does not go over a network yet");
  rules.require(!recipe.parallel || !recipe.parallel->shard_optimizer || !recipe.optimizer.offload,
                "parallel.shard_optimizer", "cannot go with optimizer.offload: a moment has one place; leave one out");
  const bool shards = recipe.parallel && recipe.parallel->shard_weights;
  rules.require(!shards || recipe.weights.stream != WeightsRecipe::Stream::kNone, "parallel.shard_weights",
                "needs weights.stream, which says which weights no process has to hold whole; give \"stream\": true");
  rules.require(!shards || recipe.budgets.empty(), "parallel.shard_weights",
                "cannot go with budgets: all processes load the same weights at the same rows; give one budget");
  rules.require(!recipe.budget_bytes || !recipe.feature_map_budget_bytes, "feature_map_budget",
                "cannot go with budget, which bounds the whole arena; leave one out");
  for (const uint64_t budget : recipe.budgets) {
    rules.require(std::count(recipe.budgets.begin(), recipe.budgets.end(), budget) == 1, "budgets",
                  "must differ, and " + bytes_text(budget) + " is given twice");
  }
  rules.require(recipe.prompts.empty() || recipe.sequence > 0, "prompts", "are for language models; leave them out");
  rules.require(!recipe.early_stopping || recipe.evaluate_every.value_or(0) > 0, "early_stopping",
                "needs evaluate_every above 0: without evaluations nothing says when to stop");
  check_schedule(recipe.schedule, rules);
}

std::vector<Recipe> recipes_of_plans(const Recipe& recipe) {
  if (recipe.budgets.empty()) return {recipe};
  std::vector<Recipe> each(recipe.budgets.size(), recipe);
  for (size_t i = 0; i < each.size(); ++i) {
    each[i].budget_bytes = recipe.budgets[i];
    each[i].budgets.clear();
  }
  return each;
}

std::vector<NamedFile> named_files(const Recipe& recipe) {
  std::vector<NamedFile> files = {{"data.path", recipe.data.path, "--data"},
                                  {"data.eval_path", recipe.data.eval_path, "--eval-data"},
                                  {"data.tokenizer", recipe.data.tokenizer, "--tokenizer"},
                                  {"init.from", recipe.init.from, recipe.place.path().empty() ? "--model" : "--init"},
                                  {"model.huggingface", recipe.place.huggingface, "--model"},
                                  {"model.gguf", recipe.place.gguf, "--model"}};
  std::erase_if(files, [](const NamedFile& file) { return file.path.empty(); });
  return files;
}

std::vector<std::string> inputs_of(const Recipe& recipe) {
  std::vector<std::string> inputs;
  for (const NamedFile& file : named_files(recipe)) inputs.push_back(file.path);
  return inputs;
}

json without_places(json canonical) {
  const std::pair<const char*, std::vector<const char*>> places[] = {{"data", {"path", "eval_path", "tokenizer"}},
                                                                     {"init", {"from"}},
                                                                     {"model", {"huggingface", "gguf"}}};
  for (const auto& [section, keys] : places) {
    if (!canonical.contains(section) || !canonical[section].is_object()) continue;
    for (const char* key : keys) {
      if (!canonical[section].contains(key) || !canonical[section][key].is_string()) continue;
      const std::filesystem::path path = canonical[section][key].get<std::string>();
      canonical[section][key] = (path.has_filename() ? path : path.parent_path()).filename().string();
    }
  }
  return canonical;
}

std::string published_weights(const Recipe& recipe) {
  if (recipe.init.random) return "";
  if (!recipe.place.gguf.empty()) return recipe.place.gguf;
  return recipe.place.huggingface.empty() ? "" : folder_weights(recipe.place.huggingface);
}

std::string missing_weights(const Recipe& recipe) {
  const std::string& folder = recipe.place.huggingface;
  if (folder.empty() || recipe.init.random || !recipe.init.from.empty() || !published_weights(recipe).empty())
    return "";
  const std::vector<std::string> others = other_weight_files(folder);
  const auto ends_with = [&others](const char* ending) {
    return std::any_of(others.begin(), others.end(), [&](const std::string& name) { return name.ends_with(ending); });
  };
  std::string found = others.empty() ? "" : "; " + some_of(others) + (others.size() == 1 ? " is" : " are");
  if (ends_with(".incomplete")) {
    found += " there: the download is not finished";
  } else if (ends_with(".safetensors")) {
    found += " there without the index that says what is in which file";
  } else if (!others.empty()) {
    found += " not read: save the model as safetensors";
  }
  return folder +
         ": holds no weights to start from: neither model.safetensors nor model.safetensors.index.json is there" +
         found +
         (recipe.lora ? "; adapters are trained beside published weights"
                      : "; to train from scratch, set \"init\": \"random\" in the recipe");
}

std::string canonical_recipe(const Recipe& recipe) {
  json value = {{"name", recipe.name},
                {"model", model_json(recipe.model)},
                {"batch", recipe.batch},
                {"accumulate", recipe.accumulate},
                {"dtype", word_of(kDtypes, recipe.dtype)},
                {"optimizer", optimizer_json(recipe.optimizer)},
                {"lr_schedule", lr_schedule_json(recipe.lr_schedule)},
                {"gradient_release", recipe.gradient_release},
                {"freeze", recipe.freeze},
                {"schedule", schedule_json(recipe.schedule)},
                {"seed", recipe.seed},
                {"backend", backend_word(recipe.backend)}};
  if (recipe.core == Recipe::CoreSize::kSmall) value["core"] = word_of(kCores, recipe.core);
  if (recipe.card == Recipe::CardSize::kLarge) value["card"] = word_of(kCards, recipe.card);
  if (recipe.math != Recipe::Math::kF32) value["math"] = word_of(kMaths, recipe.math);
  if (!recipe.place.huggingface.empty()) value["model"]["huggingface"] = recipe.place.huggingface;
  if (!recipe.place.gguf.empty()) value["model"]["gguf"] = recipe.place.gguf;
  if (!recipe.place.new_tokens.empty()) value["model"]["new_tokens"] = recipe.place.new_tokens;
  if (!recipe.place.hub_name.empty()) value["model"]["hub_name"] = recipe.place.hub_name;
  if (recipe.data.kind != DataSource::Kind::kNone) value["data"] = data_json(recipe.data);
  if (recipe.sequence > 0) value["sequence"] = recipe.sequence;
  if (recipe.evaluate_every) value["evaluate_every"] = *recipe.evaluate_every;
  if (recipe.evaluate_batches > 0) value["evaluate_batches"] = recipe.evaluate_batches;
  if (recipe.evaluate_first) value["evaluate_first"] = true;
  if (recipe.early_stopping) value["early_stopping"] = {{"patience", recipe.early_stopping->patience}};
  if (recipe.parallel) {
    const ParallelRecipe& parallel = *recipe.parallel;
    value["parallel"] = {{"ranks", parallel.ranks},
                         {"order", word_of(kOrders, parallel.two_levels)},
                         {"shard_optimizer", parallel.shard_optimizer},
                         {"shard_weights", parallel.shard_weights},
                         {"timeout", parallel.timeout}};
  }
  if (!recipe.prompts.empty()) value.update({{"prompts", recipe.prompts}, {"answer_tokens", recipe.answer_tokens}});
  if (recipe.init.random) {
    value["init"] = kRandom;
  } else if (!(recipe.init == InitialWeights())) {
    value["init"] = {{"skip", recipe.init.skip}, {"allow_missing", recipe.init.allow_missing}};
  }
  if (!recipe.init.from.empty()) value["init"]["from"] = recipe.init.from;
  if (recipe.loss) value["loss"] = loss_json(*recipe.loss);
  if (recipe.weights != WeightsRecipe{}) value["weights"] = weights_json(recipe.weights);
  if (!(recipe.trained == TrainedRecipe())) value["trained"] = trained_json(recipe.trained);
  if (recipe.lora) value["lora"] = lora_json(*recipe.lora);
  if (recipe.clip_norm) value["clip_norm"] = *recipe.clip_norm;
  if (recipe.steps > 0) value["steps"] = recipe.steps;
  if (recipe.epochs) value["epochs"] = *recipe.epochs;
  if (!recipe.budgets.empty()) {
    value["budgets"] = recipe.budgets;
  } else if (recipe.budget_bytes) {
    value["budget"] = *recipe.budget_bytes;
  }
  if (recipe.feature_map_budget_bytes) value["feature_map_budget"] = *recipe.feature_map_budget_bytes;
  try {
    return value.dump(2, ' ', true) + "\n";
  } catch (const json::type_error&) {
    throw UserError(recipe.name + ": the path of a folder is not UTF-8, which JSON needs; rename the folder");
  }
}

}  // namespace reprise
