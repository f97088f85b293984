// See adapter.h.
#include "tools/files/adapters/adapter.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

constexpr std::string_view kDown = ".lora_A.weight", kUp = ".lora_B.weight", kMagnitudes = ".lora_magnitude_vector";

[[noreturn]] void refuse_adapter_tensor(const WeightSource& weights, const std::string& name,
                                        const std::string& reason) {
  throw UserError(weights.path() + ": tensor " + json_shown(name) + ": " + reason);
}

bool is_float_weight(const StoredWeight& weight) { return weight.exact == DType::kF32 || weight.exact == DType::kBf16; }
std::string stored_form(const StoredWeight& weight) { return weight.type + " " + nlohmann::json(weight.shape).dump(); }

// Returns [rows, columns] of a matrix of floats. For a convolution's weight, the columns are the
// product of all dimensions after the first.
std::vector<uint64_t> matrix_shape(const WeightSource& weights, const std::string& name) {
  const StoredWeight* weight = weights.find(name);
  if (weight == nullptr) refuse_adapter_tensor(weights, name, "missing; an adapter has both matrices of a layer");
  const std::vector<uint64_t>& shape = weight->shape;
  if (!is_float_weight(*weight) || (shape.size() != 2 && shape.size() != 4))
    refuse_adapter_tensor(weights, name,
                          "is " + stored_form(*weight) +
                              ", must be a matrix, or a convolution's weight, of F32, F16 or BF16");
  return {shape[0], std::accumulate(shape.begin() + 1, shape.end(), uint64_t{1}, std::multiplies<>())};
}

void require_magnitudes(const WeightSource& weights, const AdapterLayer& layer) {
  const StoredWeight* weight = weights.find(layer.magnitude());
  if (weight == nullptr)
    refuse_adapter_tensor(weights, layer.magnitude(), "missing; a layer of DoRA has it beside both matrices");
  if (is_float_weight(*weight) && weight->shape == std::vector<uint64_t>{layer.out}) return;
  refuse_adapter_tensor(weights, layer.magnitude(),
                        "is " + stored_form(*weight) + ", must be [" + std::to_string(layer.out) +
                            "] of F32, F16 or BF16");
}

// Throws if a layer of a DoRA has no valid magnitudes, or if there are magnitudes without a layer
// or without DoRA.
void require_dora_of(const WeightSource& weights, const Adapter& adapter) {
  for (const AdapterLayer& layer : adapter.layers) {
    if (adapter.settings.dora) require_magnitudes(weights, layer);
  }
  for (const std::string& name : weights.names()) {
    if (!name.ends_with(kMagnitudes)) continue;
    if (!adapter.settings.dora)
      refuse_adapter_tensor(weights, name, "is DoRA's, which the adapter's settings do not name");
    const std::string layer = name.substr(0, name.size() - kMagnitudes.size());
    if (weights.find(layer + std::string(kDown)) == nullptr)
      refuse_adapter_tensor(weights, name, "stands beside no adapter");
  }
}

}  // namespace

bool is_adapter_tensor(const std::string& name) {
  return name.ends_with(kDown) || name.ends_with(kUp) || name.ends_with(kMagnitudes);
}

std::vector<std::string> adapted_layers(const WeightSource& weights) {
  std::vector<std::string> layers;
  for (const std::string& name : weights.names()) {
    if (name.ends_with(kDown)) layers.push_back(name.substr(0, name.size() - kDown.size()));
  }
  return layers;
}

Adapter find_adapter(std::shared_ptr<const WeightSource> weights, const LoraSettings& settings, bool fan_in_fan_out) {
  Adapter adapter = {settings, fan_in_fan_out, weights, {}, {}};
  for (const std::string& name : weights->names()) {
    if (!is_adapter_tensor(name)) {
      adapter.saved.push_back(name);
      continue;
    }
    if (name.ends_with(kMagnitudes)) continue;  // checked by require_dora_of() below
    const AdapterLayer named = {name.substr(0, name.size() - kDown.size())};
    const uint64_t rank = static_cast<uint64_t>(settings.rank_of(named.name));
    const std::vector<uint64_t> down = matrix_shape(*weights, named.down()), up = matrix_shape(*weights, named.up());
    if (down[0] != rank || up[1] != rank) {
      throw UserError(weights->path() + ": tensor " + json_shown(name) + ": the layer's matrices are " +
                      nlohmann::json(down).dump() + " and " + nlohmann::json(up).dump() + ", which is not rank " +
                      std::to_string(rank));
    }
    if (!name.ends_with(kDown)) continue;
    adapter.layers.push_back({named.name, down[1], up[0], rank});
    const std::vector<uint64_t>& shape = weights->find(name)->shape;
    if (shape.size() == 4) adapter.layers.back().window.assign(shape.begin() + 1, shape.end());
  }
  if (adapter.layers.empty()) throw UserError(weights->path() + ": has no adapter: no tensor is named *.lora_A.weight");
  require_dora_of(*weights, adapter);
  return adapter;
}

std::vector<float> read_matrix(const WeightSource& weights, const std::string& name) {
  const std::vector<uint64_t> shape = matrix_shape(weights, name);
  std::vector<float> numbers(shape[0] * shape[1]);
  weights.read(name, 0, numbers.size(), numbers.data());
  return numbers;
}

std::vector<float> read_magnitudes(const WeightSource& weights, const AdapterLayer& layer) {
  std::vector<float> numbers(layer.out);
  weights.read(layer.magnitude(), 0, numbers.size(), numbers.data());
  return numbers;
}

}  // namespace reprise
