// The conversions of weights.h.
// Tensors come and go in pieces through one small buffer: a snapshot needs no copy of the weights.
// It must not know steps or schedules.
#include "tools/training/weights.h"

#include <algorithm>
#include <cstring>

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

// A convolution's weight goes between memory's [K,R,S,C] and the file's [K,C,R,S] one output channel at a time.
struct ConvChannel {
  explicit ConvChannel(const Tensor& t) : window(uint64_t{t.shape[1]} * t.shape[2]), channels(t.shape[3]), stored(window * channels), planned(window * channels) {}

  void from_file() {
    for_each([this](uint64_t file, uint64_t memory) { planned[memory] = stored[file]; });
  }
  void to_file() {
    for_each([this](uint64_t file, uint64_t memory) { stored[file] = planned[memory]; });
  }
  uint64_t bytes() const { return stored.size() * sizeof(float); }

  uint64_t window, channels;
  std::vector<float> stored, planned;  // [C, R*S] and [R*S, C]

 private:
  template <typename F>
  void for_each(const F& visit) {
    for (uint64_t c = 0; c < channels; ++c) {
      for (uint64_t rs = 0; rs < window; ++rs) visit(c * window + rs, rs * channels + c);
    }
  }
};

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

void require(const Status& status) {
  if (!status.ok()) throw UserError(std::string("the arena cannot be reached: ") + status.message);
}

void copy_in(const Trainer& trainer, uint32_t index, const StoredTensor& stored) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  const ArenaAddress to = trainer.state_tensor(index);
  if (!is_conv_weight(tensor)) return require(trainer.write(to, stored.data, stored.bytes));
  ConvChannel channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    std::memcpy(channel.stored.data(), stored.data + k * channel.bytes(), channel.bytes());  // the file promises no alignment
    channel.from_file();
    require(trainer.write(to + k * channel.bytes(), channel.planned.data(), channel.bytes()));
  }
}

void copy_out(const Trainer& trainer, uint32_t index, SafetensorsWriter& writer) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  const ArenaAddress from = trainer.state_tensor(index);
  if (is_conv_weight(tensor)) {
    ConvChannel channel(tensor);
    for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
      require(trainer.read(channel.planned.data(), from + k * channel.bytes(), channel.bytes()));
      channel.to_file();
      writer.write(channel.stored.data(), channel.bytes());
    }
    return;
  }
  std::vector<unsigned char> piece(uint64_t{64} << 10);
  const uint64_t bytes = tensor.used_bytes();
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    const uint64_t size = std::min<uint64_t>(piece.size(), bytes - at);
    require(trainer.read(piece.data(), from + at, size));
    writer.write(piece.data(), size);
  }
}

}  // namespace

void read_state(const Trainer& trainer, const SafetensorsFile& file, StatePart part) {
  const Plan& plan = *trainer.plan;
  for (const StateTensor& state : plan.state) {
    if (belongs(state, part)) find_tensor(file, state);  // all of them, before the first is changed
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (belongs(state, part)) copy_in(trainer, i, find_tensor(file, state));
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
    if (belongs(plan.state[i], part)) copy_out(trainer, i, writer);
  }
  writer.finish();
}

}  // namespace reprise
