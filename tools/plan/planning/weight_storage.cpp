// The storage formats of weight_storage.h.
#include "tools/plan/planning/weight_storage.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tools/files/adapters/grown_tables.h"
#include "tools/files/io/text.h"
#include "tools/files/weights/quantised_weights.h"
#include "tools/plan/graph/rules.h"
#include "tools/plan/recipes/recipe_graph.h"

namespace reprise {
namespace {

// Returns, for each value, the formats that are accepted by all kernels that read the value in
// training or evaluation. The set is empty if a kernel reads the value as anything but a weight.
std::vector<WeightFormats> formats_taken(Graph graph, const BackendRules& rules) {
  std::vector<WeightFormats> formats(graph.values.size(), kEveryWeight);
  std::vector<Call> calls = evaluation_calls(graph);
  const std::vector<Call> backward =
      BackwardBuilder(graph).build(0, graph.nodes.size(), graph.input, kNoValue, kNoValue).calls;
  calls.insert(calls.end(), backward.begin(), backward.end());
  for (const Call& call : calls) {
    const uint32_t kernel = kernel_index(call.op, call.pass);
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (call.arguments[a] >= formats.size()) continue;
      formats[call.arguments[a]] &=
          kOps[kernel].arguments[a].storage == Storage::kWeight ? rules.kernels[kernel].weights : 0;
    }
  }
  return formats;
}

bool freezes(const Recipe& recipe) { return recipe.lora || !recipe.freeze.empty(); }

// True if `path` is the model's own file, or a file in the model's own folder.
bool is_of(const ModelPlace& place, const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path file = path;
  return std::filesystem::equivalent(file, place.path(), ignored) ||
         std::filesystem::equivalent(file.parent_path(), place.path(), ignored);
}

// Calls visit(value) for each frozen parameter.
template <typename Visit>
void for_each_frozen(const Graph& graph, const Visit& visit) {
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::kParameter && !graph.values[v].trainable) visit(v);
  }
}

// Returns the formats of single numbers, for which safetensors has types.
constexpr WeightFormats single_numbers() {
  WeightFormats formats = 0;
  for (uint32_t type = 0; type < kDTypeCount; ++type) {
    if (kDTypes[type].block_elements == 1) formats |= weight_format(static_cast<DType>(type));
  }
  return formats;
}

// Returns the formats in which a parameter can be initialised and saved. Parameters that are drawn,
// or loaded from other files, must be plain numbers. A complete snapshot is a safetensors file, so
// its weights must be single numbers. A training of adapters saves only the adapters, so its frozen
// weights may have any format.
WeightFormats formats_kept(const Recipe& recipe, const std::string& name) {
  const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, name); };
  const bool is_drawn = std::any_of(recipe.init.skip.begin(), recipe.init.skip.end(), matches);
  if (is_drawn || (!recipe.init.from.empty() && !recipe.weights.frozen)) return kPlainWeights;
  return recipe.lora ? kEveryWeight : single_numbers();
}

// Returns the preferred format of a frozen parameter: its format in `weights` or, if there is no
// such file, the recipe's format for frozen matrices. Returns nothing if it has no preferred
// format.
std::optional<DType> wanted_format(const Graph& graph, ValueId v, const Recipe& recipe, const WeightSource* weights) {
  if (weights != nullptr) {
    const StoredWeight* stored = weights->find(stored_name(*weights, graph.values[v].name));
    return stored == nullptr ? std::nullopt : stored->format;
  }
  const Tensor& tensor = graph.values[v].tensor;
  return recipe.weights.frozen && tensor.rank == 2 ? quantised_format(*recipe.weights.frozen, tensor.last_dimension())
                                                   : std::nullopt;
}

void store_as(Value& value, DType format) {
  value.tensor.dtype = format;
  value.tensor.bytes = align_up(value.tensor.used_bytes());
}

void store_frozen(Graph& graph, const BackendRules& rules, const Recipe& recipe, const WeightSource* weights) {
  const std::vector<WeightFormats> taken = formats_taken(graph, rules);
  for_each_frozen(graph, [&](ValueId v) {
    Value& value = graph.values[v];
    const std::optional<DType> format = wanted_format(graph, v, recipe, weights);
    if (!format || !takes_weights(taken[v] & formats_kept(recipe, value.name), *format)) return;
    store_as(value, *format);
  });
}

// Stores each trained parameter in this format if every kernel that reads it accepts the format.
void store_trained(Graph& graph, const BackendRules& rules, DType storage) {
  const std::vector<WeightFormats> taken = formats_taken(graph, rules);
  for (ValueId v = 0; v < taken.size(); ++v) {
    Value& value = graph.values[v];
    if (value.kind == ValueKind::kParameter && value.trainable && takes_weights(taken[v], storage))
      store_as(value, storage);
  }
}

}  // namespace

std::unique_ptr<WeightSource> open_model_weights(const Recipe& recipe, const std::string& path) {
  std::unique_ptr<WeightSource> weights = as_graph_has(open_weights(path), stored_forms(recipe));
  if (const ModelPlace& place = recipe.place; !place.new_tokens.empty()) {
    weights = grow_tables(std::move(weights),
                          {.rows = static_cast<uint64_t>(describe_model(recipe.model).vocabulary),
                           .makes_spare = is_of(place, path),
                           .tokenizer = [place](NewTokens& made) { return ModelFiles::open(place).tokenizer(&made); }});
  }
  return recipe.weights.frozen ? quantise_weights(std::move(weights), *recipe.weights.frozen) : std::move(weights);
}

std::unique_ptr<WeightSource> open_published(const Recipe& recipe) {
  const std::string file = freezes(recipe) ? published_weights(recipe) : "";
  return file.empty() ? nullptr : open_model_weights(recipe, file);
}

Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch,
                         const WeightSource* published) {
  Graph graph = build_model(recipe, {recipe.name}, batch);
  if (recipe.trained.storage != DType::kF32) store_trained(graph, rules, recipe.trained.storage);
  if (freezes(recipe)) store_frozen(graph, rules, recipe, published);
  return graph;
}

Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch) {
  return build_stored_model(recipe, rules, batch, open_published(recipe).get());
}

Graph build_stored_model(const Recipe& recipe, const BackendRules& rules) {
  return build_stored_model(recipe, rules, micro_batch_of(recipe));
}

WidenedWeights widened_weights(const Recipe& recipe, const Graph& graph) {
  WidenedWeights widened;
  const std::unique_ptr<WeightSource> weights = open_published(recipe);
  if (weights == nullptr) return widened;
  widened.path = weights->path();
  for_each_frozen(graph, [&](ValueId v) {
    const Tensor& tensor = graph.values[v].tensor;
    const StoredWeight* stored = weights->find(stored_name(*weights, graph.values[v].name));
    if (stored == nullptr || tensor.rank < 2 || stored->bytes >= tensor.used_bytes()) return;
    ++widened.tensors;
    widened.file_bytes += stored->bytes;
    widened.memory_bytes += tensor.bytes;
    widened.bf16_bytes += align_up(tensor.elements() * sizeof(Bf16));
  });
  return widened;
}

std::string widened_text(const WidenedWeights& widened) {
  return bytes_text(widened.memory_bytes) + " of the state are frozen weights of " +
         std::filesystem::path(widened.path).filename().string() + ", widened from its " +
         bytes_text(widened.file_bytes) + " to f32; with \"weights\": {\"frozen\": \"bf16\"} they would take " +
         bytes_text(widened.bf16_bytes);
}

}  // namespace reprise
