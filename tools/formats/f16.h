// f16: IEEE 754's half precision, in which model files store weights and the scales of their blocks.
// Here so that every format converts alike: exactly when read, to the nearest (ties to even) when written.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

// Exact. A NaN stays one.
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero or subnormal: exact in f32
  return sign == 0 ? magnitude : -magnitude;
}

// The nearest half, ties to even. From 65520 on it is an infinity. A NaN stays one.
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  const bool normal = magnitude >= 0x38800000u;  // 2^-14
  // The significand as an integer, and how many of its bits lie below the half's last place.
  const uint32_t exponent = magnitude >> 23;
  if (!normal && exponent < 102) return static_cast<uint16_t>(sign);  // below half of the smallest
  const uint32_t significand = normal ? magnitude - 0x38000000u : (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t below = normal ? 13 : 126 - exponent;
  const uint32_t half = uint32_t{1} << (below - 1), rest = significand & ((half << 1) - 1);
  uint32_t rounded = significand >> below;
  if (rest > half || (rest == half && (rounded & 1) != 0)) ++rounded;  // a carry into the exponent is right
  return static_cast<uint16_t>(sign | rounded);
}

}  // namespace reprise
