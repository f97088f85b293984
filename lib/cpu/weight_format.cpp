// The CPU's decoders: one for each format of weights. Packers, embeddings and convolutions decode
// through the table in this file, so a new format is added only here.
#include "lib/cpu/weight_format.h"

#include <cstring>

#include "lib/cpu/gemm/gemm.h"
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
REPRISE_VECTOR_LEVELS(widen_halves, widen_halves_body, (float* to, const uint16_t* from, uint64_t count),
                      (to, from, count))

void decode_f16(VectorLevel level, const void* data, uint64_t first, uint64_t count, float* to) {
  widen_halves(level, to, static_cast<const uint16_t*>(data) + first, count);
}

template <typename F>
REPRISE_INLINE void decode_group(F, const uint8_t* block, uint32_t group, uint32_t first, uint32_t count, float* to) {
  blocks::decode_group<F>(block, group, first, count, to);
}

// Tables for NF4: a lookup is faster than the branches of quantile() and dynamic_number().
struct Tables {
  float quantiles[16] = {}, shares[kDynamicCodes] = {};
};
constexpr Tables make_tables() {
  Tables tables;
  for (int place = 0; place < 16; ++place) tables.quantiles[place] = blocks::NF4::quantile(place);
  for (uint32_t code = 0; code < kDynamicCodes; ++code) tables.shares[code] = dynamic_number(code, true);
  return tables;
}
constexpr Tables kTables = make_tables();
REPRISE_INLINE void decode_quantiles(const uint8_t* places, float largest, uint32_t first, uint32_t count, float* to) {
  for (uint32_t j = first; j < first + count; ++j)
    to[j - first] = largest * kTables.quantiles[blocks::NF4::place(places, j)];
}
REPRISE_INLINE void decode_group(blocks::NF4, const uint8_t* block, uint32_t group, uint32_t first, uint32_t count,
                                 float* to) {
  decode_quantiles(blocks::NF4::places(block, group), blocks::NF4::line(block, group).scale, first, count, to);
}
REPRISE_INLINE void decode_group(blocks::NF4Double, const uint8_t* block, uint32_t group, uint32_t first,
                                 uint32_t count, float* to) {
  // The product of two floats is exact in double, and it is rounded to float before the sum. So no
  // compiler can fuse the product and the sum.
  const double product =
      static_cast<double>(kTables.shares[block[8 + group]]) * static_cast<double>(blocks::float_at(block));
  const float largest = static_cast<float>(product) + blocks::float_at(block + 4);
  decode_quantiles(blocks::NF4Double::places(block, group), largest, first, count, to);
}

// Decodes group by group, because a range may begin and end inside a block.
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
REPRISE_STORAGE_LEVELS(decode_blocks_at_level, decode_blocks_body,
                       (Stored format, const uint8_t* data, uint64_t first, uint64_t count, float* to),
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
