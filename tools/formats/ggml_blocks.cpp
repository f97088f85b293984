// The blocks of ggml_blocks.h, a function for each. Scales are halves and their products with the small integers fit in 24 bits, so that
// nothing but the last addition or product rounds: whether a compiler fuses the two changes nothing.
#include "tools/formats/ggml_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

#include "lib/bf16.h"
#include "lib/f16.h"

namespace reprise {
namespace {

using Byte = unsigned char;

uint16_t two_bytes(const Byte* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }
float half_at(const Byte* at) { return f16_to_f32(two_bytes(at)); }

void decode_f32(const Byte* block, float* to) { std::memcpy(to, block, sizeof *to); }
void decode_f16(const Byte* block, float* to) { *to = half_at(block); }
void decode_bf16(const Byte* block, float* to) {
  Bf16 value;
  value.bits = two_bytes(block);
  *to = value;
}

// Blocks of 32 with 4 bits each: value i lies in the low half of byte i, value i + 16 in the high half.
int nibble(const Byte* nibbles, int i) { return i < 16 ? nibbles[i] & 0xf : nibbles[i - 16] >> 4; }
// The fifth bits of 32 values, one bit each.
int fifth_bit(const Byte* bits, int i) { return bits[i / 8] >> (i % 8) & 1; }

void decode_q4_0(const Byte* block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void decode_q4_1(const Byte* block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(nibble(block + 4, i)) + least;
}

void decode_q5_0(const Byte* block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>((nibble(block + 6, i) | fifth_bit(block + 2, i) << 4) - 16);
}

void decode_q5_1(const Byte* block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(nibble(block + 8, i) | fifth_bit(block + 4, i) << 4) + least;
}

void decode_q8_0(const Byte* block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Eight scales and eight minima of 6 bits in 12 bytes: the first four of each lie in the low bits of bytes 0-3 and 4-7; of the others
// the low 4 bits share bytes 8-11 and the high 2 bits lie above the first four.
struct SixBits {
  int scale, least;
};
SixBits six_bits(const Byte* packed, int part) {
  if (part < 4) return {packed[part] & 0x3f, packed[part + 4] & 0x3f};
  const Byte low = packed[part + 4];
  return {(low & 0xf) | packed[part - 4] >> 6 << 4, low >> 4 | packed[part] >> 6 << 4};
}

// Eight parts of 32 values; parts 2p and 2p + 1 share 32 bytes, in their low and high halves.
void decode_q4_k(const Byte* block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int part = 0; part < 8; ++part) {
    const SixBits six = six_bits(block + 4, part);
    const float d = scale * static_cast<float>(six.scale), m = least * static_cast<float>(six.least);
    const Byte* nibbles = block + 16 + part / 2 * 32;
    for (int i = 0; i < 32; ++i) to[part * 32 + i] = d * static_cast<float>(nibbles[i] >> part % 2 * 4 & 0xf) - m;
  }
}

void decode_q5_k(const Byte* block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  const Byte* fifth_bits = block + 16;  // bit `part` of byte i
  for (int part = 0; part < 8; ++part) {
    const SixBits six = six_bits(block + 4, part);
    const float d = scale * static_cast<float>(six.scale), m = least * static_cast<float>(six.least);
    const Byte* nibbles = block + 48 + part / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int q = (nibbles[i] >> part % 2 * 4 & 0xf) | (fifth_bits[i] >> part & 1) << 4;
      to[part * 32 + i] = d * static_cast<float>(q) - m;
    }
  }
}

// Two halves of 128 values, each of four parts of 32: the low 4 bits of parts 0 and 2 share 32 bytes, those of parts 1 and 3 the next 32,
// and the high 2 bits of all four share 32 bytes. A signed scale for every 16 values.
void decode_q6_k(const Byte* block, float* to) {
  const float scale = half_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    const Byte *low = block + half * 64, *high = block + 128 + half * 32, *scales = block + 192 + half * 8;
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 32; ++i) {
        const int q = (low[part % 2 * 32 + i] >> part / 2 * 4 & 0xf) | (high[i] >> part * 2 & 3) << 4;
        const float d = scale * static_cast<float>(static_cast<int8_t>(scales[part * 2 + i / 16]));
        to[half * 128 + part * 32 + i] = d * static_cast<float>(q - 32);
      }
    }
  }
}

void put(Byte* at, uint16_t bits) {
  at[0] = static_cast<Byte>(bits);
  at[1] = static_cast<Byte>(bits >> 8);
}

void encode_f32(const float* values, Byte* to) { std::memcpy(to, values, sizeof *values); }
void encode_f16(const float* values, Byte* to) { put(to, f32_to_f16(*values)); }
void encode_bf16(const float* values, Byte* to) { put(to, round_to_bf16(*values)); }

void encode_q8_0(const float* values, Byte* to) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float d = largest / 127, inverse = d == 0 ? 0 : 1 / d;
  put(to, f32_to_f16(d));
  for (int i = 0; i < 32; ++i) to[2 + i] = static_cast<Byte>(static_cast<int8_t>(std::round(values[i] * inverse)));
}

struct BlockRow {
  BlockLayout layout;
  void (*decode)(const Byte* block, float* to);
  void (*encode)(const float* values, Byte* to) = nullptr;
  std::optional<DType> format = std::nullopt;
};

constexpr BlockRow kRows[] = {
    {{BlockType::kF32, "F32", 1, 4}, decode_f32, encode_f32, DType::kF32},
    {{BlockType::kF16, "F16", 1, 2}, decode_f16, encode_f16, DType::kF16},
    {{BlockType::kBf16, "BF16", 1, 2}, decode_bf16, encode_bf16, DType::kBf16},
    {{BlockType::kQ8_0, "Q8_0", 32, 34}, decode_q8_0, encode_q8_0, DType::kQ8_0},
    {{BlockType::kQ4_0, "Q4_0", 32, 18}, decode_q4_0},
    {{BlockType::kQ4_1, "Q4_1", 32, 20}, decode_q4_1},
    {{BlockType::kQ5_0, "Q5_0", 32, 22}, decode_q5_0},
    {{BlockType::kQ5_1, "Q5_1", 32, 24}, decode_q5_1},
    {{BlockType::kQ4_K, "Q4_K", 256, 144}, decode_q4_k},
    {{BlockType::kQ5_K, "Q5_K", 256, 176}, decode_q5_k},
    {{BlockType::kQ6_K, "Q6_K", 256, 210}, decode_q6_k},
};

const BlockRow* find_row(uint32_t type) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const BlockRow& r) { return static_cast<uint32_t>(r.layout.type) == type; });
  return row == std::end(kRows) ? nullptr : row;
}

// By their numbers; those between that ggml has given up, or never given, have none.
constexpr const char* kTypeNames[] = {"F32",     "F16",    "Q4_0",    "Q4_1",  nullptr,  nullptr, "Q5_0",  "Q5_1",   "Q8_0",  "Q8_1", "Q2_K",
                                      "Q3_K",    "Q4_K",   "Q5_K",    "Q6_K",  "Q8_K",   "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
                                      "IQ2_S",   "IQ4_XS", "I8",      "I16",   "I32",    "I64",   "F64",   "IQ1_M",  "BF16",  nullptr, nullptr,
                                      nullptr,   "TQ1_0",  "TQ2_0",   nullptr, nullptr,  nullptr, "MXFP4", "NVFP4",  "Q1_0"};

}  // namespace

const BlockLayout* find_block_layout(uint32_t type) {
  const BlockRow* row = find_row(type);
  return row == nullptr ? nullptr : &row->layout;
}

const BlockLayout& block_layout(BlockType type) { return find_row(static_cast<uint32_t>(type))->layout; }

const char* ggml_type_name(uint32_t type) { return type < std::size(kTypeNames) ? kTypeNames[type] : nullptr; }

void dequantise_blocks(BlockType type, const void* blocks, uint64_t count, float* values) {
  const BlockRow& row = *find_row(static_cast<uint32_t>(type));
  const Byte* block = static_cast<const Byte*>(blocks);
  for (uint64_t n = 0; n < count; ++n) row.decode(block + n * row.layout.bytes, values + n * row.layout.values);
}

std::optional<DType> weight_format_of(BlockType type) { return find_row(static_cast<uint32_t>(type))->format; }

std::optional<BlockType> block_type_of(DType format) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const BlockRow& r) { return r.format == format; });
  return row == std::end(kRows) ? std::nullopt : std::optional(row->layout.type);
}

bool is_written(BlockType type) { return find_row(static_cast<uint32_t>(type))->encode != nullptr; }

void quantise_blocks(BlockType type, const float* values, uint64_t count, void* blocks) {
  const BlockRow& row = *find_row(static_cast<uint32_t>(type));
  if (row.encode == nullptr) throw std::logic_error(std::string("quantise_blocks: no blocks of ") + row.layout.name + " are made here");
  Byte* block = static_cast<Byte*>(blocks);
  for (uint64_t n = 0; n < count; ++n) row.encode(values + n * row.layout.values, block + n * row.layout.bytes);
}

}  // namespace reprise
