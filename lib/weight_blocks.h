// Formats of weights whose numbers are stored in blocks: a few bits for each number, and a scale
// that several numbers share. The layouts are those of ggml (github.com/ggml-org/ggml,
// ggml-common.h) and GGUF files; NF4's numbers are bitsandbytes'. The CPU's decoders, a card's
// decoders and the reader of files decode blocks with these functions.
//
// A block consists of groups of kGroup numbers. A number is scale * multiple + offset. All numbers
// of a group share the scale and the offset, which together are called its line. Each number has
// its own multiple.
// In formats with an offset, the scale is an f16 times an integer of at most 6 bits, and the
// multiple is an integer. So an f32 stores their product exactly, and only the sum is rounded. A
// compiler that fuses product and sum then changes no bit.
//
// Every format has
//   kType                      its DType
//   kGroup                     numbers of a group
//   kHasOffset                 true if its lines have an offset
//   line(block, group)         returns scale and offset of a group
//   multiple(block, group, j)  returns the multiple of number j of a group
#pragma once

#include <bit>
#include <cstdint>

#include "lib/dynamic_map.h"
#include "lib/f16.h"
#include "lib/tensor.h"

namespace reprise {

// A line: the scale and the offset that the numbers of a group share.
struct BlockLine {
  float scale, offset;
};

namespace blocks {

// Returns the f16 at `at`, little-endian, as f32.
constexpr float half_at(const uint8_t* at) { return f16_to_f32(static_cast<uint16_t>(at[0] | at[1] << 8)); }
// Returns the f32 at `at`, little-endian.
constexpr float float_at(const uint8_t* at) {
  return std::bit_cast<float>(at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24);
}
// Returns an integer of 4 bits. Byte j has number j of group 0 in its low 4 bits and number j of
// group 1 in its high 4 bits.
constexpr int nibble(const uint8_t* bytes, uint32_t group, uint32_t j) { return bytes[j] >> (4 * group) & 0xf; }
// Returns bit `i` of a bit array.
constexpr int bit_of(const uint8_t* bits, uint32_t i) { return bits[i / 8] >> (i % 8) & 1; }

// The start of a block of 32 numbers: an f16, the scale of all of them. `kNumbers` is the size of a
// group.
template <DType kStored, uint32_t kNumbers>
struct ScaleAlone {
  static constexpr DType kType = kStored;
  static constexpr uint32_t kGroup = kNumbers;
  static constexpr bool kHasOffset = false;
  static constexpr BlockLine line(const uint8_t* block, uint32_t) { return {half_at(block), 0}; }
};
// The start of a block of 32 numbers: two f16, the scale and the minimum of all of them.
template <DType kStored>
struct ScaleAndMin {
  static constexpr DType kType = kStored;
  static constexpr uint32_t kGroup = 16;
  static constexpr bool kHasOffset = true;
  static constexpr BlockLine line(const uint8_t* block, uint32_t) { return {half_at(block), half_at(block + 2)}; }
};

// Q8_0: 32 integers of 8 bits with a sign.
struct Q8_0 : ScaleAlone<DType::kQ8_0, 32> {
  static constexpr int multiple(const uint8_t* block, uint32_t, uint32_t j) {
    return static_cast<int8_t>(block[2 + j]);
  }
};

// Q4_0: 32 integers of 4 bits in [-8, 7], stored with 8 added (layout: nibble).
struct Q4_0 : ScaleAlone<DType::kQ4_0, 16> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 2, group, j) - 8;
  }
};

// Q4_1: 32 integers of 4 bits; 0 represents the minimum.
struct Q4_1 : ScaleAndMin<DType::kQ4_1> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 4, group, j);
  }
};

// Q5_0: 32 integers of 5 bits in [-16, 15], stored with 16 added. The fifth bits of all numbers
// precede their low 4 bits.
struct Q5_0 : ScaleAlone<DType::kQ5_0, 16> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return (nibble(block + 6, group, j) | bit_of(block + 2, 16 * group + j) << 4) - 16;
  }
};

// Q5_1: 32 integers of 5 bits; 0 represents the minimum. The fifth bits are stored as in Q5_0.
struct Q5_1 : ScaleAndMin<DType::kQ5_1> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 8, group, j) | bit_of(block + 4, 16 * group + j) << 4;
  }
};

// IQ4_NL: 32 indices of 4 bits into a table of numbers.
struct IQ4_NL : ScaleAlone<DType::kIQ4_NL, 16> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    // The table, one byte for each entry, so that no thread of a card needs a table in memory: -127
    // -104 -83 -65 -49 -35 -22 -10, 1 13 25 38 53 69 89 113.
    constexpr uint64_t kBelow = 0xf6eaddcfbfad9881, kAbove = 0x7159453526190d01;
    const int place = nibble(block + 2, group, j);
    return static_cast<int8_t>((place < 8 ? kBelow : kAbove) >> (8 * (place % 8)));
  }
};

// Returns an integer of 2 bits. The K formats have 256 numbers in two parts of 128, each in 32
// bytes. Byte 16 h + j of a part (h is 0 or 1) has number j of four groups of that part, from the
// lowest bits on: h, h + 2, h + 4 and h + 6.
constexpr int two_bits(const uint8_t* bytes, uint32_t group, uint32_t j) {
  const uint32_t half = group / 8, within = group % 8;
  return bytes[32 * half + 16 * (within % 2) + j] >> (2 * (within / 2)) & 3;
}
// Returns the line of one of eight groups, whose scales and minima of 6 bits are packed in 12
// bytes:
//   bytes 0 to 3    low 6 bits: scales 0 to 3    top 2 bits: high bits of scales 4 to 7
//   bytes 4 to 7    low 6 bits: minima 0 to 3    top 2 bits: high bits of minima 4 to 7
//   bytes 8 to 11   low 4 bits: low bits of scales 4 to 7    high 4 bits: low bits of minima 4 to 7
constexpr BlockLine six_bits(const uint8_t* packed, uint32_t group, float scale, float minimum) {
  const int low = group < 4 ? packed[group] & 0x3f : (packed[group + 4] & 0xf) | packed[group - 4] >> 6 << 4;
  const int high = group < 4 ? packed[group + 4] & 0x3f : packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  return {scale * static_cast<float>(low), -(minimum * static_cast<float>(high))};
}

// Q2_K: a byte for each of sixteen groups, 64 bytes of integers, and two f16, the factors of the
// scales and of the minima. The low 4 bits of a group's byte are its scale, and the high 4 bits are
// its minimum.
struct Q2_K {
  static constexpr DType kType = DType::kQ2_K;
  static constexpr uint32_t kGroup = 16;
  static constexpr bool kHasOffset = true;
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    return {half_at(block + 80) * static_cast<float>(block[group] & 0xf),
            -(half_at(block + 82) * static_cast<float>(block[group] >> 4))};
  }
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return two_bits(block + 16, group, j);
  }
};

// Q3_K: 32 bytes of third bits, 64 bytes of two bits, sixteen scales of 6 bits in [-32, 31], and an
// f16. If the third bit of a number is 0, 4 is subtracted from its two bits. Bit g of byte 16 h +
// j, h = 0 or 1, belongs to number j of group 2 g + h. The scales have 12 bytes:
//   byte i of the first 8   low 4 bits: low bits of scale i    high 4 bits: low bits of scale i + 8
//   byte i of the last 4    high 2 bits of scales i, i + 4, i + 8, i + 12, from the lowest bits on
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

// The start of Q4_K and Q5_K: two f16, the factors of the 6-bit scales and of the 6-bit minima.
template <DType kStored>
struct SixBitLines {
  static constexpr DType kType = kStored;
  static constexpr uint32_t kGroup = 32;
  static constexpr bool kHasOffset = true;
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    return six_bits(block + 4, group, half_at(block), half_at(block + 2));
  }
};

// Q4_K: 128 bytes of integers of 4 bits. Two groups share 32 bytes: the even group is in the low 4
// bits.
struct Q4_K : SixBitLines<DType::kQ4_K> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 16 + group / 2 * 32, group % 2, j);
  }
};

// Q5_K: as Q4_K, but with 32 bytes of fifth bits before the integers. Bit g of byte j belongs to
// number j of group g.
struct Q5_K : SixBitLines<DType::kQ5_K> {
  static constexpr int multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return nibble(block + 48 + group / 2 * 32, group % 2, j) | (block[16 + j] >> group & 1) << 4;
  }
};

// Q6_K: integers of 6 bits in [-32, 31], a signed scale for each group, and an f16. The numbers are
// in two parts of 128. In each part, 64 bytes have the low 4 bits: groups 0 to 3 in the bytes' low
// 4 bits, groups 4 to 7 in their high 4 bits. The high 2 bits are stored as the integers of Q2_K.
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

// NF4 (Dettmers et al. 2023, appendix E): the largest magnitude as an f32, then 64 indices of 4
// bits into a table of quantiles of the normal distribution. The largest quantile is 1. The first
// of two indices is in the high 4 bits of a byte.
struct NF4 {
  static constexpr DType kType = DType::kNF4;
  static constexpr uint32_t kGroup = 64;
  static constexpr bool kHasOffset = false;
  // Returns the address of the indices of a group.
  static constexpr const uint8_t* places(const uint8_t* block, uint32_t) { return block + 4; }
  static constexpr BlockLine line(const uint8_t* block, uint32_t) { return {float_at(block), 0}; }
  static constexpr float multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return quantile(place(places(block, group), j));
  }

  // Returns index `j` of a group.
  static constexpr int place(const uint8_t* places, uint32_t j) { return places[j / 2] >> (j % 2 == 0 ? 4 : 0) & 0xf; }
  // Returns entry `place` of the table. The bits of `place` select a constant, so that threads of a
  // card need no table.
  static constexpr float quantile(int place) {
    const bool b3 = (place & 8) != 0, b2 = (place & 4) != 0, b1 = (place & 2) != 0, b0 = (place & 1) != 0;
    const float low = b2 ? b1 ? b0 ? 0.0f : -0.09105003625154495f : b0 ? -0.18477343022823334f : -0.28444138169288635f
                         : b1 ? b0 ? -0.39491748809814453f : -0.5250730514526367f : b0 ? -0.6961928009986877f : -1.0f;
    const float high = b2   ? b1   ? b0 ? 1.0f : 0.7229568362236023f
                              : b0 ? 0.5626170039176941f
                                   : 0.44070982933044434f
                       : b1 ? b0 ? 0.33791524171829224f : 0.24611230194568634f
                       : b0 ? 0.16093020141124725f
                            : 0.07958029955625534f;
    return b3 ? high : low;
  }
};

// NF4 with quantised scales (QLoRA's double quantisation; Dettmers et al. 2023, section 3). The
// largest magnitude of each of eight groups is a code of the dynamic map, with a scale and an
// offset that the block stores. bitsandbytes has one scale for 256 groups and one offset for a
// tensor. Here each block repeats them, so that it can be decoded alone.
//
//   | f32 scale | f32 offset | 8 codes | 8 groups of 32 bytes |     272 bytes for 512 numbers
struct NF4Double {
  static constexpr DType kType = DType::kNF4Double;
  static constexpr uint32_t kGroup = NF4::kGroup;
  static constexpr bool kHasOffset = false;
  static constexpr const uint8_t* places(const uint8_t* block, uint32_t group) {
    return block + 16 + group * (kGroup / 2);
  }
  // Returns scale and offset of a group. The product is rounded before the sum, because the code of
  // cards and of tools is compiled without fusing. lib/cpu has its own version (weight_format.cpp).
  static constexpr BlockLine line(const uint8_t* block, uint32_t group) {
    const float product = dynamic_number(block[8 + group], true) * float_at(block);
    return {product + float_at(block + 4), 0};
  }
  static constexpr float multiple(const uint8_t* block, uint32_t group, uint32_t j) {
    return NF4::quantile(NF4::place(places(block, group), j));
  }
};

// A list of formats.
template <typename... F>
struct Formats {};
// All formats.
using Every = Formats<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, NF4, NF4Double>;

// Returns the number that `multiple` and the line of its group represent.
template <typename F, typename Multiple>
constexpr float number(const BlockLine& line, Multiple multiple) {
  const float product = line.scale * static_cast<float>(multiple);
  if constexpr (F::kHasOffset) return product + line.offset;
  return product;
}

// Writes to `to` the numbers [first, first + count) of a group.
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
