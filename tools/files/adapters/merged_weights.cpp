// See merged_weights.h.
#include "tools/files/adapters/merged_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/weights/tied_head.h"

namespace reprise {
namespace {

// The product of a layer's A and B in the base's layout. Its row i is the sum over r of left[i, r]
// * right[r].
struct Product {
  std::vector<float> left;   // [rows, r], already multiplied by the scale
  std::vector<float> right;  // [r, columns]
};

// Splits elements [first, first + count) of a matrix into ranges that are each within one row.
// Calls visit(row, first column, first element, size) for each range.
template <typename Visit>
void for_each_row_piece(uint64_t first, uint64_t count, uint64_t columns, const Visit& visit) {
  for (const uint64_t end = first + count; first < end;) {
    const uint64_t row = first / columns, at = first % columns, size = std::min(end - first, columns - at);
    visit(row, at, first, size);
    first += size;
  }
}

std::vector<float> transposed(const std::vector<float>& matrix, uint64_t rows, uint64_t columns) {
  std::vector<float> result(matrix.size());
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) result[c * rows + r] = matrix[r * columns + c];
  }
  return result;
}

class MergedWeights : public WeightSource {
 public:
  MergedWeights(std::shared_ptr<const WeightSource> base, const Adapter& adapter)
      : base_(std::move(base)), adapter_(adapter) {
    for (const AdapterLayer& layer : adapter_.layers) add(layer);
    for (const std::string& name : adapter_.saved) saved_[stored_name(*base_, name)] = name;
    for (const std::string& name : base_->names()) {
      if (belongs(name)) names_.push_back(name);
    }
    for (const auto& [there, name] : saved_) {
      if (base_->find(there) == nullptr) names_.push_back(there);
    }
    std::sort(names_.begin(), names_.end());
  }
  const std::string& path() const override { return base_->path(); }
  std::vector<std::string> names() const override { return names_; }
  const StoredWeight* find(const std::string& name) const override {
    const auto merged = merged_.find(name);
    if (merged != merged_.end()) return &merged->second.weight;
    if (const auto saved = saved_.find(name); saved != saved_.end()) return adapter_.weights->find(saved->second);
    return belongs(name) ? base_->find(name) : nullptr;
  }

 private:
  bool belongs(const std::string& name) const {
    return !is_adapter_tensor(name) && !(adapter_.is_tied && name == kHead);
  }

  struct Merged {
    const AdapterLayer* layer;
    std::string there;  // the tensor's name in the base
    StoredWeight weight;
  };

  uint64_t columns_of(const Merged& merged) const {
    return adapter_.fan_in_fan_out ? merged.layer->out : merged.layer->in;
  }

  void add(const AdapterLayer& layer) {
    const std::string there = stored_name(*base_, layer.weight());
    const StoredWeight* weight = base_->find(there);
    std::vector<uint64_t> shape = {layer.out, layer.in};
    if (adapter_.fan_in_fan_out) std::swap(shape[0], shape[1]);
    if (!layer.window.empty()) shape = {layer.out}, shape.insert(shape.end(), layer.window.begin(), layer.window.end());
    const auto refuse = [&](const std::string& reason) {
      throw UserError(adapter_.weights->path() + ": the adapter of " + json_shown(layer.name) +
                      " is of another model: " + base_->path() + " " + reason);
    };
    if (weight == nullptr) refuse("has no tensor " + json_shown(there));
    if (weight->shape != shape) {
      refuse("has it as " + nlohmann::json(weight->shape).dump() + ", the adapter is for " +
             nlohmann::json(shape).dump());
    }
    merged_[there] = {&layer, there, {shape, "F32", DType::kF32, layer.in * layer.out * sizeof(float)}};
  }

  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto merged = merged_.find(name);
    if (merged != merged_.end()) return read_merged(merged->second, first, count, static_cast<float*>(to));
    if (const auto saved = saved_.find(name); saved != saved_.end())
      return adapter_.weights->read_exact(saved->second, first, count, to);
    base_->read_exact(name, first, count, to);
  }

  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    base_->read_stored(name, first, count, to);
  }

  void read_merged(const Merged& merged, uint64_t first, uint64_t count, float* to) const {
    hold(merged);
    read_sum(merged, first, count, to);
    if (factors_.empty()) return;
    for_each_row_piece(first, count, columns_of(merged),
                       [&](uint64_t row, uint64_t at, uint64_t element, uint64_t size) {
                         for (uint64_t c = 0; c < size; ++c)
                           to[element - first + c] *= factors_[adapter_.fan_in_fan_out ? at + c : row];
                       });
  }

  // Reads W + scale * B A, without DoRA's factors.
  void read_sum(const Merged& merged, uint64_t first, uint64_t count, float* to) const {
    base_->read(merged.there, first, count, to);
    const uint64_t columns = columns_of(merged), rank = merged.layer->rank;
    for_each_row_piece(first, count, columns, [&](uint64_t row, uint64_t at, uint64_t element, uint64_t size) {
      for (uint64_t r = 0; r < rank; ++r) {
        const float factor = product_.left[row * rank + r];
        const float* right = product_.right.data() + r * columns + at;
        for (uint64_t c = 0; c < size; ++c) to[element - first + c] += factor * right[c];
      }
    });
  }

  // Returns one factor for each output: its magnitude divided by the length of its row.
  std::vector<float> dora_factors(const Merged& merged) const {
    const uint64_t rows = merged.weight.shape[0], columns = columns_of(merged);
    std::vector<double> squares(merged.layer->out);
    std::vector<float> line(columns);
    for (uint64_t row = 0; row < rows; ++row) {
      read_sum(merged, row * columns, columns, line.data());
      for (uint64_t c = 0; c < columns; ++c)
        squares[adapter_.fan_in_fan_out ? c : row] += static_cast<double>(line[c]) * static_cast<double>(line[c]);
    }
    std::vector<float> factors = read_magnitudes(*adapter_.weights, *merged.layer);
    for (size_t k = 0; k < factors.size(); ++k) {
      const float norm = static_cast<float>(std::sqrt(squares[k]));
      factors[k] = norm > 0 ? factors[k] / norm : 0.0f;
    }
    return factors;
  }

  void hold(const Merged& merged) const {
    const AdapterLayer& layer = *merged.layer;
    if (held_ == &layer) return;
    const float scale = static_cast<float>(adapter_.settings.scale_of(layer.name));
    std::vector<float> down = read_matrix(*adapter_.weights, layer.down()),
                       up = read_matrix(*adapter_.weights, layer.up());
    for (float& b : up) b *= scale;
    product_ = adapter_.fan_in_fan_out
                   ? Product{transposed(down, layer.rank, layer.in), transposed(up, layer.out, layer.rank)}
                   : Product{std::move(up), std::move(down)};
    if (adapter_.settings.dora) factors_ = dora_factors(merged);
    held_ = &layer;
  }

  std::shared_ptr<const WeightSource> base_;
  Adapter adapter_;
  std::map<std::string, Merged> merged_;
  std::map<std::string, std::string> saved_;  // the tensor's name in the base -> its name in the adapter
  std::vector<std::string> names_;
  mutable const AdapterLayer* held_ = nullptr;
  mutable Product product_;
  mutable std::vector<float> factors_;  // DoRA's factors of the current layer; empty without DoRA
};

}  // namespace

std::unique_ptr<WeightSource> merge_adapter(std::shared_ptr<const WeightSource> base, const Adapter& adapter) {
  return std::make_unique<MergedWeights>(std::move(base), adapter);
}

}  // namespace reprise
