// See tensor_files.h.
#include "tools/run/snapshots/tensor_files.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "lib/state_format.h"
#include "tools/files/formats/ggml_blocks.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

namespace {

bool is_conv_weight(const Tensor& tensor) { return tensor.rank == 4; }

}  // namespace

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

namespace {

// One output channel of a convolution's weight, which is [K,R,S,C] in memory and [K,C,R,S] in
// files.
template <typename Number>
struct ConvChannel {
  explicit ConvChannel(const Tensor& t)
      : window(uint64_t{t.shape[1]} * t.shape[2]),
        channels(t.shape[3]),
        stored(window * channels),
        planned(window * channels) {}

  void from_file() {
    for_each([this](uint64_t file, uint64_t memory) { planned[memory] = stored[file]; });
  }
  void to_file() {
    for_each([this](uint64_t file, uint64_t memory) { stored[file] = planned[memory]; });
  }
  uint64_t bytes() const { return stored.size() * sizeof(Number); }

  uint64_t window, channels;
  std::vector<Number> stored;   // [C, R*S], the order in files
  std::vector<Number> planned;  // [R*S, C], the order in memory

 private:
  template <typename F>
  void for_each(const F& visit) {
    for (uint64_t c = 0; c < channels; ++c) {
      for (uint64_t rs = 0; rs < window; ++rs) visit(c * window + rs, rs * channels + c);
    }
  }
};

std::string shown(const std::vector<uint64_t>& shape) { return nlohmann::json(shape).dump(); }

// Returns the names of the types in which a file may store a tensor of State.
std::string accepted_types(DType type, bool may_round) {
  if (type == DType::kF32 || (type == DType::kBf16 && may_round)) return "F32, F16 or BF16";
  const std::optional<BlockType> blocks = block_type_of(type);
  return blocks ? block_layout(*blocks).name : stored_type_name(stored_type(type));
}
bool accepts(DType type, const StoredWeight& weight, bool may_round) {
  if (has_dynamic_codes(type)) return weight.exact == DType::kU8;
  const bool rounds = type == DType::kBf16 && may_round && weight.exact == DType::kF32;
  return weight.exact == type || weight.format == type || (type == DType::kF32 && weight.exact == DType::kBf16) ||
         rounds;
}

}  // namespace

std::string find_tensor(const WeightSource& source, const WantedTensor& wanted) {
  const StateTensor& state = wanted.state;
  const std::string name = stored_name(source, state.name);
  const StoredWeight* weight = source.find(name);
  const std::vector<uint64_t> shape = stored_shape(state.tensor);
  const DType type = state.tensor.dtype;
  const auto refuse = [&](const std::string& reason) {
    throw UserError(source.path() + ": tensor " + json_shown(name) + ": " + reason);
  };
  if (weight == nullptr) {
    const std::string near = closest_match(name, source.names());
    refuse("missing; it must be there as " + accepted_types(type, wanted.may_round) + " " + shown(shape) +
           (near.empty() ? "" : " (there is " + json_shown(near) + ")"));
  }
  if (block_type_of(type) && type != DType::kF32 && weight->exact != DType::kI64 &&
      !accepts(type, *weight, wanted.may_round)) {
    refuse("is " + weight->type + ", must be " + accepted_types(type, wanted.may_round) +
           ": the plan keeps this frozen weight as the model's own file stored it; " +
           "convert it, or plan with a model that has it as " + weight->type +
           ", or with \"weights\": {\"frozen\": ...}");
  }
  const std::string is = "is " + weight->type + " " + shown(weight->shape);
  if (!accepts(type, *weight, wanted.may_round))
    refuse(is + ", must be " + accepted_types(type, wanted.may_round) + " " + shown(shape));
  if (weight->shape != shape) refuse(is + ", must be " + shown(shape));
  return name;
}

namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

// Calls `visit(Number{})` with the type of numbers in which a tensor of State is read. Memory
// stores the same type, unless it stores the blocks of the file.
template <typename Visit>
void with_number(DType type, const Visit& visit) {
  if (type == DType::kI64) return visit(int64_t{});
  if (type == DType::kBf16) return visit(Bf16{});
  visit(float{});
}

// Calls `visit(first, numbers, count)` for consecutive pieces of the source's tensor.
template <typename Number, typename Visit>
void for_each_piece(const WeightSource& source, const std::string& name, uint64_t elements, const Visit& visit) {
  std::vector<Number> piece(std::min<uint64_t>(kPieceBytes / sizeof(Number), elements));
  for (uint64_t at = 0; at < elements; at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), elements - at);
    source.read(name, at, count, piece.data());
    visit(at, piece.data(), count);
  }
}

template <typename Number>
void require_sense_of(const WeightSource& source, const StateTensor& state, const std::string& name) {
  const bool is_variance = std::string_view(state.name).ends_with(".running_var");
  for_each_piece<Number>(source, name, state.tensor.elements(),
                         [&](uint64_t at, const Number* numbers, uint64_t count) {
                           const auto makes_sense = [&](Number number) {
                             return std::isfinite(static_cast<float>(number)) &&
                                    (!is_variance || static_cast<float>(number) >= 0);
                           };
                           const Number* wrong = std::find_if_not(numbers, numbers + count, makes_sense);
                           if (wrong == numbers + count) return;
                           throw UserError(source.path() + ": tensor \"" + name + "\": element " +
                                           std::to_string(at + static_cast<uint64_t>(wrong - numbers)) + " is " +
                                           std::to_string(static_cast<float>(*wrong)) + ", must be finite" +
                                           (is_variance ? " and at least 0" : "") + ": these weights are damaged");
                         });
}

// Checks the codes of moments: the largest magnitude of each block must be finite and not negative.
void require_sense_of_codes(const WeightSource& source, const StateTensor& state, const std::string& name) {
  const uint64_t block = dtype_info(state.tensor.dtype).block_bytes, blocks = state.tensor.used_bytes() / block;
  for (uint64_t b = 0; b < blocks; ++b) {
    float largest = 0;
    source.read_exact(name, b * block, sizeof largest, &largest);
    if (std::isfinite(largest) && largest >= 0) continue;
    throw UserError(source.path() + ": tensor \"" + name + "\": the largest magnitude of block " + std::to_string(b) +
                    " is " + std::to_string(largest) + ", must be finite and at least 0: these moments are damaged");
  }
}

template <typename Number>
void read_channels(const WeightSource& source, const std::string& name, const Tensor& tensor, const TensorSink& sink) {
  ConvChannel<Number> channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    source.read(name, k * channel.stored.size(), channel.stored.size(), channel.stored.data());
    channel.from_file();
    sink(channel.planned.data(), channel.bytes());
  }
}

// Reads a tensor in pieces. Codes of moments are read as bytes.
template <typename Number>
void read_pieces(const WeightSource& source, const std::string& name, const Tensor& tensor, const TensorSink& sink) {
  for_each_piece<Number>(source, name, tensor.used_bytes() / sizeof(Number),
                         [&](uint64_t, const Number* numbers, uint64_t count) {
                           sink(numbers, count * sizeof(Number));
                         });
}

void read_stored(const WeightSource& source, const std::string& name, const Tensor& tensor, const TensorSink& sink) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const uint64_t elements = tensor.elements(), maximum = kPieceBytes / info.block_bytes * info.block_elements;
  std::vector<unsigned char> piece(stored_bytes(tensor.dtype, std::min(maximum, elements)));
  for (uint64_t at = 0; at < elements; at += maximum) {
    const uint64_t count = std::min(maximum, elements - at);
    source.read_stored(name, at, count, piece.data());
    sink(piece.data(), stored_bytes(tensor.dtype, count));
  }
}

template <typename Stored>
void write_channels(const Tensor& tensor, const TensorPiece& piece, const TensorSink& sink) {
  ConvChannel<Stored> channel(tensor);
  for (uint64_t k = 0; k < tensor.shape[0]; ++k) {
    piece(k * channel.bytes(), channel.planned.data(), channel.bytes());
    channel.to_file();
    sink(channel.stored.data(), channel.bytes());
  }
}

}  // namespace

void require_sense(const WeightSource& source, const StateTensor& state, const std::string& name) {
  if (has_dynamic_codes(state.tensor.dtype)) return require_sense_of_codes(source, state, name);
  with_number(*source.find(name)->exact, [&](auto number) { require_sense_of<decltype(number)>(source, state, name); });
}

void read_tensor(const WeightSource& source, const std::string& name, const Tensor& tensor, const TensorSink& sink) {
  if (const StoredWeight& weight = *source.find(name); weight.exact != tensor.dtype && weight.format == tensor.dtype)
    return read_stored(source, name, tensor, sink);
  if (has_dynamic_codes(tensor.dtype)) return read_pieces<uint8_t>(source, name, tensor, sink);
  with_number(tensor.dtype, [&](auto number) {
    using Number = decltype(number);
    is_conv_weight(tensor) ? read_channels<Number>(source, name, tensor, sink)
                           : read_pieces<Number>(source, name, tensor, sink);
  });
}

void write_tensor(const Tensor& tensor, const TensorPiece& piece, const TensorSink& sink) {
  if (is_conv_weight(tensor))
    return tensor.dtype == DType::kBf16 ? write_channels<Bf16>(tensor, piece, sink)
                                        : write_channels<float>(tensor, piece, sink);
  std::vector<unsigned char> buffer(kPieceBytes);
  const uint64_t bytes = tensor.used_bytes();
  for (uint64_t at = 0; at < bytes; at += buffer.size()) {
    const uint64_t size = std::min<uint64_t>(buffer.size(), bytes - at);
    piece(at, buffer.data(), size);
    sink(buffer.data(), size);
  }
}

}  // namespace reprise
