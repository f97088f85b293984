// The formats in which an optimizer keeps its moments, and a trained matrix may be kept: f32, bf16, or 8-bit codes in blocks.
// Here because the CPU's kernels, a card's and the files of a training must mean the same by a byte.
//
// bf16 is rounded at random to one of its two neighbours, the nearer one more often, so that the mean of what is written is what was computed:
// rounded to the nearest, a moment of which a step changes less than 1 / 512 would never change, nor would a weight. The random bits are those
// of Philox at the tensor, the step and the element, so every schedule and budget writes the same bits.
//
// A block of 8-bit codes is the largest magnitude of 256 numbers, as f32, and the 256 codes of the numbers divided by it. A code stands for a
// number of the dynamic map (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"; bitsandbytes' create_dynamic_map): seven decades
// from 1e-7 to 1, the larger ones with more codes. kDynamic8 has a sign, kDynamic8Square, for second moments, has none and twice as many codes.
//
//   | f32 largest | code 0 | code 1 | ... | code 255 |     260 bytes; the last block of a tensor is whole, whatever its count
#pragma once

#include <bit>
#include <cstdint>

#include "lib/rng.h"
#include "lib/tensor.h"

namespace reprise {

// Numbers of State that an update reads and writes.
struct StateNumbers {
  void* data = nullptr;
  DType type = DType::kF32;

  constexpr StateNumbers() = default;
  constexpr StateNumbers(float* numbers) : data(numbers) {}
  constexpr StateNumbers(void* numbers, DType stored) : data(numbers), type(stored) {}

  float* f32() const { return static_cast<float*>(data); }
};

// An update of tensors that are not all f32 goes by blocks of so many elements.
constexpr uint32_t kStateBlock = 256;

// ---- rounding to bf16 ----

// `random` is uniform in [0, 2^16). What a bf16 holds exactly stays what it is; a NaN stays one.
constexpr uint16_t round_randomly(float value, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool is_number = (bits & 0x7f800000u) != 0x7f800000u;
  return is_number ? static_cast<uint16_t>((bits + random) >> 16) : round_to_bf16(value);
}

// Which numbers of a row are rounded: each has random bits of its own.
enum class RoundedPart : uint32_t { kParameter, kFirstMoment, kSecondMoment };

// What tells the random bits of one row's numbers.
struct StateRounding {
  uint64_t seed = 0;
  uint32_t step = 0, stream = 0;  // stream: the tensor's, from the row's attribute
};

// Element i of a block has half i / 32 of draw i % 32: loops over 32 neighbours take the same half of theirs.
constexpr uint32_t kStateDraws = 32;
constexpr PhiloxBlock state_draw(const StateRounding& r, RoundedPart part, uint64_t block, uint32_t draw) {
  return philox_update(r.seed, r.step, static_cast<uint32_t>(part), r.stream, block * kStateDraws + draw);
}
// `word` is the draw's word half / 2.
constexpr uint32_t half_of_word(uint32_t word, uint32_t half) { return word >> (16 * (half % 2)) & 0xffffu; }

// ---- codes of 8 bits ----

constexpr uint32_t kDynamicCodes = 256;
constexpr uint32_t kDynamicZero = 127;  // the code of zero in the map with a sign; 0 in the other

// Number `place`, from 0, of the map's positive numbers below 1. Decade d, from 1e-7 on, has `first` << d numbers, the middles of as many equal parts
// of its upper nine tenths.
constexpr float dynamic_positive(uint32_t place, uint32_t first) {
  uint32_t decade = 0, parts = first;
  while (place >= parts) place -= parts, parts *= 2, ++decade;
  constexpr float kPowers[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
  // Bounds as torch.linspace(0.1, 1, parts + 1) has them, from the nearer end.
  const float width = (1.0f - 0.1f) / static_cast<float>(parts);
  float bounds[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t at = place + i;
    const float from_below = width * static_cast<float>(at), from_above = width * static_cast<float>(parts - at);
    bounds[i] = at < (parts + 1) / 2 ? 0.1f + from_below : 1.0f - from_above;
  }
  const float sum = bounds[0] + bounds[1];
  return kPowers[decade] * (sum / 2);
}
// What a code stands for, as a share of its block's largest magnitude. Codes rise with it.
constexpr float dynamic_number(uint32_t code, bool has_sign) {
  if (code == kDynamicCodes - 1) return 1;
  if (!has_sign) return code == 0 ? 0 : dynamic_positive(code - 1, 2);
  if (code == kDynamicZero) return 0;
  return code > kDynamicZero ? dynamic_positive(code - kDynamicZero - 1, 1) : -dynamic_positive(kDynamicZero - 1 - code, 1);
}
// Half way between a code's number and the next one's: what is above takes the next one.
constexpr float dynamic_middle(float below, float above) { return (below + above) / 2; }

// A number that is not zero keeps its sign, whatever code is the nearest.
constexpr uint32_t keep_sign(uint32_t code, float number) {
  if (number > 0 && code <= kDynamicZero) return kDynamicZero + 1;
  if (number < 0 && code >= kDynamicZero) return kDynamicZero - 1;
  return code;
}

struct DynamicBlock {
  float largest;
  uint8_t codes[kStateBlock];
};
static_assert(sizeof(DynamicBlock) == kDTypes[static_cast<uint32_t>(DType::kDynamic8)].block_bytes);
static_assert(kStateBlock == kDTypes[static_cast<uint32_t>(DType::kDynamic8Square)].block_elements);

}  // namespace reprise
