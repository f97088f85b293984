// The dynamic map: the numbers that the 256 codes of 8 bits represent, as fractions of the largest
// magnitude of their block. The map covers seven decades from 1e-7 to 1. Larger decades have more
// codes (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"; bitsandbytes'
// create_dynamic_map).
// An optimizer's moments and the scales of NF4 use these codes, on the CPU, on a card and in files.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

// The number of codes.
constexpr uint32_t kDynamicCodes = 256;
// The code of zero in the map with a sign; the map without a sign has zero at code 0.
constexpr uint32_t kDynamicZero = 127;

// Returns 10^(decade - 6): 1e-6 for decade 0, 1 for decade 6. The bits of `decade` select the
// constant, so that threads of a card need no table.
constexpr float power_of_ten(uint32_t decade) {
  const bool b2 = (decade & 4) != 0, b1 = (decade & 2) != 0, b0 = (decade & 1) != 0;
  return b2 ? b1 ? 1.0f : b0 ? 1e-1f : 1e-2f : b1 ? b0 ? 1e-3f : 1e-4f : b0 ? 1e-5f : 1e-6f;
}

// Returns bound number `at`, counted from 0, of [0.1, 1] divided into `parts` = 2^log_parts equal
// parts. The bits are those of torch.linspace, which computes from the nearer end and rounds once,
// in a fused multiply-add. 0.1f is kTenth / 2^27 and the width of [0.1, 1] is kSpan / 2^24. So a
// bound times 2^(27 + log_parts) is an integer.
constexpr float linspace_bound(uint32_t at, uint32_t parts, uint32_t log_parts) {
  constexpr uint64_t kTenth = 0xcccccd, kSpan = 0xe66666;
  const uint64_t from_below = (kTenth << log_parts) + 8 * kSpan * at,
                 from_above = (uint64_t{1} << (27 + log_parts)) - 8 * kSpan * (parts - at);
  const float unit = std::bit_cast<float>((127 - 27 - log_parts) << 23);  // 2^-(27 + log_parts)
  return static_cast<float>(at < (parts + 1) / 2 ? from_below : from_above) * unit;
}

// Returns number `place`, counted from 0, of the map's positive numbers below 1 in ascending order.
// Decade d, counted from 0 at 1e-7, has 2^(first + d) numbers. To get them, the range from 0.1 to 1
// is divided into as many equal parts; the numbers are the midpoints of these parts times 10^(d -
// 6).
constexpr float dynamic_positive(uint32_t place, uint32_t first) {
  uint32_t decade = 0, log_parts = first;
  while (place >= 1u << log_parts) place -= 1u << log_parts, ++log_parts, ++decade;
  const uint32_t parts = 1u << log_parts;
  const float sum = linspace_bound(place, parts, log_parts) + linspace_bound(place + 1, parts, log_parts);
  return power_of_ten(decade) * (sum / 2);
}
// Returns the number that `code` represents, as a fraction of its block's largest magnitude. Larger
// codes represent larger numbers.
constexpr float dynamic_number(uint32_t code, bool has_sign) {
  if (code == kDynamicCodes - 1) return 1;
  if (!has_sign) return code == 0 ? 0 : dynamic_positive(code - 1, 1);
  if (code == kDynamicZero) return 0;
  return code > kDynamicZero ? dynamic_positive(code - kDynamicZero - 1, 0)
                             : -dynamic_positive(kDynamicZero - 1 - code, 0);
}
// Returns the midpoint between the numbers of two neighbouring codes. A value above this midpoint
// gets the higher code.
constexpr float dynamic_middle(float below, float above) { return (below + above) / 2; }

// Returns the code to store for `number` in the map with a sign. `code` is the code nearest to
// `number`. It is changed only if the sign of a number other than zero would be lost.
constexpr uint32_t keep_sign(uint32_t code, float number) {
  if (number > 0 && code <= kDynamicZero) return kDynamicZero + 1;
  if (number < 0 && code >= kDynamicZero) return kDynamicZero - 1;
  return code;
}

}  // namespace reprise
