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

// Blocks of so many elements and bytes, whole ones by decode_whole(level, blocks, count, to), the ends of a range by a block decoded beside it.
template <void (*decode_whole)(VectorLevel, const uint8_t*, uint64_t, float*), DType kType>
void decode_blocks(VectorLevel level, const void* data, uint64_t first, uint64_t count, float* to) {
  constexpr uint32_t kElements = dtype_info(kType).block_elements, kBytes = dtype_info(kType).block_bytes;
  const uint8_t* block = static_cast<const uint8_t*>(data) + first / kElements * kBytes;
  for (uint64_t skip = first % kElements; count > 0; skip = 0) {
    if (skip == 0 && count >= kElements) {
      const uint64_t whole = count / kElements;
      decode_whole(level, block, whole, to);
      block += whole * kBytes, to += whole * kElements, count -= whole * kElements;
      continue;
    }
    float elements[kElements];
    decode_whole(level, block, 1, elements);
    const uint64_t part = smaller(kElements - skip, count);
    std::memcpy(to, elements + skip, part * sizeof *to);
    block += kBytes, to += part, count -= part;
  }
}

// A half, then 32 signed bytes: the product fits an f32, so nothing is rounded.
REPRISE_INLINE void decode_q8_0_body(const uint8_t* blocks, uint64_t count, float* to) {
  for (; count > 0; --count, blocks += 34, to += 32) {
    const float scale = f16_to_f32(static_cast<uint16_t>(blocks[0] | blocks[1] << 8));
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(blocks[2 + i]));
  }
}
REPRISE_VECTOR_LEVELS(decode_q8_0, decode_q8_0_body, (const uint8_t* blocks, uint64_t count, float* to), (blocks, count, to))

using Decoder = void (*)(VectorLevel, const void* data, uint64_t first, uint64_t count, float* to);
struct Decoders {
  Decoder of[kDTypeCount] = {};
};
constexpr Decoders make_decoders() {
  Decoders decoders;
  const auto set = [&decoders](DType type, Decoder decoder) { decoders.of[static_cast<uint32_t>(type)] = decoder; };
  set(DType::kF32, decode_f32);
  set(DType::kBf16, decode_bf16);
  set(DType::kF16, decode_f16);
  set(DType::kQ8_0, decode_blocks<decode_q8_0, DType::kQ8_0>);
  return decoders;
}
constexpr Decoders kDecoders = make_decoders();

constexpr bool every_weight_has_a_decoder() {
  for (uint32_t type = 0; type < kDTypeCount; ++type) {
    if (takes_weights(kEveryWeight, static_cast<DType>(type)) != (kDecoders.of[type] != nullptr)) return false;
  }
  return true;
}
static_assert(every_weight_has_a_decoder());

}  // namespace

void decode_weights(VectorLevel level, const Weight& w, uint64_t first, uint64_t count, float* to) {
  kDecoders.of[static_cast<uint32_t>(w.type)](level, w.data, first, count, to);
}

}  // namespace reprise
