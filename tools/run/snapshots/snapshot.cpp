// The files of a snapshot: model.safetensors, optimizer.safetensors, config.json (the model),
// training.json (step, formats). Weights have the names and layouts of other frameworks. All other
// data are in our own format.
#include "tools/run/snapshots/snapshot.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/files/formats/json_differences.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/snapshots/companion_files.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/snapshots/state_tensors.h"
#include "tools/files/tokenizer/tokenizer_config.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/weights/gguf_weights.h"
#include "tools/files/weights/model_files.h"

namespace reprise {

using nlohmann::json;

const std::vector<std::string>& snapshot_files() {
  static const std::vector<std::string> kFiles = {"config.json", "model.safetensors", "optimizer.safetensors",
                                                  "training.json"};
  return kFiles;
}

namespace {

constexpr const char* kTraining = "training.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kMoments = "optimizer.safetensors";
constexpr const char* kChecksum = "xxh3";  // a key of training.json: the checksum of its text without this key

// Replaces each path in training.json by change(path).
template <typename Change>
void for_each_path(json& training, const Change& change) {
  for (const char* place : {"/recipe/data/path", "/recipe/data/eval_path", "/recipe/data/tokenizer",
                            "/recipe/init/from", "/recipe/model/huggingface", "/recipe/model/gguf", "/base/path"}) {
    const json::json_pointer at(place);
    if (training.contains(at) && training[at].is_string() && training[at] != "")
      training[at] = change(training[at].get<std::string>());
  }
}

bool is_own_snapshot(const std::string& folder) {
  try {
    const json training = json_or_discarded(read_file(folder + "/" + kTraining));
    if (!training.is_object() || !training.contains("format") || !training.contains("plan_format") ||
        !training.contains("kernel_set"))
      return false;
    const json files = training.value("files", json::object());
    for (const std::string& name : snapshot_files()) {
      const std::string file = folder + "/" + name;
      std::error_code error;
      if (name == kTraining || !std::filesystem::exists(file, error) || is_written_here(file)) continue;
      const bool says_size =
          files.is_object() && files.contains(name) && files[name].is_object() && files[name].contains("bytes");
      if (says_size ? files[name]["bytes"] != std::filesystem::file_size(file, error) : !files.empty()) return false;
    }
    return true;
  } catch (const UserError&) {
    return false;
  }
}

json sum_json(const FileSum& sum) { return {{"bytes", sum.bytes}, {"xxh3", sum.checksum}}; }

json data_json(const DataFingerprint& data) {
  return {{"samples", data.samples}, {"files", data.files}, {"bytes", data.bytes}, {"xxh3", data.checksum}};
}

DataFingerprint read_data(const json& value) {
  return {.samples = value.value("samples", uint64_t{0}),
          .files = value.value("files", uint64_t{0}),
          .bytes = value.value("bytes", uint64_t{0}),
          .checksum = value.value("xxh3", "")};
}

json losses_json(const LossHistory& losses) {
  return {{"step", losses.step},
          {"best_loss", losses.best_loss ? json(*losses.best_loss) : json()},
          {"best_step", losses.best_step},
          {"without_gain", losses.without_gain}};
}

LossHistory read_losses(const json& value) {
  LossHistory losses = {.step = value.at("step"),
                        .best_loss = {},
                        .best_step = value.at("best_step"),
                        .without_gain = value.at("without_gain")};
  if (!value.at("best_loss").is_null()) losses.best_loss = value.at("best_loss").get<double>();
  return losses;
}

// Throws UserError if the file does not read back as it was written.
void require_written(const SnapshotDirectory& folder, const std::string& name, const FileSum& written) {
  if (sum_of_file(folder.file(name)) == written) return;
  throw UserError(
      folder.file(name) +
      ": does not read back as it was written: the disk or the memory is faulty; the last snapshot is kept");
}

}  // namespace

uint64_t snapshot_bytes(const Plan& plan) {
  constexpr uint64_t kRest = 1 << 20;  // bytes for headers and JSON
  uint64_t bytes = kRest;
  for (const StateTensor& state : plan.state) {
    if (belongs(plan, state, StatePart::kSaved) || belongs(plan, state, StatePart::kOptimizer))
      bytes += state.tensor.bytes;
  }
  return bytes;
}

const FolderKind& snapshot_folder() {
  static const FolderKind kFolder = {"snapshot", snapshot_files(), is_own_snapshot};
  return kFolder;
}

void save_snapshot(const Trainer& trainer, const Recipe& recipe, const SnapshotFacts& facts, SnapshotDirectory& folder,
                   const std::string& keep_old_as) {
  const LongWork work("saving " + folder.path());
  folder.begin();
  try {
    json files = json::object();
    const auto written = [&](const std::string& name, const FileSum& sum) {
      require_written(folder, name, sum);
      files[name] = sum_json(sum);
    };
    written(kWeights,
            write_state(trainer, folder.file(kWeights), StatePart::kSaved, {{"format", "pt"}}, stored_forms(recipe)));
    written(kMoments, write_state(trainer, folder.file(kMoments), StatePart::kOptimizer, {}));
    written("config.json", write_file(folder.file("config.json"),
                                      with_special_ids(model_config(recipe.model), recipe.place).dump(1) + "\n"));
    json training = {{"format", kSnapshotFormat},
                     {"plan_format", kPlanFormat},
                     {"step", trainer.step},
                     {"kernel_set", trainer.backend->kernel_set},
                     {"backend", trainer.backend->rules->name},
                     {"recipe", json::parse(canonical_recipe(recipe))},
                     {"files", files},
                     {"data", data_json(facts.data)}};
    if (!facts.class_names.empty()) training["class_names"] = facts.class_names;
    if (facts.score) training["score"] = *facts.score;
    if (facts.base) training["base"] = base_json(*facts.base);
    if (!facts.texts.empty()) training["texts"] = facts.texts;
    if (facts.losses) training["early_stopping"] = losses_json(*facts.losses);
    for_each_path(training, [&](const std::string& path) { return relative_path(path, folder.path()); });
    training[kChecksum] = checksum_of(training.dump());
    require_written(folder, kTraining, write_file(folder.file(kTraining), training.dump(1) + "\n"));
    folder.commit(keep_old_as);
  } catch (...) {
    folder.abandon();
    throw;
  }
}

namespace {

// Throws UserError if the checksum of training.json does not match. Older snapshots have no
// checksums.
void require_checksum(json training, const std::string& path) {
  if (!training.contains(kChecksum) && !training.contains("files")) return;
  const json was = training.value(kChecksum, json());
  training.erase(kChecksum);
  const std::string is = checksum_of(training.dump());
  if (was == is) return;
  throw UserError(path +
                  ": xxh3: is not that of its text: the file is damaged, or was changed by hand; to resume from it all "
                  "the same, remove \"xxh3\" and \"files\" from it");
}

json read_training_file(const std::string& path) {
  json training = json_or_discarded(read_file(path));
  if (!training.is_object()) throw UserError(path + ": must be the JSON object that --save wrote");
  const auto require = [&](const char* field, bool right, const std::string& wanted) {
    if (!right) throw UserError(path + ": " + field + ": must be " + wanted);
  };
  const auto field = [&training](const char* key) { return training.contains(key) ? training[key] : json(); };
  require("format", field("format") == kSnapshotFormat,
          std::to_string(kSnapshotFormat) + ", the only one this program reads");
  require("step", field("step").is_number_unsigned(), "the number of steps done");
  require("kernel_set", field("kernel_set").is_string(), "the name of the kernels that it was trained with");
  require("recipe", field("recipe").is_object() && field("recipe").contains("model"),
          "the recipe that it was trained from");
  require_checksum(training, path);
  // Older files have absolute paths. Joining such a path with the folder does not change it.
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::canonical(path, ignored).parent_path();
  for_each_path(training, [&](const std::string& named) { return (folder / named).lexically_normal().string(); });
  return training;
}

// Compares the snapshot's files with the checksums in training.json. The file of moments is
// compared only if training continues. Older snapshots have no checksums.
void require_sums(const json& training, const std::string& folder, bool goes_on) {
  if (!training.contains("files")) return;
  for (const std::string& name : snapshot_files()) {
    if (name == kTraining || (name == kMoments && !goes_on)) continue;
    const std::string path = folder + "/" + name;
    const json is = sum_json(sum_of_file(path)), was = training.at("files").value(name, json());
    if (is == was) continue;
    throw UserError(path + ": is not the file that was saved with " + kTraining + " (" + is.dump() + ", must be " +
                    was.dump() + "): it is damaged, or of another snapshot; resume from another one");
  }
}

// Returns the recipe's description of the model, without the paths of its files.
json model_of(const json& recipe) {
  json model = recipe.at("model");
  if (model.is_object()) model.erase("huggingface"), model.erase("gguf"), model.erase("hub_name");
  return model;
}

// Throws UserError if this part of the recipe differs from the snapshot's.
void require_same(const std::string& part, const json& theirs, const json& ours, const std::string& folder) {
  const auto shown = [](const json& value) { return value.is_null() ? "none" : json_shown(value); };
  std::vector<std::string> all;
  for (const JsonDifference& difference : find_differences(theirs, ours)) {
    all.push_back("recipe." + part + (difference.path.empty() ? "" : "." + difference.path) + ": trained with " +
                  shown(difference.before) + ", but the recipe says " + shown(difference.now));
  }
  if (!all.empty())
    throw UserError(folder + "/" + kTraining + ": " + some_of(all, "; ", kSentence) +
                    "; take the recipe that the snapshot was saved from");
}

// Returns the given keys of a part of a recipe; null if the recipe does not have the part.
json keys_of(const json& recipe, const char* part, const std::vector<const char*>& keys) {
  if (!recipe.contains(part)) return nullptr;
  json kept = json::object();
  for (const char* key : keys) {
    if (recipe[part].is_object() && recipe[part].contains(key)) kept[key] = recipe[part][key];
  }
  return kept;
}

// Returns the mean and std of pixels. Equal numbers for all channels become one number.
json pixels_of(const json& recipe) {
  json pixels = keys_of(recipe, "data", {"mean", "std"});
  if (pixels.is_null()) return pixels;
  for (json& numbers : pixels) {
    const bool is_one = numbers.is_array() && std::all_of(numbers.begin(), numbers.end(),
                                                          [&](const json& number) { return number == numbers[0]; });
    if (is_one) numbers = json::array({numbers[0]});
  }
  return pixels;
}

// Throws UserError if layers, ranks, DoRA, modules to save, or skipped weights of the adapters
// differ from those of the snapshot. If the weights are only used, the scales must be equal, too.
void require_same_adapters(const json& theirs, const json& ours, const std::string& folder, bool goes_on) {
  const auto kept = [&](const json& recipe) {
    json lora = keys_of(recipe, "lora",
                        goes_on ? std::vector<const char*>{"r", "targets", "dora", "rank_pattern", "modules_to_save"}
                                : std::vector<const char*>{"r", "targets", "dora", "rank_pattern", "modules_to_save",
                                                           "alpha", "alpha_pattern", "rslora"});
    for (const char* list : {"targets", "modules_to_save"}) {
      if (lora.is_object() && lora.contains(list) && lora[list].is_array())
        std::sort(lora[list].begin(), lora[list].end());
    }
    return lora;
  };
  require_same("lora", kept(theirs), kept(ours), folder);
  const auto skipped = [](const json& recipe) {
    const json init = keys_of(recipe, "init", {"skip"});
    return init.is_object() ? init.value("skip", json::array()) : json::array();
  };
  if (theirs.contains("lora")) require_same("init.skip", skipped(theirs), skipped(ours), folder);
}

// Returns a value of the recipe in the form in which two recipes are compared. For "accumulate" it
// is the number of micro-batches in a step, over all ranks. For "parallel" it is null, unless each
// rank first adds its own gradients: the order of additions then depends on the ranks, and the
// value is the order and the number of ranks.
json value_of(const json& recipe, const std::string& key) {
  const json value = recipe.value(key, json());
  const json parallel = recipe.value("parallel", json::object());
  const uint64_t ranks = parallel.value("ranks", uint64_t{1}), accumulate = recipe.value("accumulate", uint64_t{1});
  if (key == "accumulate") return accumulate * ranks;
  if (key == "parallel")
    return ranks > 1 && accumulate > 1 && parallel.value("order", "flat") != "flat"
               ? json{{"order", parallel["order"]}, {"ranks", ranks}}
               : json();
  return value;
}

// Returns all differences because of which the run may differ from an uninterrupted one.
std::vector<std::string> differences(const json& training, const json& recipe, const std::string& kernel_set,
                                     const DataFingerprint* data) {
  std::vector<std::string> all;
  const std::string theirs = training.at("kernel_set").get<std::string>();
  if (theirs != kernel_set) {
    all.push_back("saved with kernel set \"" + theirs + "\", this machine uses \"" + kernel_set +
                  "\": training goes on, but its bits may differ from an uninterrupted run");
  }
  for (const char* key : {"data", "batch", "accumulate", "parallel", "seed", "dtype", "optimizer", "lr_schedule",
                          "sequence", "clip_norm", "freeze", "weights", "trained", "loss", "lora"}) {
    const std::vector<JsonDifference> others =
        find_differences(value_of(training.at("recipe"), key), value_of(recipe, key));
    if (others.empty()) continue;
    all.push_back(std::string("saved from a recipe with another \"") + key + "\" (" + differences_shown(others) +
                  "): " + (data != nullptr ? "training goes on with this recipe's" : "this recipe's is used"));
  }
  if (data != nullptr && training.contains("data") && training["data"] != data_json(*data)) {
    const auto shown = [](const json& set) {
      return set.value("samples", json()).dump() + " samples, " + set.value("files", json()).dump() + " files, " +
             set.value("bytes", json()).dump() + " bytes";
    };
    all.push_back("saved from other data (" + shown(training["data"]) + "; now " + shown(data_json(*data)) +
                  "): training goes on with these");
  }
  return all;
}

// Returns checksums of the files that convert texts to ids, by name: the tokenizer with the
// settings in its config. Returns {} if `path` does not exist.
std::map<std::string, std::string> texts_of_tokenizer(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  if (is_gguf(path)) return ModelFiles::open(path).text_sums();
  const std::string file = tokenizer_path(path);
  const TokenizerConfig config(file);
  json said = json::object();
  for (const char* key : {"do_lower_case", "strip_accents", "tokenize_chinese_chars", "unk_token", "cls_token",
                          "sep_token", "bos_token", "add_bos_token"}) {
    if (config.fields().has_value(key)) said[key] = config.fields().at(key);
  }
  return {{"tokenizer", checksum_of(text_of_tokenizer(file) + said.dump())}};
}

}  // namespace

std::map<std::string, std::string> texts_of(const Recipe& recipe) {
  if (!recipe.data.tokenizer.empty()) return texts_of_tokenizer(recipe.data.tokenizer);
  std::error_code ignored;
  const std::string& path = recipe.place.path();
  return path.empty() || !std::filesystem::exists(path, ignored) ? std::map<std::string, std::string>()
                                                                 : ModelFiles::open(path).text_sums();
}

SnapshotFacts read_facts(const std::string& folder) {
  const json training = read_training_file(folder + "/" + kTraining);
  SnapshotFacts facts;
  facts.step = training["step"].get<uint64_t>();
  facts.kernel_set = training["kernel_set"].get<std::string>();
  try {
    if (training.contains("data") && training["data"].is_object()) facts.data = read_data(training["data"]);
    facts.class_names = training.value("class_names", facts.class_names);
    if (training.contains("score")) facts.score = training["score"].get<double>();
    if (training.contains("base")) facts.base = read_base(training["base"]);
    facts.texts = training.value("texts", facts.texts);
    if (training.contains("early_stopping")) facts.losses = read_losses(training["early_stopping"]);
  } catch (const json::exception&) {
    throw UserError(folder + "/" + kTraining +
                    ": class_names, score, base, texts, early_stopping: must be a list of texts, a number, path, bytes "
                    "and xxh3 of files, checksums, and steps and losses");
  }
  return facts;
}

namespace {

// Recovers the snapshot in the folder, then returns the contents of training.json. Throws UserError
// if it is damaged, has another model, or if a file's checksum differs.
json open_snapshot(const json& recipe, const std::string& folder, bool goes_on) {
  recover_snapshot(folder, snapshot_folder());
  const json training = read_training_file(folder + "/" + kTraining);
  if (const auto differences = find_differences(model_of(training.at("recipe")), model_of(recipe));
      !differences.empty()) {
    throw UserError(folder + "/training.json: recipe.model: the snapshot is of another model (" +
                    differences_shown(differences) + "); take the recipe that it was saved from");
  }
  require_sums(training, folder, goes_on);
  return training;
}

// Compares tokenizer and chat template with those of the training. If the tokenizer differs, throws
// UserError, unless training continues. Returns other differences, a line each.
std::vector<std::string> other_texts(const Recipe& recipe, const std::string& folder, bool goes_on) {
  std::vector<std::string> all;
  const std::map<std::string, std::string> ours = texts_of(recipe);
  const std::map<std::string, std::string> theirs = read_facts(folder).texts;
  // A folder's tokenizer and a GGUF file's have different checksums, so that they are not compared.
  const bool same_form = ours.count(kGgufTokenizer) == theirs.count(kGgufTokenizer);
  for (const auto& [name, was] : theirs) {
    const auto is = ours.find(name);
    const bool is_template = name.starts_with(kChatTemplate);
    if (ours.empty() || (is != ours.end() && is->second == was) || (!is_template && !same_form)) continue;
    const std::string file =
        name + " of " + (recipe.data.tokenizer.empty() ? recipe.place.path() : recipe.data.tokenizer);
    const std::string line = file + (is == ours.end() ? ", which it was trained with, is not there any more"
                                                      : " is not the one that it was trained with");
    if (!is_template && !goes_on)
      throw UserError(folder + "/" + kTraining + ": texts: " + line + "; put that one there again");
    all.push_back(line);
  }
  return all;
}

}  // namespace

Recipe trained_recipe(const Recipe& recipe, const std::string& folder, std::vector<std::string>& warnings) {
  const json ours = json::parse(canonical_recipe(recipe)), training = open_snapshot(ours, folder, false);
  require_same_adapters(training["recipe"], ours, folder, false);
  Recipe trained = parse_recipe(training["recipe"].dump(), folder + "/" + kTraining, "/");
  std::error_code ignored;
  if (!std::filesystem::exists(trained.place.path(), ignored)) trained.place = recipe.place;
  trained.place.hub_name = recipe.place.hub_name;
  for (const std::string& difference : other_texts(trained, folder, false))
    warnings.push_back(folder + ": " + difference);
  return trained;
}

void require_same_classes(const std::string& folder, const std::vector<std::string>& names) {
  const std::vector<std::string> trained = read_facts(folder).class_names;
  if (trained.empty() || names.empty() || trained == names) return;
  const size_t first = static_cast<size_t>(
      std::mismatch(trained.begin(), trained.end(), names.begin(), names.end()).first - trained.begin());
  const auto name = [first](const std::vector<std::string>& of) {
    return first < of.size() ? json_shown(of[first]) : "none";
  };
  if (std::is_permutation(trained.begin(), trained.end(), names.begin(), names.end())) {
    throw UserError(folder + "/" + kTraining + ": class_names: the classes were trained in the order " +
                    some_of(trained) + ", and the data have " + some_of(names) +
                    ": numbers are sorted as numbers; go on with a program of before, or begin anew: --init " + folder +
                    "/model.safetensors --init-skip with the head's name");
  }
  throw UserError(folder + "/" + kTraining + ": class_names: class " + std::to_string(first) + " was trained as " +
                  name(trained) + ", but is " + name(names) +
                  " in the data; take the same class folders, or begin anew: --init " + folder +
                  "/model.safetensors --init-skip with the head's name");
}

std::vector<std::string> resume_snapshot(Trainer& trainer, const Recipe& recipe, const DataFingerprint* data,
                                         const std::string& folder) {
  const LongWork work("reading " + folder);
  const json ours = json::parse(canonical_recipe(recipe));
  const bool goes_on = data != nullptr;
  const json training = open_snapshot(ours, folder, goes_on);
  require_same_adapters(training["recipe"], ours, folder, goes_on);
  if (goes_on) {  // moments are valid only for one optimizer
    const std::vector<const char*> kOfMoments = {"name", "states", "rank"};
    require_same("optimizer", keys_of(training["recipe"], "optimizer", kOfMoments),
                 keys_of(ours, "optimizer", kOfMoments), folder);
  } else {
    require_same("data", pixels_of(training["recipe"]), pixels_of(ours), folder);
  }
  const std::vector<std::string> texts = other_texts(recipe, folder, goes_on);
  read_state(trainer, *as_graph_has(open_weights(folder + "/" + kWeights), stored_forms(recipe)), StatePart::kSaved);
  if (goes_on) read_state(trainer, *open_weights(folder + "/" + kMoments), StatePart::kOptimizer);
  trainer.step = training["step"].get<uint64_t>();
  std::vector<std::string> warnings = differences(training, ours, trainer.backend->kernel_set, data);
  warnings.insert(warnings.end(), texts.begin(), texts.end());
  for (std::string& warning : warnings) warning = folder + ": " + warning;
  return warnings;
}

}  // namespace reprise
