// The conversions of weights.h.
// Tensors are written in pieces through one small buffer: a snapshot needs no copy of the weights.
// It must not know steps or schedules.
#include "tools/training/weights.h"

#include <cstring>
#include <functional>

#include "tools/formats/error.h"

namespace reprise {

namespace {

bool belongs(const StateTensor& state, StatePart part) {
  if (part == StatePart::kOptimizer) return state.kind == StateKind::kOptimizer;
  return state.kind == StateKind::kParameter || state.kind == StateKind::kBuffer;
}

bool is_conv_weight(const Tensor& tensor) { return tensor.rank == 4; }

StoredType stored_type(const Tensor& tensor) { return tensor.dtype == DType::kI64 ? StoredType::kI64 : StoredType::kF32; }

std::vector<uint64_t> stored_shape(const Tensor& t) {
  if (is_conv_weight(t)) return {t.shape[0], t.shape[3], t.shape[1], t.shape[2]};
  return std::vector<uint64_t>(t.shape, t.shape + t.rank);
}

// Calls visit(index in the file's [K,C,R,S], index in memory's [K,R,S,C]) for every element.
template <typename F>
void for_each_conv_element(const Tensor& t, const F& visit) {
  const uint64_t window = uint64_t{t.shape[1]} * t.shape[2], channels = t.shape[3];
  uint64_t stored = 0;
  for (uint64_t k = 0; k < t.shape[0]; ++k) {
    for (uint64_t c = 0; c < channels; ++c) {
      for (uint64_t rs = 0; rs < window; ++rs) visit(stored++, (k * window + rs) * channels + c);
    }
  }
}

const StoredTensor& find_tensor(const SafetensorsFile& file, const StateTensor& state) {
  static const std::string kPrefix = "transformer.";
  const std::string name = state.name;
  const size_t prefix = name.find(kPrefix);
  if (!file.contains(name) && prefix != std::string::npos) {
    const std::string bare = name.substr(0, prefix) + name.substr(prefix + kPrefix.size());
    if (file.contains(bare)) return file.find(bare, stored_type(state.tensor), stored_shape(state.tensor));
  }
  return file.find(name, stored_type(state.tensor), stored_shape(state.tensor));
}

void copy_in(const StoredTensor& stored, const Tensor& tensor, void* to) {
  if (!is_conv_weight(tensor)) {
    std::memcpy(to, stored.data, stored.bytes);
    return;
  }
  for_each_conv_element(tensor, [&](uint64_t from_index, uint64_t to_index) {
    std::memcpy(static_cast<float*>(to) + to_index, stored.data + from_index * sizeof(float), sizeof(float));
  });
}

void copy_out(const Tensor& tensor, const void* from, SafetensorsWriter& writer) {
  if (!is_conv_weight(tensor)) {
    writer.write(from, tensor.used_bytes());
    return;
  }
  float piece[4096];
  size_t filled = 0;
  for_each_conv_element(tensor, [&](uint64_t, uint64_t index) {
    piece[filled++] = static_cast<const float*>(from)[index];
    if (filled == std::size(piece)) {
      writer.write(piece, sizeof piece);
      filled = 0;
    }
  });
  writer.write(piece, filled * sizeof(float));
}

}  // namespace

void read_state(const Trainer& trainer, const SafetensorsFile& file, StatePart part) {
  const Plan& plan = *trainer.plan;
  for (const StateTensor& state : plan.state) {
    if (belongs(state, part)) find_tensor(file, state);  // all of them, before the first is changed
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (belongs(state, part)) copy_in(find_tensor(file, state), state.tensor, trainer.state_tensor(i));
  }
}

void write_state(const Trainer& trainer, const std::string& path, StatePart part,
                 const std::vector<std::pair<std::string, std::string>>& metadata) {
  const Plan& plan = *trainer.plan;
  SafetensorsWriter writer(path);
  for (const auto& [key, value] : metadata) writer.add_metadata(key, value);
  for (const StateTensor& state : plan.state) {
    if (belongs(state, part)) writer.declare(state.name, stored_type(state.tensor), stored_shape(state.tensor));
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (belongs(plan.state[i], part)) copy_out(plan.state[i].tensor, trainer.state_tensor(i), writer);
  }
  writer.finish();
}

}  // namespace reprise
