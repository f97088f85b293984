// bf16: the upper half of an f32, in which activations, weights and moments may be stored. Reading
// is exact. Writing rounds to nearest, ties to even; only updates of State round randomly
// (round_randomly() in state_format.h). There is no arithmetic: code that reads a Bf16 computes in
// f32.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

// Returns the bf16 nearest to `value`, ties to even. A NaN stays a NaN: its payload loses the low
// half, and a bit of the high half is set. A value beyond the largest bf16 becomes infinity.
constexpr uint16_t round_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// A number that is stored as bf16 and converts to and from float.
struct Bf16 {
  uint16_t bits;  // The upper 16 bits of the f32.

  Bf16() = default;
  // Rounds `value` as round_to_bf16() does.
  constexpr Bf16(float value) : bits(round_to_bf16(value)) {}
  // Returns the exact f32.
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
static_assert(sizeof(Bf16) == 2);

}  // namespace reprise
