// See gguf_adapter.h. Source: llama-adapter.cpp of github.com/ggml-org/llama.cpp.
#include "tools/files/adapters/gguf_adapter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/weights/gguf_names.h"
#include "tools/files/weights/listed_weights.h"

namespace reprise {
namespace {

constexpr std::string_view kLoraA = ".lora_a", kLoraB = ".lora_b";

std::string architecture_of(const GgufFile& file) {
  const auto require = [&](const char* key, const std::string& right) {
    const std::string is = file.text(key).value_or("");
    if (is != right)
      throw UserError(file.path() + ": " + key + ": is " + json_shown(is) + ", must be " + json_shown(right));
  };
  require("general.type", "adapter");
  require("adapter.type", "lora");
  const char* const kFrom = "adapter.alora.invocation_tokens";
  if (file.find_value(kFrom) != nullptr)
    throw UserError(file.path() + ": " + kFrom + ": is not supported: such an adapter works from some token on");
  return file.text("general.architecture").value_or("");
}

struct AdapterEntry {
  const GgufTensor* tensor;
  StoredWeight weight;
  bool in_pairs;  // true if the file stores the rows in the order kPairs
  double factor = 1;
};

class GgufAdapterWeights : public ListedWeights<AdapterEntry> {
 public:
  GgufAdapterWeights(const std::string& path, uint64_t head)
      : file_(path), architecture_(architecture_of(file_)), head_(head) {
    for (const GgufTensor& tensor : file_.tensors()) add(tensor);
  }

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  void multiply(const std::string& name, double factor) { entries_.at(name).factor = factor; }

  const std::string& path() const override { return file_.path(); }

 private:
  void add(const GgufTensor& tensor) {
    const auto refuse = [&](const std::string& reason) {
      throw UserError(path() + ": tensor " + json_shown(tensor.name) + ": " + reason);
    };
    const bool is_down = tensor.name.ends_with(kLoraA), is_up = tensor.name.ends_with(kLoraB);
    if (!is_down && !is_up) refuse("is none of an adapter, which is TENSOR.lora_a or TENSOR.lora_b");
    const std::vector<GgufName> names =
        published_names(architecture_, tensor.name.substr(0, tensor.name.size() - kLoraA.size()));
    if (names.size() != 1 || !names[0].name.ends_with(".weight"))
      refuse("is of no layer that the architecture " + json_shown(architecture_) + " has by itself");
    const bool in_pairs = is_up && names[0].order == GgufOrder::kPairs;
    if (in_pairs && (tensor.shape.empty() || head_ == 0 || head_ % 2 != 0 || tensor.shape[0] % head_ != 0)) {
      refuse("its rows, " + nlohmann::json(tensor.shape).dump() + ", are no whole heads of " + std::to_string(head_));
    }
    const std::string layer = names[0].name.substr(0, names[0].name.rfind('.'));
    entries_[layer + (is_down ? ".lora_A.weight" : ".lora_B.weight")] = {
        &tensor, {tensor.shape, block_layout(tensor.type).name, DType::kF32, tensor.bytes}, in_pairs};
  }

  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const AdapterEntry& entry = entries_.at(name);
    float* at = static_cast<float*>(to);
    if (!entry.in_pairs) {
      file_.read(*entry.tensor, first, count, at);
    } else {
      const uint64_t columns = entry.tensor->shape.back();
      for (uint64_t done = 0; done < count;) {
        const uint64_t row = (first + done) / columns, column = (first + done) % columns,
                       size = std::min(count - done, columns - column);
        file_.read(*entry.tensor, paired_row(row, head_) * columns + column, size, at + done);
        done += size;
      }
    }
    if (entry.factor == 1) return;
    for (uint64_t i = 0; i < count; ++i) at[i] = static_cast<float>(at[i] * entry.factor);
  }

  GgufFile file_;
  std::string architecture_;
  uint64_t head_;
};

// Returns the settings with the ranks that the file's matrices A have.
LoraSettings with_ranks_of(const WeightSource& weights, LoraSettings settings) {
  std::vector<LayerNumbers> layers;
  for (const std::string& layer : adapted_layers(weights)) {
    const std::vector<uint64_t>& shape = weights.find(layer + ".lora_A.weight")->shape;
    layers.push_back({layer, shape.empty() ? 0 : static_cast<int>(shape[0]), settings.alpha_of(layer)});
  }
  set_patterns(settings, std::move(layers));
  return settings;
}

}  // namespace

GgufAdapter open_gguf_adapter(const std::string& path, uint64_t head, bool fan_in_fan_out, const LoraSettings& wanted) {
  constexpr double kAlphasRounding = 0x1p-22;  // maximum relative error of an alpha that was rounded to f32
  const auto weights = std::make_shared<GgufAdapterWeights>(path, head);
  GgufAdapter answer = {find_adapter(weights, with_ranks_of(*weights, wanted), fan_in_fan_out),
                        {},
                        weights->architecture()};
  const double alpha = weights->file().number("adapter.lora.alpha").value_or(0);
  if (!std::isfinite(alpha) || alpha < 0)
    throw UserError(path + ": adapter.lora.alpha: is " + std::to_string(alpha) +
                    ", must be a number above 0, or 0 for none");
  for (const AdapterLayer& layer : answer.adapter.layers) {
    const double scale = alpha == 0 ? 1 : alpha / static_cast<double>(layer.rank),
                 factor = scale / answer.adapter.settings.scale_of(layer.name);
    if (std::fabs(factor - 1) < kAlphasRounding) continue;
    int exponent = 0;
    ++answer.unfolded.layers;
    answer.unfolded.rounded += std::frexp(factor, &exponent) != 0.5 ? 1 : 0;
    weights->multiply(layer.up(), factor);
  }
  return answer;
}

}  // namespace reprise
