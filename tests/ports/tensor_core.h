// The arithmetic of tensor cores, in three models: a product of small matrices plus an accumulator, bit by bit.
// Here because a kernel's result must be right whichever way the hardware sums, and no card is at hand to ask.
//
// A fused sum takes some products and the accumulator at once. Each product is exact; every term is then shifted to the
// largest exponent among them, where the product of two numbers of exponents p and q counts as p + q, and cut (towards
// zero) to so many bits behind the point. The terms that are left are added exactly, and the sum is cut to f32.
//   kAmpere       sums of 8 products of bf16 or 4 of tf32, 24 bits; the second half adds to the first half's result
//   kHopper       all 16 products of bf16 or 8 of tf32 at once, 25 bits
//   kRoundedOnce  the sum in double, rounded to f32 at the end
// The first two are as others have measured them (MMA-Sim, arXiv 2511.10909); no card of ours has been asked. In these a
// NaN has the bits that the hardware gives, and a sum of nothing but zeros is +0.
#pragma once

#include <cstdint>

namespace reprise::fibre {

enum class TensorCore : uint8_t { kAmpere, kHopper, kRoundedOnce };
inline constexpr TensorCore kTensorCores[] = {TensorCore::kAmpere, TensorCore::kHopper, TensorCore::kRoundedOnce};

// c[16][8] += a[16][16] * b[16][8] with the bits of bf16.
void multiply_add_bf16(TensorCore model, float (&c)[16][8], const uint16_t (&a)[16][16], const uint16_t (&b)[16][8]);

// c[16][8] += a[16][8] * b[8][8] with the bits of f32, of which the last 13 are ignored.
void multiply_add_tf32(TensorCore model, float (&c)[16][8], const uint32_t (&a)[16][8], const uint32_t (&b)[8][8]);

// cvt.rna.tf32.f32: to the nearest, a tie away from zero. NaN stays NaN.
uint32_t round_to_tf32(float value);

}  // namespace reprise::fibre
