// The conversions of weights.h.
// Tensors come and go in pieces through one small buffer: a snapshot needs no copy of the weights.
#include "tools/training/weights.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/models/stored_weights.h"

namespace reprise {

namespace {

bool belongs(const StateTensor& state, StatePart part) {
  if (part == StatePart::kOptimizer) return state.kind == StateKind::kOptimizer;
  return state.kind == StateKind::kParameter || state.kind == StateKind::kBuffer;
}

bool is_conv_weight(const Tensor& tensor) { return tensor.rank == 4; }

StoredType stored_type(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::kI64: return StoredType::kI64;
    case DType::kBf16: return StoredType::kBf16;
    default: return StoredType::kF32;
  }
}

}  // namespace

std::vector<uint64_t> stored_shape(const Tensor& t) {
  if (is_conv_weight(t)) return {t.shape[0], t.shape[3], t.shape[1], t.shape[2]};
  return std::vector<uint64_t>(t.shape, t.shape + t.rank);
}

namespace {

// A convolution's weight goes between memory's [K,R,S,C] and the file's [K,C,R,S] one output channel at a time.
template <typename InFile, typename InState>
struct ConvChannel {
  explicit ConvChannel(const Tensor& t) : window(uint64_t{t.shape[1]} * t.shape[2]), channels(t.shape[3]), stored(window * channels), planned(window * channels) {}

  void from_file() {
    for_each([this](uint64_t file, uint64_t memory) { planned[memory] = stored[file]; });
  }
  void to_file() {
    for_each([this](uint64_t file, uint64_t memory) { stored[file] = planned[memory]; });
  }
  uint64_t stored_bytes() const { return stored.size() * sizeof(InFile); }
  uint64_t planned_bytes() const { return planned.size() * sizeof(InState); }

  uint64_t window, channels;
  std::vector<InFile> stored;    // [C, R*S]
  std::vector<InState> planned;  // [R*S, C]

 private:
  template <typename F>
  void for_each(const F& visit) {
    for (uint64_t c = 0; c < channels; ++c) {
      for (uint64_t rs = 0; rs < window; ++rs) visit(c * window + rs, rs * channels + c);
    }
  }
};

const StoredTensor& find_tensor(const SafetensorsFile& file, const StateTensor& state) {
  const std::string name = stored_name(file, state.name);
  const std::vector<uint64_t> shape = stored_shape(state.tensor);
  const auto found = file.tensors().find(name);
  if (state.tensor.dtype == DType::kBf16 && found != file.tensors().end() && found->second.type == StoredType::kF32) {
    throw UserError(file.path() + ": tensor \"" + name + "\": is F32, must be BF16: the plan keeps this frozen weight as the model's folder " +
                    "stored it; convert it, or plan with a folder whose model.safetensors has it as F32");
  }
  if (state.tensor.dtype == DType::kF32) return file.find(name, {StoredType::kF32, StoredType::kBf16}, shape);
  return file.find(name, stored_type(state.tensor), shape);
}

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

void require(const Status& status) {
  if (!status.ok()) throw UserError(std::string("the arena cannot be reached: ") + status.message);
}

// Refuses values that would train to nothing: what is not finite, or a variance below zero.
template <typename Number>
void require_sense_of(const SafetensorsFile& file, const StateTensor& state, const StoredTensor& stored) {
  const bool is_variance = std::string_view(state.name).ends_with(".running_var");
  std::vector<Number> piece(kPieceBytes / sizeof(Number));
  for (uint64_t at = 0; at < stored.bytes / sizeof(Number); at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), stored.bytes / sizeof(Number) - at);
    file.read(stored, at * sizeof(Number), piece.data(), count * sizeof(Number));
    const auto makes_sense = [&](Number number) { return std::isfinite(float{number}) && (!is_variance || float{number} >= 0); };
    const auto wrong = std::find_if_not(piece.begin(), piece.begin() + static_cast<int64_t>(count), makes_sense);
    if (wrong == piece.begin() + static_cast<int64_t>(count)) continue;
    throw UserError(file.path() + ": tensor \"" + stored_name(file, state.name) + "\": element " +
                    std::to_string(at + static_cast<uint64_t>(wrong - piece.begin())) + " is " + std::to_string(float{*wrong}) + ", must be finite" +
                    (is_variance ? " and at least 0" : "") + ": these weights are damaged");
  }
}

void require_sense(const SafetensorsFile& file, const StateTensor& state, const StoredTensor& stored) {
  if (stored.type == StoredType::kF32) require_sense_of<float>(file, state, stored);
  if (stored.type == StoredType::kBf16) require_sense_of<Bf16>(file, state, stored);
}

template <typename InFile, typename InState>
void copy_channels_in(const Trainer& trainer, uint32_t index, const SafetensorsFile& file, const StoredTensor& stored) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  const ArenaAddress to = trainer.state_tensor(index);
  ConvChannel<InFile, InState> channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    file.read(stored, k * channel.stored_bytes(), channel.stored.data(), channel.stored_bytes());
    channel.from_file();
    require(trainer.write(to + k * channel.planned_bytes(), channel.planned.data(), channel.planned_bytes()));
  }
}

void copy_widened_in(const Trainer& trainer, uint32_t index, const SafetensorsFile& file, const StoredTensor& stored) {
  const uint64_t elements = trainer.plan->state[index].tensor.elements();
  std::vector<Bf16> narrow(kPieceBytes / sizeof(float));
  std::vector<float> wide(narrow.size());
  for (uint64_t at = 0; at < elements; at += narrow.size()) {
    const uint64_t count = std::min<uint64_t>(narrow.size(), elements - at);
    file.read(stored, at * sizeof(Bf16), narrow.data(), count * sizeof(Bf16));
    std::copy_n(narrow.begin(), count, wide.begin());
    require(trainer.write(trainer.state_tensor(index) + at * sizeof(float), wide.data(), count * sizeof(float)));
  }
}

void copy_as_stored_in(const Trainer& trainer, uint32_t index, const SafetensorsFile& file, const StoredTensor& stored) {
  std::vector<unsigned char> piece(std::min(kPieceBytes, stored.bytes));
  for (uint64_t at = 0; at < stored.bytes; at += piece.size()) {
    const uint64_t size = std::min<uint64_t>(piece.size(), stored.bytes - at);
    file.read(stored, at, piece.data(), size);
    require(trainer.write(trainer.state_tensor(index) + at, piece.data(), size));
  }
}

void copy_in(const Trainer& trainer, uint32_t index, const SafetensorsFile& file, const StoredTensor& stored) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  const bool widens = stored.type != stored_type(tensor);
  if (is_conv_weight(tensor)) {
    if (widens) return copy_channels_in<Bf16, float>(trainer, index, file, stored);
    if (tensor.dtype == DType::kBf16) return copy_channels_in<Bf16, Bf16>(trainer, index, file, stored);
    return copy_channels_in<float, float>(trainer, index, file, stored);
  }
  if (widens) return copy_widened_in(trainer, index, file, stored);
  copy_as_stored_in(trainer, index, file, stored);
}

template <typename Stored>
void copy_channels_out(const Trainer& trainer, uint32_t index, SafetensorsWriter& writer) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  ConvChannel<Stored, Stored> channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    require(trainer.read(channel.planned.data(), trainer.state_tensor(index) + k * channel.planned_bytes(), channel.planned_bytes()));
    channel.to_file();
    writer.write(channel.stored.data(), channel.stored_bytes());
  }
}

void copy_out(const Trainer& trainer, uint32_t index, SafetensorsWriter& writer) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  if (is_conv_weight(tensor)) {
    return tensor.dtype == DType::kBf16 ? copy_channels_out<Bf16>(trainer, index, writer) : copy_channels_out<float>(trainer, index, writer);
  }
  std::vector<unsigned char> piece(kPieceBytes);
  const uint64_t bytes = tensor.used_bytes();
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    const uint64_t size = std::min<uint64_t>(piece.size(), bytes - at);
    require(trainer.read(piece.data(), trainer.state_tensor(index) + at, size));
    writer.write(piece.data(), size);
  }
}

}  // namespace

void read_state(const Trainer& trainer, const SafetensorsFile& file, StatePart part) {
  const Plan& plan = *trainer.plan;
  for (const StateTensor& state : plan.state) {
    if (belongs(state, part)) require_sense(file, state, find_tensor(file, state));  // all of them, before the first is changed
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (belongs(state, part)) copy_in(trainer, i, file, find_tensor(file, state));
  }
}

namespace {

// Why the file's tensor is not the state's, without the file's name; "" where it is.
std::string misfit_of(const SafetensorsFile& file, const StateTensor& state) {
  try {
    find_tensor(file, state);
    return "";
  } catch (const UserError& error) {
    return std::string(error.what()).substr(file.path().size() + 2);
  }
}

[[noreturn]] void refuse_misfits(const SafetensorsFile& file, const std::vector<std::string>& misfits) {
  throw UserError(file.path() + ": " + (misfits.size() == 1 ? "1 tensor does" : std::to_string(misfits.size()) + " tensors do") + " not fit: " +
                  some_of(misfits, "; ") + "; --init-skip PATTERN, or init.skip in the recipe, leaves tensors of such names at their initial values");
}

}  // namespace

InitialReport read_initial_weights(const Trainer& trainer, const SafetensorsFile& file, const InitialRules& rules) {
  const Plan& plan = *trainer.plan;
  InitialReport report;
  std::vector<const StoredTensor*> found(plan.state.count);
  std::vector<std::string> misfits;
  for (const std::string& pattern : rules.skip) {
    const auto matches = [&](const StateTensor& state) { return belongs(state, StatePart::kModel) && matches_pattern(pattern, state.name); };
    if (std::none_of(plan.state.begin(), plan.state.end(), matches)) {
      throw UserError(file.path() + ": --init-skip, init.skip: \"" + pattern + "\" matches no tensor; `reprise parameters` lists their names");
    }
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {  // all of them are looked at before the first is changed
    const StateTensor& state = plan.state[i];
    if (!belongs(state, StatePart::kModel)) continue;
    const bool is_there = file.contains(stored_name(file, state.name));
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, state.name); };
    if (std::any_of(rules.skip.begin(), rules.skip.end(), matches)) {
      report.skipped.push_back(state.name);
    } else if (!is_there && (rules.allow_missing || std::string_view(state.name).ends_with(".num_batches_tracked"))) {
      report.left_over.push_back(state.name);
    } else if (std::string misfit = misfit_of(file, state); !misfit.empty()) {
      misfits.push_back(std::move(misfit));
    } else {
      found[i] = &find_tensor(file, state);
    }
  }
  if (!misfits.empty()) refuse_misfits(file, misfits);
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (found[i] != nullptr) require_sense(file, plan.state[i], *found[i]);
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (found[i] == nullptr) continue;
    copy_in(trainer, i, file, *found[i]);
    ++report.loaded;
  }
  report.unused = file.tensors().size() - report.loaded;
  for (const std::string& name : report.skipped) report.unused -= file.contains(stored_name(file, name));
  return report;
}

FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
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
  return writer.finish();
}

}  // namespace reprise
