// See ggml_blocks.h. lib/weight_blocks.h decodes the formats whose blocks have several numbers. The
// encoders here round each sum and each product separately, as ggml and bitsandbytes do. The
// Makefile therefore compiles this file with -ffp-contract=off.
#include "tools/files/formats/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>

#include "lib/bf16.h"
#include "lib/f16.h"
#include "lib/weight_blocks.h"

namespace reprise {
namespace {

using Byte = unsigned char;

uint16_t two_bytes(const Byte* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }

void decode_f32(const Byte* block, float* to) { std::memcpy(to, block, sizeof *to); }
void decode_f16(const Byte* block, float* to) { *to = blocks::half_at(block); }
void decode_bf16(const Byte* block, float* to) {
  Bf16 value;
  value.bits = two_bytes(block);
  *to = value;
}

template <typename F>
void decode_block(const Byte* block, float* to) {
  constexpr uint32_t kGroups = dtype_info(F::kType).block_elements / F::kGroup;
  for (uint32_t group = 0; group < kGroups; ++group)
    blocks::decode_group<F>(block, group, 0, F::kGroup, to + group * F::kGroup);
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

// Writes the low 4 bits of 32 integers, two integers per byte. If the integers have 5 bits,
// put_fifth_bits() writes the fifth bits to four more bytes.
void put_nibbles(const int (&integers)[32], Byte* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<Byte>((integers[i] & 0xf) | (integers[i + 16] & 0xf) << 4);
}
void put_fifth_bits(const int (&integers)[32], Byte* to) {
  std::fill_n(to, 4, Byte{0});
  for (int i = 0; i < 32; ++i) to[i / 8] = static_cast<Byte>(to[i / 8] | (integers[i] >> 4 & 1) << i % 8);
}

// Encodes each value as d * (integer - kHalf). d is the value with the largest magnitude, divided
// by -kHalf, so that this value gets the integer 0.
template <int kHalf>
void encode_signed(const float* values, Byte* to) {
  const float largest =
      *std::max_element(values, values + 32, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float d = largest / -kHalf, inverse = d == 0 ? 0 : 1 / d;
  int integers[32];
  for (int i = 0; i < 32; ++i)
    integers[i] = std::min(2 * kHalf - 1, static_cast<int>(values[i] * inverse + (static_cast<float>(kHalf) + 0.5f)));
  put(to, f32_to_f16(d));
  if (kHalf == 16) put_fifth_bits(integers, to + 2);
  put_nibbles(integers, to + (kHalf == 16 ? 6 : 2));
}

// Encodes each value as minimum + d * integer, with d = (maximum - minimum) / kSteps.
template <int kSteps>
void encode_from_min(const float* values, Byte* to) {
  const auto [minimum, largest] = std::minmax_element(values, values + 32);
  const float d = (*largest - *minimum) / kSteps, inverse = d == 0 ? 0 : 1 / d;
  int integers[32];
  for (int i = 0; i < 32; ++i)
    integers[i] = std::min(kSteps, static_cast<int>((values[i] - *minimum) * inverse + 0.5f));
  put(to, f32_to_f16(d));
  put(to + 2, f32_to_f16(*minimum));
  if (kSteps == 31) put_fifth_bits(integers, to + 4);
  put_nibbles(integers, to + (kSteps == 31 ? 8 : 4));
}

// Returns the nearest integer, ties to even. After 1.5 * 2^23 is added, an f32 has no bits left for
// a fraction, so the sum is rounded to an integer.
int nearest(float value) { return static_cast<int>((value + 12582912.0f) - 12582912.0f); }

// The result of fit_line(), which approximates 32 numbers by scale * integer - minimum, with
// integers from 0 to 15. It tries several step sizes. For each, it fits scale and minimum to the
// integers by weighted least squares. It returns the fit with the smallest weighted sum of squared
// errors.
struct FittedLine {
  float scale = 0, minimum = 0;
  int integers[32] = {};
};
FittedLine fit_line(const float* x, const float* weights) {
  constexpr int kSteps = 15, kTries = 20;
  float low = x[0], high = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < 32; ++i) {
    low = std::min(low, x[i]), high = std::max(high, x[i]);
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  low = std::min(low, 0.0f);
  if (high == low) return {0, -low};
  const auto count_steps = [&](FittedLine& line, float inverse) {
    for (int i = 0; i < 32; ++i) line.integers[i] = std::clamp(nearest(inverse * (x[i] - low)), 0, kSteps);
  };
  const auto errors = [&](const FittedLine& line) {
    float sum = 0;
    for (int i = 0; i < 32; ++i) {
      const float difference = line.scale * static_cast<float>(line.integers[i]) + line.minimum - x[i];
      sum += weights[i] * (difference * difference);
    }
    return sum;
  };
  const float first = kSteps / (high - low);
  FittedLine best = {1 / first, low};
  count_steps(best, first);
  float smallest = errors(best);
  for (int attempt = 0; attempt <= kTries; ++attempt) {
    FittedLine line;
    count_steps(line, (-1.0f + 0.1f * static_cast<float>(attempt) + kSteps) / (high - low));
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < 32; ++i) {
      const float l = static_cast<float>(line.integers[i]);
      sum_l += weights[i] * l;
      sum_l2 += weights[i] * l * l;
      sum_xl += weights[i] * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    line.scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    line.minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (line.minimum > 0) line.scale = sum_xl / sum_l2, line.minimum = 0;
    const float sum = errors(line);
    if (sum < smallest) smallest = sum, best = line, low = line.minimum;  // the next step sizes begin at line.minimum
  }
  best.minimum = -best.minimum;
  return best;
}

// Encodes 256 numbers as eight groups of 32, each with a fitted line. The `scale` and `minimum` of
// a group are stored as multiples of 1/63 of the maximum over the eight groups.
void encode_q4_k(const float* values, Byte* to) {
  FittedLine lines[8];
  float largest_scale = 0, largest_min = 0;
  for (int g = 0; g < 8; ++g) {
    const float* x = values + 32 * g;
    float squares = 0, weights[32];
    for (int i = 0; i < 32; ++i) squares += x[i] * x[i];
    for (int i = 0; i < 32; ++i) weights[i] = std::sqrt(squares / 32) + std::fabs(x[i]);
    lines[g] = fit_line(x, weights);
    largest_scale = std::max(largest_scale, lines[g].scale), largest_min = std::max(largest_min, lines[g].minimum);
  }
  std::fill_n(to, 144, Byte{0});
  put(to, f32_to_f16(largest_scale / 63));
  put(to + 2, f32_to_f16(largest_min / 63));
  Byte* packed = to + 4;
  for (int g = 0; g < 8; ++g) {
    const auto sixty_thirds = [](float part, float whole) {
      return std::min(63, whole > 0 ? nearest(63.0f / whole * part) : 0);
    };
    const int scale = sixty_thirds(lines[g].scale, largest_scale),
              minimum = sixty_thirds(lines[g].minimum, largest_min);
    if (g < 4) {
      packed[g] = static_cast<Byte>(scale), packed[g + 4] = static_cast<Byte>(minimum);
    } else {
      packed[g + 4] = static_cast<Byte>((scale & 0xf) | (minimum & 0xf) << 4);
      packed[g - 4] = static_cast<Byte>(packed[g - 4] | scale >> 4 << 6),
                 packed[g] = static_cast<Byte>(packed[g] | minimum >> 4 << 6);
    }
  }
  for (uint32_t g = 0; g < 8; ++g) {
    const BlockLine line = blocks::Q4_K::line(to, g);
    for (uint32_t i = 0; i < 32; ++i) {
      const int integer = line.scale == 0 ? lines[g].integers[i]
                                          : std::clamp(nearest((values[32 * g + i] - line.offset) / line.scale), 0, 15);
      Byte& byte = to[16 + 32 * (g / 2) + i];
      byte = static_cast<Byte>(byte | integer << 4 * (g % 2));
    }
  }
}

// Encodes 64 numbers, two per byte. A number's code is the index of the quantile that is nearest to
// number / largest; if two quantiles are equally near, the lower index.
void put_places(const float* values, float largest, Byte* to) {
  constexpr float kMiddles[] = {-0.8480964004993439f,   -0.6106329262256622f,  -0.4599952697753906f,
                                -0.33967943489551544f,  -0.23460740596055984f, -0.13791173323988914f,
                                -0.045525018125772476f, 0.03979014977812767f,  0.1202552504837513f,
                                0.2035212516784668f,    0.2920137718319893f,   0.3893125355243683f,
                                0.5016634166240692f,    0.6427869200706482f,   0.8614784181118011f};
  const float inverse = 1 / largest;
  for (int i = 0; i < 64; i += 2) {
    int places[2] = {};
    for (int k = 0; k < 2; ++k) {
      for (const float middle : kMiddles) places[k] += values[i + k] * inverse > middle ? 1 : 0;
    }
    to[i / 2] = static_cast<Byte>(places[0] << 4 | places[1]);
  }
}
float largest_of_64(const float* values) {
  float largest = 0;
  for (int i = 0; i < 64; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

void encode_nf4(const float* values, Byte* to) {
  const float largest = largest_of_64(values);
  std::memcpy(to, &largest, sizeof largest);
  put_places(values, largest, to + 4);
}

// The midpoints between the values of neighbouring codes.
constexpr auto kMiddlesOfCodes = [] {
  std::array<float, kDynamicCodes - 1> middles = {};
  for (uint32_t code = 0; code < middles.size(); ++code)
    middles[code] = dynamic_middle(dynamic_number(code, true), dynamic_number(code + 1, true));
  return middles;
}();
Byte nearest_code(float share) {
  return static_cast<Byte>(std::lower_bound(kMiddlesOfCodes.begin(), kMiddlesOfCodes.end(), share) -
                           kMiddlesOfCodes.begin());
}

// Encodes a block of 8 * 64 numbers. The offset is half way between the groups' maximum and minimum
// magnitude: the scale is then minimal, and no decoded magnitude is negative. All numbers of a
// group of zeros get the index of the quantile that is 0, because the group's decoded magnitude may
// be above 0.
void encode_nf4_double(const float* values, Byte* to) {
  constexpr int kGroups = 8;
  float largest[kGroups];
  for (int g = 0; g < kGroups; ++g) largest[g] = largest_of_64(values + 64 * g);
  const auto [minimum, maximum] = std::minmax_element(largest, largest + kGroups);
  const float offset = *minimum + (*maximum - *minimum) / 2, scale = std::max(*maximum - offset, offset - *minimum);
  std::memcpy(to, &scale, sizeof scale);
  std::memcpy(to + 4, &offset, sizeof offset);
  for (int g = 0; g < kGroups; ++g) {
    Byte* places = to + 16 + 32 * g;
    to[8 + g] = nearest_code(scale > 0 ? (largest[g] - offset) / scale : 0);
    if (largest[g] > 0) {
      put_places(values + 64 * g, largest[g], places);
    } else {
      std::fill_n(places, 32, Byte{0x77});
    }
  }
}

struct BlockRow {
  BlockLayout layout;
  void (*decode)(const Byte* block, float* to);
  void (*encode)(const float* values, Byte* to) = nullptr;
  std::optional<DType> format = std::nullopt;
};

template <typename F>
constexpr BlockRow blocks_row(BlockType type, const char* name,
                              void (*encode)(const float* values, Byte* to) = nullptr) {
  return {{type, name, dtype_info(F::kType).block_elements, dtype_info(F::kType).block_bytes},
          decode_block<F>,
          encode,
          F::kType};
}

constexpr BlockRow kRows[] = {
    {{BlockType::kF32, "F32", 1, 4}, decode_f32, encode_f32, DType::kF32},
    {{BlockType::kF16, "F16", 1, 2}, decode_f16, encode_f16, DType::kF16},
    {{BlockType::kBf16, "BF16", 1, 2}, decode_bf16, encode_bf16, DType::kBf16},
    blocks_row<blocks::Q8_0>(BlockType::kQ8_0, "Q8_0", encode_q8_0),
    blocks_row<blocks::Q4_0>(BlockType::kQ4_0, "Q4_0", encode_signed<8>),
    blocks_row<blocks::Q4_1>(BlockType::kQ4_1, "Q4_1", encode_from_min<15>),
    blocks_row<blocks::Q5_0>(BlockType::kQ5_0, "Q5_0", encode_signed<16>),
    blocks_row<blocks::Q5_1>(BlockType::kQ5_1, "Q5_1", encode_from_min<31>),
    blocks_row<blocks::IQ4_NL>(BlockType::kIQ4_NL, "IQ4_NL"),
    blocks_row<blocks::Q2_K>(BlockType::kQ2_K, "Q2_K"),
    blocks_row<blocks::Q3_K>(BlockType::kQ3_K, "Q3_K"),
    blocks_row<blocks::Q4_K>(BlockType::kQ4_K, "Q4_K", encode_q4_k),
    blocks_row<blocks::Q5_K>(BlockType::kQ5_K, "Q5_K"),
    blocks_row<blocks::Q6_K>(BlockType::kQ6_K, "Q6_K"),
    blocks_row<blocks::NF4>(BlockType::kNF4, "NF4", encode_nf4),
    blocks_row<blocks::NF4Double>(BlockType::kNF4Double, "NF4_DOUBLE", encode_nf4_double),
};

const BlockRow* find_row(uint32_t type) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [&](const BlockRow& r) { return static_cast<uint32_t>(r.layout.type) == type; });
  return row == std::end(kRows) ? nullptr : row;
}

// ggml's names by type number; null for numbers that ggml has removed or not assigned.
constexpr const char* kTypeNames[] = {"F32",   "F16",   "Q4_0",    "Q4_1",   nullptr,   nullptr, "Q5_0",
                                      "Q5_1",  "Q8_0",  "Q8_1",    "Q2_K",   "Q3_K",    "Q4_K",  "Q5_K",
                                      "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",
                                      "IQ3_S", "IQ2_S", "IQ4_XS",  "I8",     "I16",     "I32",   "I64",
                                      "F64",   "IQ1_M", "BF16",    nullptr,  nullptr,   nullptr, "TQ1_0",
                                      "TQ2_0", nullptr, nullptr,   nullptr,  "MXFP4",   "NVFP4", "Q1_0"};

}  // namespace

const BlockLayout* find_block_layout(uint32_t type) {
  const BlockRow* row = find_row(type);
  return row == nullptr || row->layout.type >= BlockType::kNF4 ? nullptr : &row->layout;
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
  const auto row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const BlockRow& r) { return r.format == format; });
  return row == std::end(kRows) ? std::nullopt : std::optional(row->layout.type);
}

bool is_written(BlockType type) { return find_row(static_cast<uint32_t>(type))->encode != nullptr; }

void quantise_blocks(BlockType type, const float* values, uint64_t count, void* blocks) {
  const BlockRow& row = *find_row(static_cast<uint32_t>(type));
  if (row.encode == nullptr)
    throw std::logic_error(std::string("quantise_blocks: no blocks of ") + row.layout.name + " are made here");
  Byte* block = static_cast<Byte*>(blocks);
  for (uint64_t n = 0; n < count; ++n) row.encode(values + n * row.layout.values, block + n * row.layout.bytes);
}

}  // namespace reprise
