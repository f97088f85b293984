// The CPU's decoders: one for each format of weights.
// Here so that a format is added in one place: packers, embeddings and convolutions call the table.
#include "lib/cpu/weight_format.h"

#include <cstring>

#include "lib/cpu/gemm.h"
#include "lib/f16.h"

namespace reprise {
namespace {

void decode_f32(VectorLevel, const void* data, uint64_t first, uint64_t count, float* to) {
  std::memcpy(to, static_cast<const float*>(data) + first, count * sizeof *to);
}

void decode_bf16(VectorLevel level, const void* data, uint64_t first, uint64_t count, float* to) {
  widen(level, to, static_cast<const Bf16*>(data) + first, count);
}

REPRISE_INLINE void widen_halves_body(float* to, const uint16_t* from, uint64_t count) {
  REPRISE_INDEPENDENT
  for (uint64_t i = 0; i < count; ++i) to[i] = f16_to_f32(from[i]);
}
REPRISE_VECTOR_LEVELS(widen_halves, widen_halves_body, (float* to, const uint16_t* from, uint64_t count), (to, from, count))

void decode_f16(VectorLevel level, const void* data, uint64_t first, uint64_t count, float* to) {
  widen_halves(level, to, static_cast<const uint16_t*>(data) + first, count);
}

template <typename F>
REPRISE_INLINE void decode_group(F, const uint8_t* block, uint32_t group, uint32_t first, uint32_t count, float* to) {
  blocks::decode_group<F>(block, group, first, count, to);
}

// NF4's by a table: a look at it takes less time than the choices of quantile() take here.
struct Quantiles {
  float of[16] = {};
};
constexpr Quantiles make_quantiles() {
  Quantiles quantiles;
  for (int place = 0; place < 16; ++place) quantiles.of[place] = blocks::NF4::quantile(place);
  return quantiles;
}
constexpr Quantiles kQuantiles = make_quantiles();
REPRISE_INLINE void decode_group(blocks::NF4, const uint8_t* block, uint32_t, uint32_t first, uint32_t count, float* to) {
  const float scale = blocks::NF4::line(block, 0).scale;
  for (uint32_t j = first; j < first + count; ++j) to[j - first] = scale * kQuantiles.of[block[4 + j / 2] >> (j % 2 == 0 ? 4 : 0) & 0xf];
}

// Group by group, because a range may begin and end inside a block.
template <typename F>
REPRISE_INLINE void decode_blocks_body(F, const uint8_t* data, uint64_t first, uint64_t count, float* to) {
  constexpr uint32_t kElements = dtype_info(F::kType).block_elements, kBytes = dtype_info(F::kType).block_bytes;
  while (count > 0) {
    const uint32_t place = static_cast<uint32_t>(first % kElements), skip = place % F::kGroup;
    const uint32_t part = static_cast<uint32_t>(smaller(F::kGroup - skip, count));
    decode_group(F{}, data + first / kElements * kBytes, place / F::kGroup, skip, part, to);
    first += part, count -= part, to += part;
  }
}
REPRISE_STORAGE_LEVELS(decode_blocks_at_level, decode_blocks_body, (Stored format, const uint8_t* data, uint64_t first, uint64_t count, float* to),
                       (format, data, first, count, to))
template <typename F>
void decode_blocks(VectorLevel level, const void* data, uint64_t first, uint64_t count, float* to) {
  decode_blocks_at_level(level, F{}, static_cast<const uint8_t*>(data), first, count, to);
}

using Decoder = void (*)(VectorLevel, const void* data, uint64_t first, uint64_t count, float* to);
struct Decoders {
  Decoder of[kDTypeCount] = {};
  WeightFormats formats = 0;
};
constexpr Decoders make_decoders() {
  Decoders decoders;
  const auto set = [&decoders](DType type, Decoder decoder) {
    decoders.of[static_cast<uint32_t>(type)] = decoder;
    decoders.formats |= weight_format(type);
  };
  set(DType::kF32, decode_f32);
  set(DType::kBf16, decode_bf16);
  set(DType::kF16, decode_f16);
  const auto set_blocks = [&set]<typename... F>(blocks::Formats<F...>) { (set(F::kType, decode_blocks<F>), ...); };
  set_blocks(blocks::Every{});
  return decoders;
}
constexpr Decoders kDecoders = make_decoders();
static_assert(kDecoders.formats == kEveryWeight);

}  // namespace

void decode_weights(VectorLevel level, const Weight& w, uint64_t first, uint64_t count, float* to) {
  kDecoders.of[static_cast<uint32_t>(w.type)](level, w.data, first, count, to);
}

}  // namespace reprise
