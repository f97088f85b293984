// The formats of weights whose numbers stand in blocks: a few bits for each, and a scale that they share. The layouts are ggml's
// (github.com/ggml-org/ggml, ggml-common.h), as GGUF files hold them; NF4's numbers are bitsandbytes'.
// Here because the CPU's decoders, a card's and the reader of files take a block apart by the same functions.
//
// A block is groups of kGroup numbers. A number is scale * multiple + offset: scale and offset are its group's (line), the multiple its own. Where
// there is an offset, the scale is a half times an integer of at most 6 bits, so that the product with the multiple, an integer, fits an f32: nothing
// but the sum is rounded, and a compiler that fuses the two changes no bit.
#pragma once

#include <bit>
#include <cstdint>

#include "lib/dynamic_map.h"
#include "lib/f16.h"
#include "lib/tensor.h"

namespace reprise {

struct BlockLine {
  float scale, offset;
};

namespace blocks {

constexpr float half_at(const uint8_t* at) { return f16_to_f32(static_cast<uint16_t>(at[0] | at[1] << 8)); }
constexpr float float_at(const uint8_t* at) { return std::bit_cast<float>(at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24); }
// Integers of 4 bits, of which byte j holds that of place j in its low half and that of place j + kGroup in its high half.
constexpr int nibble(const uint8_t* bytes, uint32_t group, uint32_t j) { return bytes[j] >> (4 * group) & 0xf; }
// One bit for each of 32 numbers.
constexpr int bit_of(const uint8_t* bits, uint32_t i) { return bits[i / 8] >> (i % 8) & 1; }

// What blocks of 32 begin with: a half, of which all numbers are multiples.
template <DType kStored, uint32_t kNumbers>
struct ScaleAlone {
  static constexpr DType kType = kStored;
  static constexpr uint32_t kGroup = kNumbers;
  static constexpr bool kHasOffset = false;
  static constexpr BlockLine line(const uint8_t* block, uint32_t) { return {half_at(block), 0}; }
};
// Or two halves, the scale and the least number.
template <DType kStored>
struct ScaleAndLeast {
  static constexpr DType kType = kStored;
  static constexpr uint32_t kGroup = 16;
  static constexpr bool kHasOffset = true;
  static constexpr BlockLine line(const uint8_t* block, uint32_t) { return {half_at(block), half_at(block + 2)}; }
};

// 32 signed bytes.
struct Q8_0 : ScaleAlone<DType::kQ8_0, 32> {
  static constexpr int multiple(const uint8_t* block, uint32_t, uint32_t j) { return static_cast<int8_t>(block[2 + j]); }
};

// 32 integers of 4 bits, from -8 on.
struct Q4_0 : ScaleAlone<DType::kQ4_0, 16> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) { return nibble(block + 2, group, j) - 8; }
};

// Integers of 4 bits from the least number on.
struct Q4_1 : ScaleAndLeast<DType::kQ4_1> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) { return nibble(block + 4, group, j); }
};

// As Q4_0, with a fifth bit for each number before the four others.
struct Q5_0 : ScaleAlone<DType::kQ5_0, 16> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return (nibble(block + 6, group, j) | bit_of(block + 2, 16 * group + j) << 4) - 16;
  }
};

// As Q4_1, with fifth bits.
struct Q5_1 : ScaleAndLeast<DType::kQ5_1> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 8, group, j) | bit_of(block + 4, 16 * group + j) << 4;
  }
};

// 32 places of 4 bits in a table of numbers.
struct IQ4_NL : ScaleAlone<DType::kIQ4_NL, 16> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    // -127 -104 -83 -65 -49 -35 -22 -10, 1 13 25 38 53 69 89 113: a byte each, so that no thread of a card keeps a table.
    constexpr uint64_t kBelow = 0xf6eaddcfbfad9881, kAbove = 0x7159453526190d01;
    const int place = nibble(block + 2, group, j);
    return static_cast<int8_t>((place < 8 ? kBelow : kAbove) >> (8 * (place % 8)));
  }
};

// What the K formats share: 256 numbers. Integers of 2 bits stand in two halves of 128 numbers, each of 32 bytes, of which byte 16 h + j holds
// place j of the groups h, h + 2, h + 4 and h + 6 of its half.
constexpr int two_bits(const uint8_t* bytes, uint32_t group, uint32_t j) {
  const uint32_t half = group / 8, within = group % 8;
  return bytes[32 * half + 16 * (within % 2) + j] >> (2 * (within / 2)) & 3;
}
// A scale and a least number of 6 bits for each of eight groups, in 12 bytes: those of the first four groups are the low bits of bytes 0 to 3 and 4
// to 7; of the others the low 4 bits share bytes 8 to 11, and the high 2 bits lie above the first four.
constexpr BlockLine six_bits(const uint8_t* packed, uint32_t group, float scale, float least) {
  const int low = group < 4 ? packed[group] & 0x3f : (packed[group + 4] & 0xf) | packed[group - 4] >> 6 << 4;
  const int high = group < 4 ? packed[group + 4] & 0x3f : packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  return {scale * static_cast<float>(low), -(least * static_cast<float>(high))};
}

// Sixteen scales and least numbers of 4 bits each, 64 bytes of integers, the two halves that they count in.
struct Q2_K {
  static constexpr DType kType = DType::kQ2_K;
  static constexpr uint32_t kGroup = 16;
  static constexpr bool kHasOffset = true;
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    return {half_at(block + 80) * static_cast<float>(block[group] & 0xf), -(half_at(block + 82) * static_cast<float>(block[group] >> 4))};
  }
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) { return two_bits(block + 16, group, j); }
};

// Third bits, of which a cleared one stands for -4: bit g of byte j belongs to pair g of groups; 64 bytes of two bits; sixteen scales of 6 bits from
// -32 on, the low 4 bits of two in each of 8 bytes, the high 2 of four in each of 4; a half.
struct Q3_K {
  static constexpr DType kType = DType::kQ3_K;
  static constexpr uint32_t kGroup = 16;
  static constexpr bool kHasOffset = false;
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    const uint8_t* scales = block + 96;
    const int low = scales[group % 8] >> (4 * (group / 8)) & 0xf, high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
    return {half_at(block + 108) * static_cast<float>((low | high << 4) - 32), 0};
  }
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    const int third = block[16 * (group % 2) + j] >> (group / 2) & 1;
    return (two_bits(block + 32, group, j) | third << 2) - 4;
  }
};

// What Q4_K and Q5_K begin with: two halves, in which the scales and least numbers of 6 bits count.
template <DType kStored>
struct SixBitLines {
  static constexpr DType kType = kStored;
  static constexpr uint32_t kGroup = 32;
  static constexpr bool kHasOffset = true;
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) { return six_bits(block + 4, group, half_at(block), half_at(block + 2)); }
};

// 128 bytes of integers of 4 bits: two groups share 32 bytes.
struct Q4_K : SixBitLines<DType::kQ4_K> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) { return nibble(block + 16 + group / 2 * 32, group % 2, j); }
};

// As Q4_K, with 32 bytes of fifth bits before the integers: bit g of byte j belongs to group g.
struct Q5_K : SixBitLines<DType::kQ5_K> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 48 + group / 2 * 32, group % 2, j) | (block[16 + j] >> group & 1) << 4;
  }
};

// Integers of 6 bits from -32 on: in each half of 128 numbers the low 4 bits of groups 0 to 3 stand in the low halves of 64 bytes, those of groups
// 4 to 7 in their high halves; the high 2 bits stand as those of Q2_K; a signed scale for each group; a half.
struct Q6_K {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr uint32_t kGroup = 16;
  static constexpr bool kHasOffset = false;
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    return {half_at(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + group])), 0};
  }
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    const uint32_t half = group / 8, within = group % 8;
    const int low = block[64 * half + 16 * (within % 4) + j] >> (4 * (within / 4)) & 0xf;
    return (low | two_bits(block + 128, group, j) << 4) - 32;
  }
};

// NF4 (Dettmers et al. 2023, appendix E): the largest magnitude as an f32, then 64 places of 4 bits in a table of quantiles of the normal
// distribution, of which the largest is 1; the first of two stands in a byte's high half.
struct NF4 {
  static constexpr DType kType = DType::kNF4;
  static constexpr uint32_t kGroup = 64;
  static constexpr bool kHasOffset = false;
  static constexpr const uint8_t* places(const uint8_t* block, uint32_t) { return block + 4; }
  static constexpr BlockLine line(const uint8_t* block, uint32_t) { return {float_at(block), 0}; }
  static constexpr float multiple(const uint8_t* block, uint32_t group, uint32_t j) { return quantile(place(places(block, group), j)); }

  static constexpr int place(const uint8_t* places, uint32_t j) { return places[j / 2] >> (j % 2 == 0 ? 4 : 0) & 0xf; }
  // By halves, so that no thread of a card keeps a table.
  static constexpr float quantile(int place) {
    const bool b3 = (place & 8) != 0, b2 = (place & 4) != 0, b1 = (place & 2) != 0, b0 = (place & 1) != 0;
    const float low = b2 ? b1 ? b0 ? 0.0f : -0.09105003625154495f : b0 ? -0.18477343022823334f : -0.28444138169288635f
                         : b1 ? b0 ? -0.39491748809814453f : -0.5250730514526367f : b0 ? -0.6961928009986877f : -1.0f;
    const float high = b2 ? b1 ? b0 ? 1.0f : 0.7229568362236023f : b0 ? 0.5626170039176941f : 0.44070982933044434f
                          : b1 ? b0 ? 0.33791524171829224f : 0.24611230194568634f : b0 ? 0.16093020141124725f : 0.07958029955625534f;
    return b3 ? high : low;
  }
};

// NF4 whose scales are quantised once more (QLoRA's double quantisation; Dettmers et al. 2023, section 3): the largest magnitude of each of eight
// groups is a code of the dynamic map, of which scale and offset are the block's own. bitsandbytes has one scale for 256 groups and one offset for a
// tensor; a block repeats them, so that it is decoded alone.
//
//   | f32 scale | f32 offset | 8 codes | 8 groups of 32 bytes |     272 bytes for 512 numbers
struct NF4Double {
  static constexpr DType kType = DType::kNF4Double;
  static constexpr uint32_t kGroup = NF4::kGroup;
  static constexpr bool kHasOffset = false;
  static constexpr const uint8_t* places(const uint8_t* block, uint32_t group) { return block + 16 + group * (kGroup / 2); }
  // The product is rounded before the sum. Cards' code and the tools' are compiled so that nothing is fused; lib/cpu has a way of its own
  // (weight_format.cpp).
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    const float product = dynamic_number(block[8 + group], true) * float_at(block);
    return {product + float_at(block + 4), 0};
  }
  static constexpr float multiple(const uint8_t* block, uint32_t group, uint32_t j) { return NF4::quantile(NF4::place(places(block, group), j)); }
};

template <typename... F>
struct Formats {};
using Every = Formats<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, NF4, NF4Double>;

// What a multiple of a group stands for.
template <typename F, typename Multiple>
constexpr float number(const BlockLine& line, Multiple multiple) {
  const float product = line.scale * static_cast<float>(multiple);
  if constexpr (F::kHasOffset) return product + line.offset;
  return product;
}

// Numbers [first, first + count) of a group.
template <typename F>
constexpr void decode_group(const uint8_t* block, uint32_t group, uint32_t first, uint32_t count, float* to) {
  const BlockLine line = F::line(block, group);
  if (count == F::kGroup) {
    for (uint32_t j = 0; j < F::kGroup; ++j) to[j] = number<F>(line, F::multiple(block, group, j));
  } else {
    for (uint32_t j = 0; j < count; ++j) to[j] = number<F>(line, F::multiple(block, group, first + j));
  }
}

}  // namespace blocks
}  // namespace reprise
