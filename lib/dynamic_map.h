// The dynamic map: what the 256 codes of 8 bits stand for, as shares of the largest magnitude beside them (Dettmers et al. 2022, "8-bit Optimizers
// via Block-wise Quantization"; bitsandbytes' create_dynamic_map): seven decades from 1e-7 to 1, the larger ones with more codes.
// Here because an optimizer's moments and the scales of NF4 are coded by it, on the CPU, on a card and in files.
#pragma once

#include <bit>
#include <cstdint>

namespace reprise {

constexpr uint32_t kDynamicCodes = 256;
constexpr uint32_t kDynamicZero = 127;  // the code of zero in the map with a sign; 0 in the other

// 1e-6 for decade 0 to 1 for decade 6; by halves, so that no thread of a card keeps a table.
constexpr float power_of_ten(uint32_t decade) {
  const bool b2 = (decade & 4) != 0, b1 = (decade & 2) != 0, b0 = (decade & 1) != 0;
  return b2 ? b1 ? 1.0f : b0 ? 1e-1f : 1e-2f : b1 ? b0 ? 1e-3f : 1e-4f : b0 ? 1e-5f : 1e-6f;
}

// Bound `at` of 2^log_parts equal parts of [0.1, 1], as torch.linspace has it: from the nearer end, and rounded once, because torch multiplies
// and adds in one step. 0.1f is kTenth / 2^27 and the span of the parts kSpan / 2^24: over 2^(27 + log_parts) a bound is an integer, and exact.
constexpr float linspace_bound(uint32_t at, uint32_t parts, uint32_t log_parts) {
  constexpr uint64_t kTenth = 0xcccccd, kSpan = 0xe66666;
  const uint64_t from_below = (kTenth << log_parts) + 8 * kSpan * at, from_above = (uint64_t{1} << (27 + log_parts)) - 8 * kSpan * (parts - at);
  const float unit = std::bit_cast<float>((127 - 27 - log_parts) << 23);  // 2^-(27 + log_parts)
  return static_cast<float>(at < (parts + 1) / 2 ? from_below : from_above) * unit;
}

// Number `place`, from 0, of the map's positive numbers below 1. Decade d, from 1e-7 on, has 2^(first + d) numbers, the middles of as many
// equal parts of its upper nine tenths.
constexpr float dynamic_positive(uint32_t place, uint32_t first) {
  uint32_t decade = 0, log_parts = first;
  while (place >= 1u << log_parts) place -= 1u << log_parts, ++log_parts, ++decade;
  const uint32_t parts = 1u << log_parts;
  const float sum = linspace_bound(place, parts, log_parts) + linspace_bound(place + 1, parts, log_parts);
  return power_of_ten(decade) * (sum / 2);
}
// What a code stands for, as a share of its block's largest magnitude. Codes rise with it.
constexpr float dynamic_number(uint32_t code, bool has_sign) {
  if (code == kDynamicCodes - 1) return 1;
  if (!has_sign) return code == 0 ? 0 : dynamic_positive(code - 1, 1);
  if (code == kDynamicZero) return 0;
  return code > kDynamicZero ? dynamic_positive(code - kDynamicZero - 1, 0) : -dynamic_positive(kDynamicZero - 1 - code, 0);
}
// Half way between a code's number and the next one's: what is above takes the next one.
constexpr float dynamic_middle(float below, float above) { return (below + above) / 2; }

// A number that is not zero keeps its sign, whatever code is the nearest.
constexpr uint32_t keep_sign(uint32_t code, float number) {
  if (number > 0 && code <= kDynamicZero) return kDynamicZero + 1;
  if (number < 0 && code >= kDynamicZero) return kDynamicZero - 1;
  return code;
}

}  // namespace reprise
