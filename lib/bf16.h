// bf16: the upper half of an f32, in which activations may be stored.
// Here so that every room converts alike: exactly when read, to the nearest (ties to even) when written.
// It must not compute: whoever reads a Bf16 computes in f32.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

// A NaN stays one (its payload's low half is lost, so a bit of the high half is set); the largest f32 become infinity.
constexpr uint16_t round_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t quiet = bits >> 16 | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

struct Bf16 {
  uint16_t bits;

  Bf16() = default;
  constexpr Bf16(float value) : bits(round_to_bf16(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
static_assert(sizeof(Bf16) == 2);

}  // namespace reprise
