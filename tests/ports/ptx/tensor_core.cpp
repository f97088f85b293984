// Computes the fused sums of tensor_core.h in doubles and integers. A term with n fraction bits is
// an integer: the term times 2^n, truncated.
#include "tests/ports/ptx/tensor_core.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace reprise::fibre {
namespace {

constexpr int kRows = 16, kColumns = 8;
constexpr int32_t kNoExponent = -10000;  // exponent of a zero

// The two operands of a product. bf16 and tf32 are subsets of f32, so both are stored as f32. A
// product of two elements is exact in double.
template <int kDepth>
struct Factors {
  float a[kRows][kDepth];
  float b[kDepth][kColumns];
};

// The numbers of one operand, and their exponents. Infinities and NaN are stored as zero; `finite`
// is then false.
template <int kOuter, int kInner>
struct Terms {
  double value[kOuter][kInner];
  int32_t exponent[kOuter][kInner];
  bool finite[kOuter][kInner];
  bool all_finite = true, all_zero[kOuter];  // all numbers are finite; for each outer index, all numbers are zero

  explicit Terms(const float (&factor)[kOuter][kInner]);
};

int32_t exponent_of(float value) {
  constexpr int32_t kMin = -126;  // smallest exponent of a normal number, and that of subnormal ones
  if (value == 0) return kNoExponent;
  return std::max(static_cast<int32_t>(std::bit_cast<uint32_t>(value) >> 23 & 0xff) - 127, kMin);
}
double power_of_two(int32_t exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

float cut_to_f32(double value) {
  constexpr uint64_t kBelow = (1ull << 29) - 1;  // the 29 fraction bits of a double that an f32 lacks
  if (std::fabs(value) < power_of_two(-126))
    return static_cast<float>(std::trunc(value * power_of_two(149)) * power_of_two(-149));
  return static_cast<float>(std::bit_cast<double>(std::bit_cast<uint64_t>(value) & ~kBelow));
}

template <int kOuter, int kInner>
Terms<kOuter, kInner>::Terms(const float (&factor)[kOuter][kInner]) {
  for (int i = 0; i < kOuter; ++i) {
    all_zero[i] = true;
    for (int j = 0; j < kInner; ++j) {
      finite[i][j] = std::isfinite(factor[i][j]);
      all_finite &= finite[i][j];
      all_zero[i] &= factor[i][j] == 0;
      value[i][j] = finite[i][j] ? factor[i][j] : 0;
      exponent[i][j] = finite[i][j] ? exponent_of(factor[i][j]) : kNoExponent;
    }
  }
}

// Adds row i of a times column j of b to c[j], for depths kFirst to kFirst + kCount - 1, in one
// fused sum with kKept fraction bits.
template <int kKept, int kFirst, int kCount, int kDepth>
void add_fused(float (&c)[kColumns], int i, const Terms<kRows, kDepth>& a, const Terms<kDepth, kColumns>& b) {
  int32_t largest[kColumns];
  for (int j = 0; j < kColumns; ++j) largest[j] = exponent_of(c[j]);
  for (int k = kFirst; k < kFirst + kCount; ++k) {
    for (int j = 0; j < kColumns; ++j) largest[j] = std::max(largest[j], a.exponent[i][k] + b.exponent[k][j]);
  }
  double scale[kColumns], sum[kColumns];
  for (int j = 0; j < kColumns; ++j) {
    if (largest[j] < kNoExponent / 2) largest[j] = 0;  // all terms are zero
    scale[j] = power_of_two(kKept - largest[j]);
    sum[j] = std::isfinite(c[j]) ? static_cast<int32_t>(c[j] * scale[j]) : c[j];  // c[j] may have overflowed before
  }
  for (int k = kFirst; k < kFirst + kCount; ++k) {
    for (int j = 0; j < kColumns; ++j) sum[j] += static_cast<int32_t>(a.value[i][k] * b.value[k][j] * scale[j]);
  }
  for (int j = 0; j < kColumns; ++j) c[j] = cut_to_f32(sum[j] * power_of_two(largest[j] - kKept));
}

template <int kDepth>
float sum_in_double(float c, const Factors<kDepth>& factors, int i, int j) {
  double sum = c;
  for (int k = 0; k < kDepth; ++k) sum += double{factors.a[i][k]} * factors.b[k][j];
  return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : static_cast<float>(sum);
}

template <int kDepth>
void add_fused_row(TensorCore model, float (&c)[kColumns], int i, const Terms<kRows, kDepth>& a,
                   const Terms<kDepth, kColumns>& b) {
  if (model == TensorCore::kHopper) return add_fused<25, 0, kDepth>(c, i, a, b);
  add_fused<24, 0, kDepth / 2>(c, i, a, b);
  add_fused<24, kDepth / 2, kDepth / 2>(c, i, a, b);
}

// True if in every model these sums do not change when zeros are added: each is finite and not -0,
// which would become +0.
bool stay_beside_zeros(const float (&c)[kColumns]) {
  return std::all_of(c, c + kColumns,
                     [](float sum) { return std::isfinite(sum) && std::bit_cast<uint32_t>(sum) != 0x80000000u; });
}

template <int kDepth>
void multiply_add(TensorCore model, float (&c)[kRows][kColumns], const Factors<kDepth>& factors) {
  const Terms<kRows, kDepth> a(factors.a);
  const Terms<kDepth, kColumns> b(factors.b);
  const bool b_is_zero = std::all_of(b.all_zero, b.all_zero + kDepth, [](bool zero) { return zero; });
  for (int i = 0; i < kRows; ++i) {
    // Skips rows of zeros, to save time: with a small tensor, most of a tile is outside of it.
    if (((a.all_zero[i] && b.all_finite) || (b_is_zero && a.all_finite)) && stay_beside_zeros(c[i])) continue;
    bool in_double[kColumns];  // sums with an infinity or a NaN are computed in double in every model
    float before[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      before[j] = c[i][j];
      in_double[j] = model == TensorCore::kRoundedOnce || !std::isfinite(before[j]);
      for (int k = 0; k < kDepth; ++k) in_double[j] |= !(a.finite[i][k] & b.finite[k][j]);
      if (in_double[j]) c[i][j] = 0;
    }
    if (model != TensorCore::kRoundedOnce) add_fused_row(model, c[i], i, a, b);
    for (int j = 0; j < kColumns; ++j) {
      if (in_double[j]) c[i][j] = sum_in_double(before[j], factors, i, j);
    }
  }
}

}  // namespace

void multiply_add_bf16(TensorCore model, float (&c)[16][8], const uint16_t (&a)[16][16], const uint16_t (&b)[16][8]) {
  Factors<16> factors;
  const auto widen = [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); };
  std::transform(&a[0][0], &a[0][0] + 16 * 16, &factors.a[0][0], widen);
  std::transform(&b[0][0], &b[0][0] + 16 * 8, &factors.b[0][0], widen);
  multiply_add(model, c, factors);
}

void multiply_add_tf32(TensorCore model, float (&c)[16][8], const uint32_t (&a)[16][8], const uint32_t (&b)[8][8]) {
  Factors<8> factors;
  const auto cut = [](uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); };
  std::transform(&a[0][0], &a[0][0] + 16 * 8, &factors.a[0][0], cut);
  std::transform(&b[0][0], &b[0][0] + 8 * 8, &factors.b[0][0], cut);
  multiply_add(model, c, factors);
}

uint32_t round_to_tf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7fffffffu;
  if (std::isinf(value)) return bits;
  return (bits + 0x1000u) & 0xffffe000u;
}

}  // namespace reprise::fibre
