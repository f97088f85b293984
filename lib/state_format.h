// The formats in which an optimizer keeps its moments, and a trained matrix may be kept: f32, bf16, or 8-bit codes in blocks.
// Here because the CPU's kernels, a card's and the files of a training must mean the same by a byte.
//
// bf16 is rounded at random to one of its two neighbours, the nearer one more often, so that the mean of what is written is what was computed:
// rounded to the nearest, a moment of which a step changes less than 1 / 512 would never change, nor would a weight. The random bits are those
// of Philox at the tensor, the step and the element, so every schedule and budget writes the same bits.
//
// A block of 8-bit codes is the largest magnitude of 256 numbers, as f32, and the 256 codes of the numbers divided by it (lib/dynamic_map.h).
// kDynamic8 has a sign, kDynamic8Square, for second moments, has none and twice as many codes.
//
//   | f32 largest | code 0 | code 1 | ... | code 255 |     260 bytes; the last block of a tensor is whole, whatever its count
#pragma once

#include <bit>
#include <cstdint>

#include "lib/dynamic_map.h"
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

struct DynamicBlock {
  float largest;
  uint8_t codes[kStateBlock];
};
static_assert(sizeof(DynamicBlock) == kDTypes[static_cast<uint32_t>(DType::kDynamic8)].block_bytes);
static_assert(kStateBlock == kDTypes[static_cast<uint32_t>(DType::kDynamic8Square)].block_elements);

}  // namespace reprise
