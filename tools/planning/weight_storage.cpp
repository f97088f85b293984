// See weight_storage.h.
#include "tools/planning/weight_storage.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tools/formats/text.h"
#include "tools/graph/rules.h"
#include "tools/recipes/recipe_graph.h"
#include "tools/weights/quantised_weights.h"

namespace reprise {
namespace {

// By value: the formats that every kernel of training and evaluation takes which reads it; none where one reads it as something else than a
// matrix of weights.
std::vector<WeightFormats> formats_taken(Graph graph, const BackendRules& rules) {
  std::vector<WeightFormats> formats(graph.values.size(), kEveryWeight);
  std::vector<Call> calls = evaluation_calls(graph);
  const std::vector<Call> backward = BackwardBuilder(graph).build(0, graph.nodes.size(), graph.input, kNoValue, kNoValue).calls;
  calls.insert(calls.end(), backward.begin(), backward.end());
  for (const Call& call : calls) {
    const uint32_t kernel = kernel_index(call.op, call.pass);
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (call.arguments[a] >= formats.size()) continue;
      formats[call.arguments[a]] &= kOps[kernel].arguments[a].storage == Storage::kWeight ? rules.kernels[kernel].weights : 0;
    }
  }
  return formats;
}

// The file that holds the frozen weights; "": none, or none stays frozen.
std::string file_of_frozen(const Recipe& recipe) { return recipe.lora || !recipe.freeze.empty() ? published_weights(recipe) : ""; }

// visit(value, stored) for each frozen parameter that the model's own files hold.
template <typename Visit>
void for_each_frozen(const Graph& graph, const WeightSource& weights, const Visit& visit) {
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.kind != ValueKind::kParameter || value.trainable) continue;
    if (const StoredWeight* stored = weights.find(stored_name(weights, value.name))) visit(v, *stored);
  }
}

// What safetensors has a type for.
constexpr WeightFormats single_numbers() {
  WeightFormats formats = 0;
  for (uint32_t type = 0; type < kDTypeCount; ++type) {
    if (kDTypes[type].block_elements == 1) formats |= weight_format(static_cast<DType>(type));
  }
  return formats;
}

// Which formats a parameter may have for what else is done with it: plain numbers can be drawn where the file's are not taken, and whole
// snapshots are files of safetensors; a training of adapters saves these alone.
WeightFormats formats_kept(const Recipe& recipe, const std::string& name) {
  const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, name); };
  const bool is_drawn = std::any_of(recipe.init.skip.begin(), recipe.init.skip.end(), matches);
  if (is_drawn || (!recipe.init.from.empty() && !recipe.weights.frozen)) return kPlainWeights;
  return recipe.lora ? kEveryWeight : single_numbers();
}

void store_as_published(Graph& graph, const BackendRules& rules, const Recipe& recipe, const WeightSource& weights) {
  const std::vector<WeightFormats> taken = formats_taken(graph, rules);
  for_each_frozen(graph, weights, [&](ValueId v, const StoredWeight& stored) {
    Value& value = graph.values[v];
    if (!stored.format || !takes_weights(taken[v] & formats_kept(recipe, value.name), *stored.format)) return;
    value.tensor.dtype = *stored.format;
    value.tensor.bytes = align_up(value.tensor.used_bytes());
  });
}

}  // namespace

std::unique_ptr<WeightSource> open_model_weights(const Recipe& recipe, const std::string& path) {
  std::unique_ptr<WeightSource> weights = open_weights(path);
  return recipe.weights.frozen ? quantise_weights(std::move(weights), *recipe.weights.frozen) : std::move(weights);
}

Graph build_stored_model(const Recipe& recipe, const BackendRules& rules, MicroBatch batch) {
  Graph graph = build_model(recipe, {recipe.name}, batch);
  if (const std::string file = file_of_frozen(recipe); !file.empty()) store_as_published(graph, rules, recipe, *open_model_weights(recipe, file));
  return graph;
}

Graph build_stored_model(const Recipe& recipe, const BackendRules& rules) { return build_stored_model(recipe, rules, micro_batch_of(recipe)); }

WidenedWeights widened_weights(const Recipe& recipe, const Graph& graph) {
  WidenedWeights widened;
  const std::string path = file_of_frozen(recipe);
  if (path.empty()) return widened;
  const std::unique_ptr<WeightSource> weights = open_model_weights(recipe, path);
  widened.path = weights->path();
  for_each_frozen(graph, *weights, [&](ValueId v, const StoredWeight& stored) {
    const Tensor& tensor = graph.values[v].tensor;
    if (tensor.rank < 2 || stored.bytes >= tensor.used_bytes()) return;
    ++widened.tensors;
    widened.file_bytes += stored.bytes;
    widened.memory_bytes += tensor.bytes;
    widened.bf16_bytes += align_up(tensor.elements() * sizeof(Bf16));
  });
  return widened;
}

std::string widened_text(const WidenedWeights& widened) {
  return bytes_text(widened.memory_bytes) + " of the state are frozen weights of " + std::filesystem::path(widened.path).filename().string() + ", widened from its " +
         bytes_text(widened.file_bytes) + " to f32; with \"weights\": {\"frozen\": \"bf16\"} they would take " + bytes_text(widened.bf16_bytes);
}

}  // namespace reprise
