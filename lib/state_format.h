// The formats in which State stores an optimizer's moments and trained matrices: f32, bf16, or
// 8-bit codes in blocks. The kernels of the CPU and of a card, and the files of a training, use
// these definitions.
//
// A value that is stored as bf16 is rounded at random to one of its two neighbours, the nearer one
// with the higher probability. So the mean of the stored value is the computed value. With rounding
// to nearest, a number that a step changes by less than 1 / 512 of its value would never change.
// The random bits are a function (Philox) of the tensor, the step and the element. So every
// schedule and budget stores the same bits.
//
// A block of 8-bit codes has the largest magnitude of 256 numbers, as f32, and 256 codes. A code
// represents its number divided by that magnitude (lib/dynamic_map.h). kDynamic8 has a sign.
// kDynamic8Square, for second moments, has no sign and twice as many codes for positive numbers.
//
//   | f32 largest | code 0 | code 1 | ... | code 255 |     260 bytes, also for the last block
#pragma once

#include <bit>
#include <cstdint>

#include "lib/dynamic_map.h"
#include "lib/rng.h"
#include "lib/tensor.h"

namespace reprise {

// Numbers of State that an update reads and writes.
struct StateNumbers {
  void* data = nullptr;      // Address; null: absent.
  DType type = DType::kF32;  // Format of the numbers.

  constexpr StateNumbers() = default;
  constexpr StateNumbers(float* numbers) : data(numbers) {}
  constexpr StateNumbers(void* numbers, DType stored) : data(numbers), type(stored) {}

  // Returns the numbers as f32; `type` must be kF32.
  float* f32() const { return static_cast<float*>(data); }
};

// The number of elements in a block. An update of tensors that are not all f32 proceeds by such
// blocks.
constexpr uint32_t kStateBlock = 256;

// ---- rounding to bf16 ----

// Returns `value` as bf16, rounded by `random`, which is uniform in [0, 2^16). A value that bf16
// represents exactly does not change; a NaN stays a NaN.
constexpr uint16_t round_randomly(float value, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool is_number = (bits & 0x7f800000u) != 0x7f800000u;
  return is_number ? static_cast<uint16_t>((bits + random) >> 16) : round_to_bf16(value);
}

// The kinds of numbers that an update rounds. Each kind has its own random bits.
enum class RoundedPart : uint32_t { kParameter, kFirstMoment, kSecondMoment };

// The key of the random bits with which one row rounds.
struct StateRounding {
  uint64_t seed = 0;
  uint32_t step = 0, stream = 0;  // stream: number of the tensor, from the row's attribute
};

// The number of draws for a block. A draw has four words, and so eight halves of words, of 16 bits
// each. Element i uses half i / 32 of draw i % 32. So a loop over 32 neighbours uses the same half
// of all draws.
constexpr uint32_t kStateDraws = 32;
// Returns draw `draw` of block `block`.
constexpr PhiloxBlock state_draw(const StateRounding& r, RoundedPart part, uint64_t block, uint32_t draw) {
  return philox_update(r.seed, r.step, static_cast<uint32_t>(part), r.stream, block * kStateDraws + draw);
}
// Returns half `half` of a draw, 16 random bits. `word` must be word half / 2 of the draw.
constexpr uint32_t half_of_word(uint32_t word, uint32_t half) { return word >> (16 * (half % 2)) & 0xffffu; }

// ---- codes of 8 bits ----

// A block of kDynamic8 or kDynamic8Square.
struct DynamicBlock {
  float largest;  // Largest magnitude of the block's numbers.
  uint8_t codes[kStateBlock];
};
static_assert(sizeof(DynamicBlock) == kDTypes[static_cast<uint32_t>(DType::kDynamic8)].block_bytes);
static_assert(kStateBlock == kDTypes[static_cast<uint32_t>(DType::kDynamic8Square)].block_elements);

}  // namespace reprise
