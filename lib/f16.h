// f16: half precision of IEEE 754, in which model files store weights and the scales of their
// blocks. Kernels and file formats use these conversions. Reading is exact; writing rounds to
// nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

// Returns the exact f32 of an f16. A NaN stays a NaN. There are no branches, so that loops
// vectorise. A subnormal f16 becomes a normal f32, which no processor mode flushes to zero.
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, magnitude = half & 0x7fffu;
  // The bits of the f32 if the f16 is zero or subnormal.
  const uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  // The bits of the f32 otherwise. Infinities and NaNs get the largest exponent.
  const uint32_t large = (magnitude << 13) + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23);
  return std::bit_cast<float>(sign | (magnitude < 0x400u ? small : large));
}

// Returns the nearest f16, ties to even; infinity from 65520 on. A NaN stays a NaN.
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  const bool normal = magnitude >= 0x38800000u;  // 2^-14
  // The significand as an integer; `below` is the number of its low bits that the f16 does not
  // store.
  const uint32_t exponent = magnitude >> 23;
  if (!normal && exponent < 102) return static_cast<uint16_t>(sign);  // less than half of the smallest f16
  const uint32_t significand = normal ? magnitude - 0x38000000u : (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t below = normal ? 13 : 126 - exponent;
  const uint32_t half = uint32_t{1} << (below - 1), rest = significand & ((half << 1) - 1);
  uint32_t rounded = significand >> below;
  if (rest > half || (rest == half && (rounded & 1) != 0)) ++rounded;  // a carry into the exponent is right
  return static_cast<uint16_t>(sign | rounded);
}

}  // namespace reprise
