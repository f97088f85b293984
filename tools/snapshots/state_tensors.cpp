// See state_tensors.h.
// Tensors come and go in pieces through one small buffer: a snapshot needs no copy of the weights.
#include "tools/snapshots/state_tensors.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>

#include "lib/initial_values.h"
#include "tools/formats/error.h"
#include "tools/formats/ggml_blocks.h"
#include "tools/formats/json_text.h"
#include "tools/formats/text.h"
#include "tools/snapshots/magnitudes.h"
#include "tools/snapshots/reach.h"
#include "tools/weights/tied_head.h"

namespace reprise {

namespace {

bool trains_adapters(const Plan& plan) {
  return std::any_of(plan.state.begin(), plan.state.end(), [](const StateTensor& state) { return is_adapter(state.name); });
}

// The trained parameters stand together, and have a norm each (lib/plan.h).
bool is_trained(const Plan& plan, const StateTensor& state) {
  const uint64_t index = static_cast<uint64_t>(&state - plan.state.begin());
  return index >= kFirstTrained && index - kFirstTrained < plan.state[kNormsIndex].tensor.elements();
}

bool is_conv_weight(const Tensor& tensor) { return tensor.rank == 4; }

StoredType stored_type(DType type) {
  switch (type) {
    case DType::kI64: return StoredType::kI64;
    case DType::kBf16: return StoredType::kBf16;
    case DType::kF16: return StoredType::kF16;
    case DType::kF32: return StoredType::kF32;
    case DType::kDynamic8:
    case DType::kDynamic8Square: return StoredType::kU8;
    default: throw std::logic_error(std::string("safetensors has no type for ") + dtype_info(type).name);
  }
}

}  // namespace

bool belongs(const Plan& plan, const StateTensor& state, StatePart part) {
  if (part == StatePart::kOptimizer) return state.kind == StateKind::kOptimizer;
  if (state.kind != StateKind::kParameter && state.kind != StateKind::kBuffer) return false;
  return part != StatePart::kSaved || !trains_adapters(plan) || is_trained(plan, state);
}

// Codes of moments are bytes in a file: a row for each block.
std::vector<uint64_t> stored_shape(const Tensor& t) {
  if (has_dynamic_codes(t.dtype)) return {t.used_bytes() / dtype_info(t.dtype).block_bytes, dtype_info(t.dtype).block_bytes};
  if (is_conv_weight(t)) return {t.shape[0], t.shape[3], t.shape[1], t.shape[2]};
  return std::vector<uint64_t>(t.shape, t.shape + t.rank);
}

namespace {

// A convolution's weight goes between memory's [K,R,S,C] and the file's [K,C,R,S] one output channel at a time.
template <typename Number>
struct ConvChannel {
  explicit ConvChannel(const Tensor& t) : window(uint64_t{t.shape[1]} * t.shape[2]), channels(t.shape[3]), stored(window * channels), planned(window * channels) {}

  void from_file() {
    for_each([this](uint64_t file, uint64_t memory) { planned[memory] = stored[file]; });
  }
  void to_file() {
    for_each([this](uint64_t file, uint64_t memory) { stored[file] = planned[memory]; });
  }
  uint64_t bytes() const { return stored.size() * sizeof(Number); }

  uint64_t window, channels;
  std::vector<Number> stored;   // [C, R*S]
  std::vector<Number> planned;  // [R*S, C]

 private:
  template <typename F>
  void for_each(const F& visit) {
    for (uint64_t c = 0; c < channels; ++c) {
      for (uint64_t rs = 0; rs < window; ++rs) visit(c * window + rs, rs * channels + c);
    }
  }
};

std::string shown(const std::vector<uint64_t>& shape) { return nlohmann::json(shape).dump(); }

// A tensor of the state, and whether it may be rounded to what it is kept as: trained weights may, frozen ones are what their file has.
struct Wanted {
  const StateTensor& state;
  bool may_round = false;
};
Wanted wanted(const Plan& plan, const StateTensor& state) { return {state, is_trained(plan, state)}; }

// What a file may store a tensor of the state as.
std::string accepted_types(DType type, bool may_round) {
  if (type == DType::kF32 || (type == DType::kBf16 && may_round)) return "F32, F16 or BF16";
  const std::optional<BlockType> blocks = block_type_of(type);
  return blocks ? block_layout(*blocks).name : stored_type_name(stored_type(type));
}
bool accepts(DType type, const StoredWeight& weight, bool may_round) {
  if (has_dynamic_codes(type)) return weight.exact == DType::kU8;
  const bool rounds = type == DType::kBf16 && may_round && weight.exact == DType::kF32;
  return weight.exact == type || weight.format == type || (type == DType::kF32 && weight.exact == DType::kBf16) || rounds;
}

// The name under which the source holds a tensor of the state, which must have its shape and a type that it takes.
std::string find_tensor(const WeightSource& source, const Wanted& wanted) {
  const StateTensor& state = wanted.state;
  const std::string name = stored_name(source, state.name);
  const StoredWeight* weight = source.find(name);
  const std::vector<uint64_t> shape = stored_shape(state.tensor);
  const DType type = state.tensor.dtype;
  const auto refuse = [&](const std::string& reason) { throw UserError(source.path() + ": tensor " + json_shown(name) + ": " + reason); };
  if (weight == nullptr) {
    const std::string near = closest_match(name, source.names());
    refuse("missing; it must be there as " + accepted_types(type, wanted.may_round) + " " + shown(shape) + (near.empty() ? "" : " (there is " + json_shown(near) + ")"));
  }
  if (block_type_of(type) && type != DType::kF32 && weight->exact != DType::kI64 && !accepts(type, *weight, wanted.may_round)) {
    refuse("is " + weight->type + ", must be " + accepted_types(type, wanted.may_round) + ": the plan keeps this frozen weight as the model's own file stored it; " +
           "convert it, or plan with a model that has it as " + weight->type + ", or with \"weights\": {\"frozen\": ...}");
  }
  const std::string is = "is " + weight->type + " " + shown(weight->shape);
  if (!accepts(type, *weight, wanted.may_round)) refuse(is + ", must be " + accepted_types(type, wanted.may_round) + " " + shown(shape));
  if (weight->shape != shape) refuse(is + ", must be " + shown(shape));
  return name;
}

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

// Calls `visit(Number{})` with the type of number in which a tensor of the state is read, and held unless it is held in its file's blocks.
template <typename Visit>
void with_number(DType type, const Visit& visit) {
  if (type == DType::kI64) return visit(int64_t{});
  if (type == DType::kBf16) return visit(Bf16{});
  visit(float{});
}

// The source's tensor in pieces: `visit(first, numbers, count)`.
template <typename Number, typename Visit>
void for_each_piece(const WeightSource& source, const std::string& name, uint64_t elements, const Visit& visit) {
  std::vector<Number> piece(std::min<uint64_t>(kPieceBytes / sizeof(Number), elements));
  for (uint64_t at = 0; at < elements; at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), elements - at);
    source.read(name, at, count, piece.data());
    visit(at, piece.data(), count);
  }
}

// Refuses values that would train to nothing: what is not finite, or a variance below zero.
template <typename Number>
void require_sense_of(const WeightSource& source, const StateTensor& state, const std::string& name) {
  const bool is_variance = std::string_view(state.name).ends_with(".running_var");
  for_each_piece<Number>(source, name, state.tensor.elements(), [&](uint64_t at, const Number* numbers, uint64_t count) {
    const auto makes_sense = [&](Number number) { return std::isfinite(static_cast<float>(number)) && (!is_variance || static_cast<float>(number) >= 0); };
    const Number* wrong = std::find_if_not(numbers, numbers + count, makes_sense);
    if (wrong == numbers + count) return;
    throw UserError(source.path() + ": tensor \"" + name + "\": element " + std::to_string(at + static_cast<uint64_t>(wrong - numbers)) + " is " +
                    std::to_string(static_cast<float>(*wrong)) + ", must be finite" + (is_variance ? " and at least 0" : "") +
                    ": these weights are damaged");
  });
}

// The same of codes of moments: of the largest magnitude of each block.
void require_sense_of_codes(const WeightSource& source, const StateTensor& state, const std::string& name) {
  const uint64_t block = dtype_info(state.tensor.dtype).block_bytes, blocks = state.tensor.used_bytes() / block;
  for (uint64_t b = 0; b < blocks; ++b) {
    float largest = 0;
    source.read_exact(name, b * block, sizeof largest, &largest);
    if (std::isfinite(largest) && largest >= 0) continue;
    throw UserError(source.path() + ": tensor \"" + name + "\": the largest magnitude of block " + std::to_string(b) + " is " + std::to_string(largest) +
                    ", must be finite and at least 0: these moments are damaged");
  }
}

void require_sense(const WeightSource& source, const StateTensor& state, const std::string& name) {
  if (has_dynamic_codes(state.tensor.dtype)) return require_sense_of_codes(source, state, name);
  with_number(*source.find(name)->exact, [&](auto number) { require_sense_of<decltype(number)>(source, state, name); });
}

template <typename Number>
void copy_channels_in(const Trainer& trainer, uint32_t index, const WeightSource& source, const std::string& name) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  const ArenaAddress to = trainer.state_tensor(index);
  ConvChannel<Number> channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    source.read(name, k * channel.stored.size(), channel.stored.size(), channel.stored.data());
    channel.from_file();
    require_reached(trainer.write(to + k * channel.bytes(), channel.planned.data(), channel.bytes()));
  }
}

// Codes of moments go byte by byte.
template <typename Number>
void copy_pieces_in(const Trainer& trainer, uint32_t index, const WeightSource& source, const std::string& name) {
  const ArenaAddress to = trainer.state_tensor(index);
  const uint64_t numbers_of_all = trainer.plan->state[index].tensor.used_bytes() / sizeof(Number);
  for_each_piece<Number>(source, name, numbers_of_all, [&](uint64_t at, const Number* numbers, uint64_t count) {
    require_reached(trainer.write(to + at * sizeof(Number), numbers, count * sizeof(Number)));
  });
}

void copy_stored_in(const Trainer& trainer, uint32_t index, const WeightSource& source, const std::string& name) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const uint64_t elements = tensor.elements(), most = kPieceBytes / info.block_bytes * info.block_elements;
  std::vector<unsigned char> piece(stored_bytes(tensor.dtype, std::min(most, elements)));
  for (uint64_t at = 0; at < elements; at += most) {
    const uint64_t count = std::min(most, elements - at);
    source.read_stored(name, at, count, piece.data());
    require_reached(trainer.write(trainer.state_tensor(index) + stored_bytes(tensor.dtype, at), piece.data(), stored_bytes(tensor.dtype, count)));
  }
}

void copy_in(const Trainer& trainer, uint32_t index, const WeightSource& source, const std::string& name) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  if (const StoredWeight& weight = *source.find(name); weight.exact != tensor.dtype && weight.format == tensor.dtype) {
    return copy_stored_in(trainer, index, source, name);
  }
  if (has_dynamic_codes(tensor.dtype)) return copy_pieces_in<uint8_t>(trainer, index, source, name);
  with_number(tensor.dtype, [&](auto number) {
    using Number = decltype(number);
    is_conv_weight(tensor) ? copy_channels_in<Number>(trainer, index, source, name) : copy_pieces_in<Number>(trainer, index, source, name);
  });
}

template <typename Stored>
void copy_channels_out(const Trainer& trainer, uint32_t index, SafetensorsWriter& writer) {
  const Tensor& tensor = trainer.plan->state[index].tensor;
  ConvChannel<Stored> channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    require_reached(trainer.read(channel.planned.data(), trainer.state_tensor(index) + k * channel.bytes(), channel.bytes()));
    channel.to_file();
    writer.write(channel.stored.data(), channel.bytes());
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
    require_reached(trainer.read(piece.data(), trainer.state_tensor(index) + at, size));
    writer.write(piece.data(), size);
  }
}

}  // namespace

void read_state(const Trainer& trainer, const WeightSource& source, StatePart part) {
  const Plan& plan = *trainer.plan;
  for (const StateTensor& state : plan.state) {  // all of them, before the first is changed
    if (belongs(plan, state, part)) require_sense(source, state, find_tensor(source, wanted(plan, state)));
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (belongs(plan, state, part)) copy_in(trainer, i, source, find_tensor(source, wanted(plan, state)));
  }
}

namespace {

// Why the source's tensor is not the state's, without the file's name; "" where it is.
std::string misfit_of(const WeightSource& source, const Wanted& wanted) {
  try {
    find_tensor(source, wanted);
    return "";
  } catch (const UserError& error) {
    return std::string(error.what()).substr(source.path().size() + 2);
  }
}

[[noreturn]] void refuse_misfits(const WeightSource& source, const std::vector<std::string>& misfits) {
  throw UserError(source.path() + ": " + (misfits.size() == 1 ? "1 tensor does" : std::to_string(misfits.size()) + " tensors do") + " not fit: " +
                  some_of(misfits, "; ") + "; --init-skip PATTERN, or init.skip in the recipe, leaves tensors of such names at their initial values");
}

}  // namespace

namespace {

// Weights that are neither f32 nor bf16 cannot be drawn.
void require_drawn(const WeightSource& source, const StateTensor& state) {
  if (!takes_weights(kEveryWeight & ~kPlainWeights, state.tensor.dtype)) return;
  throw UserError(source.path() + ": tensor " + json_shown(std::string(state.name)) + ": the plan keeps it as the model's own file stored it, so it has no initial values: " +
                  "take it from a file, or name it in the recipe's init.skip and plan again");
}

}  // namespace

void draw_stored_weights(const Trainer& trainer) {
  constexpr uint64_t kPiece = kPieceBytes / sizeof(float);
  std::vector<float> numbers(kPiece);
  for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
    const Tensor& tensor = trainer.plan->state[i].tensor;
    if (!takes_weights(kEveryWeight & ~kPlainWeights, tensor.dtype)) continue;
    std::vector<unsigned char> piece(stored_bytes(tensor.dtype, kPiece));
    for (uint64_t at = 0; at < tensor.elements(); at += kPiece) {
      const uint64_t count = std::min(kPiece, tensor.elements() - at);
      initial_values(*trainer.plan, i, at, count, numbers.data());
      quantise_blocks(block_type_of(tensor.dtype).value(), numbers.data(), count / dtype_info(tensor.dtype).block_elements, piece.data());
      require_reached(trainer.write(trainer.state_tensor(i) + stored_bytes(tensor.dtype, at), piece.data(), stored_bytes(tensor.dtype, count)));
    }
  }
  start_magnitudes(trainer);
}

InitialReport read_initial_weights(const Trainer& trainer, const WeightSource& source, const InitialRules& rules) {
  const Plan& plan = *trainer.plan;
  InitialReport report;
  std::vector<std::string> found(plan.state.count);  // names in the source; "" where it is not read
  std::vector<std::string> misfits;
  for (const std::string& pattern : rules.skip) {
    const auto matches = [&](const StateTensor& state) { return belongs(plan, state, StatePart::kModel) && matches_pattern(pattern, state.name); };
    if (std::none_of(plan.state.begin(), plan.state.end(), matches)) {
      throw UserError(source.path() + ": --init-skip, init.skip: \"" + pattern + "\" matches no tensor; `reprise parameters` lists their names");
    }
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {  // all of them are looked at before the first is changed
    const StateTensor& state = plan.state[i];
    if (!belongs(plan, state, StatePart::kModel)) continue;
    const bool is_there = source.find(stored_name(source, state.name)) != nullptr;
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, state.name); };
    if (std::any_of(rules.skip.begin(), rules.skip.end(), matches)) {
      require_drawn(source, state);
      report.skipped.push_back(state.name);
    } else if (!is_there && is_adapter(state.name)) {  // no model's file has it
    } else if (!is_there && (rules.allow_missing || std::string_view(state.name).ends_with(".num_batches_tracked"))) {
      require_drawn(source, state);
      report.left_over.push_back(state.name);
    } else if (std::string misfit = misfit_of(source, wanted(plan, state)); !misfit.empty()) {
      misfits.push_back(std::move(misfit));
    } else {
      found[i] = find_tensor(source, wanted(plan, state));
    }
  }
  if (!misfits.empty()) refuse_misfits(source, misfits);
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (!found[i].empty()) require_sense(source, plan.state[i], found[i]);
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (found[i].empty()) continue;
    copy_in(trainer, i, source, found[i]);
    ++report.loaded;
  }
  start_magnitudes(trainer);
  for (const std::string& name : report.skipped) found.push_back(stored_name(source, name));
  const std::set<std::string> used(found.begin(), found.end());
  for (const std::string& name : source.names()) {
    if (used.count(name) == 0) report.unused.push_back(name);
  }
  const auto is_head = [](const StateTensor& state) { return state.name == std::string_view(kHead); };
  report.drops_head = std::none_of(plan.state.begin(), plan.state.end(), is_head) && has_other_head(source);
  return report;
}

void require_weights_fit(const Graph& graph, const WeightSource& source, const InitialRules& rules) {
  std::vector<std::string> misfits;
  for (const Value& value : graph.values) {
    const bool is_read = value.kind == ValueKind::kParameter || value.kind == ValueKind::kBuffer;
    if (!is_read || is_adapter(value.name) || value.name.ends_with(".num_batches_tracked")) continue;
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, value.name); };
    if (std::any_of(rules.skip.begin(), rules.skip.end(), matches)) continue;
    if (rules.allow_missing && source.find(stored_name(source, value.name)) == nullptr) continue;
    StateTensor state;
    state.tensor = value.tensor;
    state.name = value.name.c_str();
    if (std::string misfit = misfit_of(source, {state, value.trainable}); !misfit.empty()) misfits.push_back(std::move(misfit));
  }
  if (!misfits.empty()) refuse_misfits(source, misfits);
}

FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
                    const std::vector<std::pair<std::string, std::string>>& metadata) {
  const Plan& plan = *trainer.plan;
  SafetensorsWriter writer(path);
  for (const auto& [key, value] : metadata) writer.add_metadata(key, value);
  for (const StateTensor& state : plan.state) {
    if (belongs(plan, state, part)) writer.declare(state.name, stored_type(state.tensor.dtype), stored_shape(state.tensor));
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (belongs(plan, plan.state[i], part)) copy_out(trainer, i, writer);
  }
  return writer.finish();
}

}  // namespace reprise
