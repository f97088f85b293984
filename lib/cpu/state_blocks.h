// Reads and writes blocks of State's numbers, which may be stored as f32, bf16 or codes
// (lib/state_format.h), on the CPU. All updates read blocks to the stack, compute in f32, and round
// when they write back.
#pragma once

#include <cmath>
#include <cstring>

#include "lib/cpu/partition.h"
#include "lib/cpu/vector_level.h"
#include "lib/plan.h"
#include "lib/state_format.h"

namespace reprise {

static_assert(kBlockElements % kStateBlock == 0);

// For each 8-bit code: its number, and the midpoint between its number and the next code's. The
// last midpoint is above every input.
struct DynamicMap {
  float numbers[kDynamicCodes];
  float middles[kDynamicCodes];
};
constexpr DynamicMap make_dynamic_map(bool has_sign) {
  DynamicMap map = {};
  for (uint32_t c = 0; c < kDynamicCodes; ++c) map.numbers[c] = dynamic_number(c, has_sign);
  for (uint32_t c = 0; c + 1 < kDynamicCodes; ++c) map.middles[c] = dynamic_middle(map.numbers[c], map.numbers[c + 1]);
  map.middles[kDynamicCodes - 1] = 2;
  return map;
}
inline constexpr DynamicMap kSignedMap = make_dynamic_map(true), kSquareMap = make_dynamic_map(false);

// ---- bodies of kernels: inlined into each level ----

REPRISE_INLINE void read_codes(float* to, const DynamicBlock& block, const DynamicMap& map, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = map.numbers[block.codes[i]] * block.largest;
}

// Writes for each number the code whose value is nearest, found by binary search. Codes from
// `count` on become the code of zero.
REPRISE_INLINE void write_codes(DynamicBlock& block, const float* from, const DynamicMap& map, bool has_sign,
                                uint32_t count) {
  float largest = 0;
  for (uint32_t i = 0; i < count; ++i) largest = std::fabs(from[i]) > largest ? std::fabs(from[i]) : largest;
  block.largest = largest;
  const float divisor = largest > 0 ? largest : 1.0f;
  for (uint32_t i = 0; i < count; ++i) {
    const float share = from[i] / divisor;
    uint32_t code = 0;
    for (uint32_t half = kDynamicCodes / 2; half > 0; half /= 2)
      code += map.middles[code + half - 1] < share ? half : 0;
    block.codes[i] = static_cast<uint8_t>(has_sign ? keep_sign(code, share) : code);
  }
  for (uint32_t i = count; i < kStateBlock; ++i) block.codes[i] = static_cast<uint8_t>(has_sign ? kDynamicZero : 0);
}

REPRISE_INLINE void write_rounded(Bf16* to, const float* from, const StateRounding& rounding, RoundedPart part,
                                  uint64_t block, uint32_t count) {
  // Random draws that are computed together. 16 draws fill two vectors of 8 lanes; a 32-bit
  // processor computes only 8, because its stack is small.
  constexpr uint32_t kTogether = kIs32Bit ? 8 : 16;
  for (uint32_t first = 0; first < kStateDraws; first += kTogether) {
    uint32_t words[4][kTogether];
    for (uint32_t d = 0; d < kTogether; ++d) {
      const PhiloxBlock draw = state_draw(rounding, part, block, first + d);
      for (uint32_t w = 0; w < 4; ++w) words[w][d] = draw.word[w];
    }
    for (uint32_t half = 0, at = first; at < count; ++half, at += kStateDraws) {
      const uint32_t run = static_cast<uint32_t>(smaller(kTogether, count - at));
      for (uint32_t d = 0; d < run; ++d)
        to[at + d].bits = round_randomly(from[at + d], half_of_word(words[half / 2][d], half));
    }
  }
}

// Reads elements [block * kStateBlock, block * kStateBlock + count) of `numbers` as f32.
REPRISE_INLINE void read_state(float* to, const StateNumbers& numbers, uint64_t block, uint32_t count) {
  const uint64_t first = block * kStateBlock;
  if (numbers.type == DType::kBf16) {
    const Bf16* from = static_cast<const Bf16*>(numbers.data) + first;
    for (uint32_t i = 0; i < count; ++i) to[i] = from[i];
  } else if (has_dynamic_codes(numbers.type)) {
    const DynamicBlock& from = static_cast<const DynamicBlock*>(numbers.data)[block];
    read_codes(to, from, numbers.type == DType::kDynamic8 ? kSignedMap : kSquareMap, count);
  } else {
    std::memcpy(to, numbers.f32() + first, count * sizeof(float));
  }
}
REPRISE_INLINE void write_state(const StateNumbers& numbers, const float* from, const StateRounding& rounding,
                                RoundedPart part, uint64_t block, uint32_t count) {
  const uint64_t first = block * kStateBlock;
  if (numbers.type == DType::kBf16) {
    write_rounded(static_cast<Bf16*>(numbers.data) + first, from, rounding, part, block, count);
  } else if (has_dynamic_codes(numbers.type)) {
    const bool has_sign = numbers.type == DType::kDynamic8;
    write_codes(static_cast<DynamicBlock*>(numbers.data)[block], from, has_sign ? kSignedMap : kSquareMap, has_sign,
                count);
  } else {
    std::memcpy(numbers.f32() + first, from, count * sizeof(float));
  }
}

inline StateRounding rounding_of(const StepScalars& scalars, uint32_t stream) {
  return {.seed = scalars.seed, .step = scalars.step, .stream = stream};
}

}  // namespace reprise
