// See export_snapshot.h.
#include "tools/run/snapshots/export_snapshot.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/files/adapters/merged_weights.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/snapshot_directory.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/progress/shown_output.h"
#include "tools/files/weights/export_model.h"
#include "tools/files/weights/gguf_names.h"
#include "tools/files/weights/gguf_weights.h"
#include "tools/files/weights/model_files.h"
#include "tools/files/weights/quantised_weights.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/nets/export_net.h"
#include "tools/run/snapshots/adapter_files.h"
#include "tools/run/snapshots/companion_files.h"
#include "tools/run/snapshots/snapshot.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::vector<std::string> merged_files() {
  std::vector<std::string> names = companion_files();
  names.insert(names.end(), {"config.json", "model.safetensors"});
  return names;
}

const FolderKind& merged_folder() {
  static const FolderKind kFolder = {"exported model", merged_files(),
                                     [](const std::string& folder) {
                                       return is_written_here(folder + "/model.safetensors");
                                     },
                                     "--merged"};
  return kFolder;
}

// Calls `write(folder)` with a new folder, and replaces the target folder by it.
template <typename Write>
void write_folder(const ExportRequest& request, const FolderKind& kind, const Write& write) {
  SnapshotDirectory folder(request.to, kind, request.inputs);
  folder.begin();
  write(folder);
  folder.commit();
}

// True if this program wrote the GGUF file, and its general.type is `type`. An adapter may thus
// replace only an adapter, and a model only a model.
bool is_own_gguf(const std::string& path, const char* type) {
  try {
    return has_mark(path, kGgufFile) && GgufFile(path).text("general.type").value_or("model") == type;
  } catch (const UserError&) {
    return false;
  }
}
constexpr OutputKind kAdapterFile = {"adapter in GGUF",
                                     [](const std::string& path) { return is_own_gguf(path, "adapter"); }};
constexpr OutputKind kModelFile = {"model in GGUF", [](const std::string& path) { return is_own_gguf(path, "model"); }};

// A snapshot that is being exported.
struct Snapshot {
  const Recipe& recipe;  // the recipe of the training
  const std::string& folder;
  json config;  // the model's config, as the snapshot has it
  std::shared_ptr<const WeightSource> weights;  // the snapshot's weights; only the adapter's if an adapter was trained

  Adapter adapter() const {
    if (!recipe.lora)
      throw UserError(recipe.name + ": lora: missing; the recipe trains no adapter: export --merged or --merged-gguf");
    return find_adapter(recipe, weights);
  }
};

// Calls `visit(tensor, is_whole)` for each tensor of the model. `is_whole`: the adapter has the
// whole tensor, so that the base's is not needed.
template <typename Visit>
void for_each_tensor(const Recipe& recipe, const Adapter& adapter, const Visit& visit) {
  for (const Value& value : build_model(recipe).values) {
    if (value.kind != ValueKind::kParameter || is_adapter(value.name)) continue;
    visit(value, std::count(adapter.saved.begin(), adapter.saved.end(), value.name) > 0);
  }
}

// Throws UserError unless the weights contain this tensor of the model, with its shape and numbers
// of a known type.
void require_fits(const WeightSource& weights, const Value& value) {
  const StoredWeight* weight = weights.find(stored_name(weights, value.name));
  const std::vector<uint64_t> shape = stored_shape(value.tensor);
  const auto refuse = [&](const std::string& is) {
    throw UserError(weights.path() + ": tensor " + json_shown(value.name) + ": " + is +
                    "; must be that of the recipe's model, which has " + json(shape).dump());
  };
  if (weight == nullptr) refuse("missing");
  if (weight->shape != shape) refuse("is " + json(weight->shape).dump());
  if (weight->exact != DType::kF32 && weight->exact != DType::kBf16)
    refuse("is " + weight->type + ", which are no numbers that are read");
}

// True if all weights on which the adapter was trained are in a file or in the adapter. Tensors
// that init.skip names were drawn from the seed, so that the adapter must have saved them whole.
bool is_in_files(const Recipe& recipe, const Adapter& adapter) {
  bool all = true;
  for_each_tensor(recipe, adapter, [&](const Value& value, bool is_whole) {
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, value.name); };
    all = all && (is_whole || std::none_of(recipe.init.skip.begin(), recipe.init.skip.end(), matches));
  });
  return all;
}

// Returns the names, in the source, of the frozen matrices that the recipe quantises.
std::set<std::string> quantised_names(const Recipe& recipe, const WeightSource& weights) {
  std::set<std::string> names;
  for (const Value& value : build_stored_model(recipe, backend_of(recipe)).values) {
    const std::string name = stored_name(weights, value.name);
    const StoredWeight* weight = weights.find(name);
    const bool is_it = value.kind == ValueKind::kParameter && !value.trainable &&
                       value.tensor.dtype == quantised_format(*recipe.weights.frozen, value.tensor.last_dimension());
    if (is_it && weight != nullptr && weight->format == value.tensor.dtype) names.insert(name);
  }
  return names;
}

// Returns the weights on which the adapter was trained. Quantised ones have the numbers that the
// training computed with. Throws UserError if the files have changed.
std::shared_ptr<const WeightSource> open_trained_base(const Snapshot& snapshot, const BaseWeights& base,
                                                      ExportReport& report) {
  std::unique_ptr<WeightSource> weights =
      open_model_weights(snapshot.recipe, find_base(base, snapshot.recipe, snapshot.folder));
  require_same_base(sum_base(*weights), base, snapshot.folder);
  report.base = weights->path();
  const std::optional<DType> frozen = snapshot.recipe.weights.frozen;
  if (!frozen || *frozen == DType::kF32) return weights;
  const std::set<std::string> quantised = quantised_names(snapshot.recipe, *weights);
  if (!quantised.empty()) report.base_blocks = block_layout(*block_type_of(*frozen)).name;
  return numbers_of_blocks(std::move(weights), quantised);
}

// Returns the whole model in the layout of files: the snapshot's own weights, or a base with the
// adapter merged into it.
std::shared_ptr<const WeightSource> merged(const Snapshot& snapshot, const ExportRequest& request,
                                           ExportReport& report) {
  if (!snapshot.recipe.lora) {
    if (!request.base.empty())
      throw UserError(snapshot.recipe.name + ": lora: missing; --base is for an adapter, and the recipe trains none");
    return snapshot.weights;
  }
  const StoredForms forms = stored_forms(snapshot.recipe);
  Adapter adapter = snapshot.adapter();
  adapter.weights = as_graph_has(adapter.weights, forms);
  const std::optional<BaseWeights> base = read_facts(snapshot.folder).base;
  for_each_tensor(snapshot.recipe, adapter, [&](const Value& value, bool is_whole) {
    if (is_whole) require_fits(*adapter.weights, value);
  });
  const bool has_file = base && is_in_files(snapshot.recipe, adapter);
  if (request.base.empty()) {
    if (!has_file)
      throw UserError(snapshot.folder +
                      ": the adapter was trained beside weights that no file has whole; export --adapter or "
                      "--adapter-gguf, or name others by --base");
    return as_files_have(merge_adapter(open_trained_base(snapshot, *base, report), adapter), forms);
  }
  std::shared_ptr<const WeightSource> weights = as_graph_has(open_weights(request.base), forms);
  for_each_tensor(snapshot.recipe, adapter, [&](const Value& value, bool is_whole) {
    if (!is_whole) require_fits(*weights, value);
  });
  report.base = weights->path();
  report.trained_base = has_file ? base->path : "";
  report.is_trained_base = false;
  return as_files_have(merge_adapter(std::move(weights), adapter), forms);
}

// Returns the config.json of a merged model: the snapshot's, completed with values of the model's
// own files, for example ids of special tokens. The type of the exported weights is set under the
// newer and the older name of its key (dtype, torch_dtype).
json published_config(const Snapshot& snapshot, const std::optional<AnswerEnds>& ends, BlockType type) {
  const std::string base = snapshot.recipe.place.path();
  json config = base.empty() ? json::object() : ModelFiles::open(base).config();
  config.update(with_special_ids(snapshot.config, snapshot.recipe.place));
  config.erase("quantization_config");
  config["dtype"] = type == BlockType::kF16 ? "float16" : type == BlockType::kBf16 ? "bfloat16" : "float32";
  config["torch_dtype"] = config["dtype"];
  if (ends && !ends->tokens.empty()) config["eos_token_id"] = eos_ids_with(config, *ends);
  return config;
}

// True if the rotary positions have divisors from a GGUF file that llama3 scaling cannot express
// (rope_parameters.h).
bool has_other_divisors(const Snapshot& snapshot) {
  const auto type_in = [](const json& config) {
    return config.value("rope_parameters", json::object()).value("rope_type", std::string());
  };
  return type_in(model_json(snapshot.recipe.model)) == "divisors" && type_in(snapshot.config) == "longrope";
}

// Returns a description, for example "adapter of 4 layers, rank 2 to 8".
std::string adapter_text(const Adapter& adapter) {
  const auto [minimum, maximum] =
      std::minmax_element(adapter.layers.begin(), adapter.layers.end(),
                          [](const AdapterLayer& a, const AdapterLayer& b) { return a.rank < b.rank; });
  return "adapter of " + std::to_string(adapter.layers.size()) + " layers, rank " + std::to_string(minimum->rank) +
         (minimum->rank == maximum->rank ? "" : " to " + std::to_string(maximum->rank)) +
         (adapter.saved.empty() ? ""
                                : ", and " + std::to_string(adapter.saved.size()) +
                                      (adapter.saved.size() == 1 ? " whole tensor" : " whole tensors"));
}

// Returns a description of the layers whose scale the one alpha of a GGUF adapter cannot express.
std::string folded_text(const FoldedScales& folded) {
  if (folded.layers == 0) return "";
  return "; B of " + std::to_string(folded.layers) + " holds a factor, because a GGUF adapter has one alpha" +
         (folded.rounded == 0 ? ", exactly"
                              : " (" + std::to_string(folded.rounded) +
                                    " of them rounded once to F32, by at most 2^-24 of each number)");
}

void export_adapter(const Snapshot& snapshot, const ExportRequest& request, ExportReport& report) {
  const Adapter adapter = snapshot.adapter();
  write_folder(request, adapter_folder(snapshot.recipe),
               [&](const SnapshotDirectory& folder) { write_adapter(adapter, snapshot.recipe, folder); });
  report.what = adapter_text(adapter);
  report.notes = adapter_lines(snapshot.recipe, request.to);
}

void export_adapter_gguf(const Snapshot& snapshot, const ExportRequest& request, ExportReport& report) {
  const Adapter adapter = snapshot.adapter();
  if (!adapter.is_of_language)
    throw UserError(snapshot.recipe.name +
                    ": model: --adapter-gguf is for language models, which llama.cpp runs; export --adapter");
  const std::string architecture = gguf_architecture_of(snapshot.config.at("model_type"));
  const uint64_t head = snapshot.config.value("head_dim", uint64_t{0});
  FoldedScales folded;
  const Output output(request.to, kAdapterFile, request.inputs);
  output.write([&](const std::string& to) { folded = write_gguf_adapter(adapter, architecture, head, to); });
  report.what = adapter_text(adapter) + folded_text(folded);
}

// Returns a description with the model's type. If rows of some tensors are not whole blocks of this
// type, the description also names Q5_0, in which these tensors are stored.
std::string model_text(const ExportReport& report, BlockType type) {
  const std::string word = block_layout(type).name;
  const auto others = std::count_if(report.tensors.begin(), report.tensors.end(),
                                    [](const WrittenTensor& tensor) { return tensor.type == BlockType::kQ5_0; });
  return "model of " + word +
         (others == 0
              ? ""
              : " and Q5_0 (" + std::to_string(others) + " tensors, whose rows are no whole blocks of " + word + ")");
}

void export_merged(const Snapshot& snapshot, const ExportRequest& request, ExportReport& report) {
  const BlockLayout& layout = block_layout(request.type);
  if (layout.values > 1)
    throw UserError(std::string("--type: ") + layout.name + " is for --merged-gguf; give f32, f16 or bf16",
                    UserError::kUsage);
  const std::shared_ptr<const WeightSource> weights = merged(snapshot, request, report);
  const std::optional<AnswerEnds> ends = answer_ends_of(snapshot.recipe.place);
  const json config = published_config(snapshot, ends, request.type);
  write_folder(request, merged_folder(), [&](const SnapshotDirectory& folder) {
    report.tensors = write_safetensors_model(*weights, request.type, folder.file("model.safetensors"));
    write_file(folder.file("config.json"), config.dump(2) + "\n");
    write_companions(snapshot.recipe.place, ends, folder);
  });
  report.what = model_text(report, request.type);
  if (has_other_divisors(snapshot)) {
    report.notes.push_back(
        "rope: the divisors of the GGUF's rope_freqs.weight are no llama3 of any factor; config.json has them as "
        "longrope, which transformers "
        "computes alike, and llama.cpp's converter leaves out");
  }
}

// Adds tokens that the GGUF file does not name yet: eos, and the token that ends a reply. The
// latter becomes eot; if eot already names another token, it becomes eom.
void add_ends(const GgufFile& like, const AnswerEnds& ends, GgufVocabulary& vocabulary) {
  const std::string eos = "tokenizer.ggml.eos_token_id", eot = "tokenizer.ggml.eot_token_id",
                    eom = "tokenizer.ggml.eom_token_id";
  std::vector<uint64_t> named;
  const auto set = [&](const std::string& key, int32_t id) {
    vocabulary.metadata[key] = {GgufType::kU32, {}, static_cast<uint32_t>(id)};
    named.push_back(static_cast<uint64_t>(id));
  };
  for (const std::string& key : {eos, eot, eom}) {
    if (const auto id = like.unsigned_integer(key)) named.push_back(*id);
  }
  if (!like.find_value(eos) && !ends.tokens.empty()) set(eos, ends.tokens.front());
  if (!ends.of_reply || std::count(named.begin(), named.end(), static_cast<uint64_t>(*ends.of_reply)) > 0) return;
  set(like.find_value(eot) && !like.find_value(eom) ? eom : eot, *ends.of_reply);
}

GgufVocabulary vocabulary_of(const Recipe& recipe, const GgufFile& like) {
  GgufVocabulary vocabulary;
  if (!recipe.place.new_tokens.empty()) {
    vocabulary = gguf_vocabulary(like, ModelFiles::open(recipe.place).tokenizer(),
                                 static_cast<uint64_t>(describe_model(recipe.model).vocabulary));
  }
  if (const std::optional<AnswerEnds> ends = answer_ends_of(recipe.place)) add_ends(like, *ends, vocabulary);
  return vocabulary;
}

void export_merged_gguf(const Snapshot& snapshot, const ExportRequest& request, ExportReport& report) {
  const std::string base = snapshot.recipe.place.gguf;
  if (base.empty()) {
    throw UserError(snapshot.recipe.name +
                    ": model: --merged-gguf copies tokenizer and settings from the GGUF file that the recipe names, "
                    "and it names none: " +
                    "export --merged, or --adapter-gguf");
  }
  const Output output(request.to, kModelFile, request.inputs);
  const GgufFile like(base);
  const std::shared_ptr<const WeightSource> weights = merged(snapshot, request, report);
  output.write([&](const std::string& to) {
    report.tensors = write_gguf_model(*weights, like, request.type, to, vocabulary_of(snapshot.recipe, like));
  });
  report.what = model_text(report, request.type);
}

void export_into_onnx(const Snapshot& snapshot, const ExportRequest& request, ExportReport& report) {
  const std::string& imported = snapshot.recipe.init.from;
  if (imported.empty())
    throw UserError(
        snapshot.recipe.name +
        ": init.from: missing; --onnx is for a net that `reprise import` made, whose recipe names its weights");
  const OnnxExport written = export_onnx(merged(snapshot, request, report), imported, request.to, request.inputs);
  report.what = "the ONNX model that was imported, with " + std::to_string(written.tensors) +
                " tensors of the snapshot" +
                (written.resized == 0 ? "" : ", " + std::to_string(written.resized) + " of another shape");
  if (written.in_training.empty()) return;
  std::string nodes;
  for (const auto& [op, count] : written.in_training)
    nodes += (nodes.empty() ? "" : ", ") + std::to_string(count) + " " + op;
  std::cerr << "warning: " << request.to << ": computes as in training wherever it runs, as the file that came does ("
            << nodes
            << "): batch-norms take each batch's own statistics, and what drops, drops; \"reprise import\" in "
               "tools/COMMANDS.md says which export "
               "does not\n";
}

std::string shown(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

// Returns a description of the base, because another base gives another model.
std::string base_text(const ExportReport& report) {
  if (report.base.empty()) return "";
  const std::string blocks = report.base_blocks.empty() ? "" : " as " + report.base_blocks;
  const std::string into = ", the adapter merged into " + report.base + blocks;
  if (report.is_trained_base) return into + ", which it was trained beside";
  return into + " (--base); it was trained beside " +
         (report.trained_base.empty() ? "weights that no file has" : report.trained_base);
}

// Returns the tensors with a number that was changed by rounding, the largest root mean square of
// errors first.
std::vector<WrittenTensor> rounded_tensors(const ExportReport& report) {
  std::vector<WrittenTensor> rounded = report.tensors;
  std::erase_if(rounded, [](const WrittenTensor& tensor) { return tensor.largest == 0; });
  std::stable_sort(rounded.begin(), rounded.end(),
                   [](const WrittenTensor& a, const WrittenTensor& b) { return a.rms > b.rms; });
  return rounded;
}

}  // namespace

namespace {

// Returns a description of the rounding; "" if no number was rounded.
std::string rounded_text(const ExportReport& report) {
  constexpr size_t kShown = 3;
  const std::vector<WrittenTensor> rounded = rounded_tensors(report);
  if (rounded.empty()) return "";
  const auto largest =
      std::max_element(rounded.begin(), rounded.end(),
                       [](const WrittenTensor& a, const WrittenTensor& b) { return a.largest < b.largest; });
  std::string text = "rounded: " + std::to_string(rounded.size()) + " of " + std::to_string(report.tensors.size()) +
                     " tensors; largest error " + shown(largest->largest) + " of a tensor's largest number (" +
                     largest->name + "); by root mean square the worst ";
  for (size_t n = 0; n < std::min(kShown, rounded.size()); ++n) {
    text += (n == 0 ? "" : ", ") + rounded[n].name + " (" + block_layout(rounded[n].type).name + ") " +
            shown(rounded[n].rms);
  }
  return text + "\n";
}

}  // namespace

std::string export_text(const ExportReport& report) {
  std::string text = report.to + ": " + report.what + base_text(report) + "\n" + rounded_text(report);
  for (const std::string& note : report.notes) text += note + "\n";
  return text;
}

json export_json(const ExportReport& report) {
  json value = {{"to", report.to}, {"what", report.what}};
  if (!report.base.empty()) {
    value["base"] = {{"path", report.base}, {"trained_beside", report.is_trained_base}};
    if (!report.base_blocks.empty()) value["base"]["blocks"] = report.base_blocks;
    if (!report.trained_base.empty()) value["base"]["trained_path"] = report.trained_base;
  }
  if (!report.notes.empty()) value["notes"] = report.notes;
  if (report.tensors.empty()) return value;
  value["tensors"] = json::array();
  for (const WrittenTensor& tensor : report.tensors) {
    value["tensors"].push_back({{"name", tensor.name},
                                {"type", block_layout(tensor.type).name},
                                {"largest", tensor.largest},
                                {"rms", tensor.rms}});
  }
  return value;
}

namespace {

// Returns the files and folders that an export reads; its target must not be one of them.
std::vector<std::string> inputs_of(const ExportRequest& request, const Recipe& recipe, const Recipe& trained) {
  std::vector<std::string> inputs = request.inputs;
  inputs.insert(inputs.end(), {request.snapshot, request.base});
  for (const std::string& name : snapshot_files()) inputs.push_back(request.snapshot + "/" + name);
  for (const Recipe* each : {&recipe, &trained}) {
    const std::vector<std::string> named = inputs_of(*each);
    inputs.insert(inputs.end(), named.begin(), named.end());
  }
  if (const std::optional<BaseWeights> base = read_facts(request.snapshot).base) {
    inputs.push_back(base->path);
    for (const auto& [name, sum] : base->shards) inputs.push_back((fs::path(base->path).parent_path() / name).string());
  }
  return inputs;
}

}  // namespace

ExportReport export_snapshot(const Recipe& recipe, const ExportRequest& order) {
  ExportRequest request = order;
  const LongWork work("exporting " + request.snapshot);
  std::vector<std::string> warnings;
  const Recipe trained = trained_recipe(recipe, request.snapshot, warnings);
  for (const std::string& warning : warnings) warn(warning);
  request.inputs = inputs_of(request, recipe, trained);
  if (request.form == ExportForm::kAdapter) require_replaceable(request.to, adapter_folder(trained), request.inputs);
  if (request.form == ExportForm::kMerged) require_replaceable(request.to, merged_folder(), request.inputs);
  const Snapshot snapshot = {trained, request.snapshot, model_config(trained.model),
                             open_weights(request.snapshot + "/model.safetensors")};
  ExportReport report;
  report.to = request.to;
  switch (request.form) {
    case ExportForm::kAdapter: export_adapter(snapshot, request, report); break;
    case ExportForm::kAdapterGguf: export_adapter_gguf(snapshot, request, report); break;
    case ExportForm::kMerged: export_merged(snapshot, request, report); break;
    case ExportForm::kMergedGguf: export_merged_gguf(snapshot, request, report); break;
    case ExportForm::kOnnx: export_into_onnx(snapshot, request, report); break;
  }
  return report;
}

}  // namespace reprise
