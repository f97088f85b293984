// The fused sums of tensor_core.h on integers.
#include "tests/ports/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace reprise::fibre {
namespace {

// A finite number is significand * 2^(exponent - kBits), where kBits are those behind the point.
struct Number {
  int32_t significand = 0;
  int32_t exponent = 0;
  double value = 0;
};

constexpr int kBf16Bits = 7, kTf32Bits = 10, kF32Bits = 23;
constexpr int32_t kLeastExponent = -126, kNoExponent = -100000;

template <int kBits>
Number number_of(uint32_t f32_bits) {
  const uint32_t biased = f32_bits >> 23 & 0xff;
  const auto fraction = static_cast<int32_t>((f32_bits & 0x7fffff) >> (kF32Bits - kBits));
  const int32_t magnitude = biased == 0 ? fraction : fraction | 1 << kBits;
  return {(f32_bits >> 31) != 0 ? -magnitude : magnitude, biased == 0 ? kLeastExponent : static_cast<int32_t>(biased) - 127,
          std::bit_cast<float>(f32_bits)};
}

// sum * 2^exponent, cut to f32.
float cut_to_f32(int64_t sum, int32_t exponent) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 1u << 31 : 0;
  uint64_t magnitude = sum < 0 ? -static_cast<uint64_t>(sum) : static_cast<uint64_t>(sum);
  const int length = static_cast<int>(std::bit_width(magnitude));
  const int shift = std::max(length - 24, -149 - exponent);  // below 2^-126 fewer bits are left
  if (shift >= 64) return std::bit_cast<float>(sign);
  magnitude = shift >= 0 ? magnitude >> shift : magnitude << -shift;
  exponent += shift;
  if (magnitude < 1u << 23) return std::bit_cast<float>(sign | static_cast<uint32_t>(magnitude));
  const int32_t biased = exponent + 23 + 127;
  if (biased >= 255) return std::bit_cast<float>(sign | 0x7f800000u);
  return std::bit_cast<float>(sign | static_cast<uint32_t>(biased) << 23 | (static_cast<uint32_t>(magnitude) & 0x7fffffu));
}

// What has an infinity or a NaN in it, in IEEE 754's way.
template <int kCount>
float special_sum(const Number* a, const Number* b, float c) {
  double sum = c;
  for (int k = 0; k < kCount; ++k) sum += a[k].value * b[k].value;
  return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(sum);
}

int64_t shifted(int32_t significand, int up, int32_t down) {
  const int64_t magnitude = static_cast<int64_t>(std::abs(significand)) << up >> std::min(down, 63);
  return significand < 0 ? -magnitude : magnitude;
}

// One fused sum of kCount products and c; kKept bits behind the point.
template <int kCount, int kBits, int kKept>
float fused_sum(const Number* a, const Number* b, float c) {
  const Number add = number_of<kF32Bits>(std::bit_cast<uint32_t>(c));
  int32_t products[kCount], exponents[kCount], largest = add.significand == 0 ? kNoExponent : add.exponent;
  for (int k = 0; k < kCount; ++k) {
    products[k] = a[k].significand * b[k].significand;
    exponents[k] = products[k] == 0 ? kNoExponent : a[k].exponent + b[k].exponent;
    largest = std::max(largest, exponents[k]);
  }
  if (largest == kNoExponent) return 0;
  int64_t sum = add.significand == 0 ? 0 : shifted(add.significand, kKept - kF32Bits, largest - add.exponent);
  for (int k = 0; k < kCount; ++k) sum += shifted(products[k], kKept - 2 * kBits, largest - exponents[k]);
  return cut_to_f32(sum, largest - kKept);
}

template <int kCount, int kBits>
float sum_of(TensorCore model, const Number* a, const Number* b, float c) {
  constexpr int kHalf = kCount / 2;
  switch (model) {
    case TensorCore::kAmpere:
      return fused_sum<kHalf, kBits, 24>(a + kHalf, b + kHalf, fused_sum<kHalf, kBits, 24>(a, b, c));
    case TensorCore::kHopper:
      return fused_sum<kCount, kBits, 25>(a, b, c);
    case TensorCore::kRoundedOnce:
      break;
  }
  return special_sum<kCount>(a, b, c);
}

// `rows` is a[16][kCount], `columns` is b transposed: [8][kCount].
template <int kCount, int kBits>
void multiply_add(TensorCore model, float (&c)[16][8], const Number (&rows)[16][kCount], const Number (&columns)[8][kCount]) {
  const auto special = [](const Number (&numbers)[kCount]) {
    return std::any_of(numbers, numbers + kCount, [](const Number& n) { return !std::isfinite(n.value); });
  };
  bool row_special[16], column_special[8];
  for (int i = 0; i < 16; ++i) row_special[i] = special(rows[i]);
  for (int j = 0; j < 8; ++j) column_special[j] = special(columns[j]);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      const bool any = row_special[i] || column_special[j] || !std::isfinite(c[i][j]);
      c[i][j] = any ? special_sum<kCount>(rows[i], columns[j], c[i][j])
                    : sum_of<kCount, kBits>(model, rows[i], columns[j], c[i][j]);
    }
  }
}

}  // namespace

void multiply_add_bf16(TensorCore model, float (&c)[16][8], const uint16_t (&a)[16][16], const uint16_t (&b)[16][8]) {
  Number rows[16][16], columns[8][16];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) rows[i][k] = number_of<kBf16Bits>(static_cast<uint32_t>(a[i][k]) << 16);
  }
  for (int k = 0; k < 16; ++k) {
    for (int j = 0; j < 8; ++j) columns[j][k] = number_of<kBf16Bits>(static_cast<uint32_t>(b[k][j]) << 16);
  }
  multiply_add<16, kBf16Bits>(model, c, rows, columns);
}

void multiply_add_tf32(TensorCore model, float (&c)[16][8], const uint32_t (&a)[16][8], const uint32_t (&b)[8][8]) {
  constexpr uint32_t kRead = 0xffffe000u;
  Number rows[16][8], columns[8][8];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 8; ++k) rows[i][k] = number_of<kTf32Bits>(a[i][k] & kRead);
  }
  for (int k = 0; k < 8; ++k) {
    for (int j = 0; j < 8; ++j) columns[j][k] = number_of<kTf32Bits>(b[k][j] & kRead);
  }
  multiply_add<8, kTf32Bits>(model, c, rows, columns);
}

uint32_t round_to_tf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fffffffu;
  if (std::isinf(value)) return bits;
  return (bits + 0x1000u) & 0xffffe000u;
}

}  // namespace reprise::fibre
