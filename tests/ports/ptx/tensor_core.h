// The arithmetic of tensor cores in three models: a product of small matrices plus an accumulator,
// bit by bit. A kernel's result must be correct in all three, because cards sum differently.
//
// A fused sum adds some products and the accumulator at once. Each product is exact; its exponent
// is the sum of the exponents of its factors. Every term is shifted to the largest exponent of all
// terms and truncated (towards zero) to a fixed number of fraction bits. The terms are then added
// exactly, and the sum is truncated to f32.
//  kAmpere       fused sums of 8 products of bf16 or 4 of tf32, with 24 bits; the second half of
//                the products is added to the result of the first half
//  kHopper       one fused sum of all 16 products of bf16 or 8 of tf32, with 25 bits
//  kRoundedOnce  the sum in double, rounded to f32 at the end
// The first two models follow published measurements (MMA-Sim, arXiv 2511.10909); no card was
// measured for them. In all three models, a NaN has the bits that the hardware returns, and a sum
// of zeros is +0.
#pragma once

#include <cstdint>

namespace reprise::fibre {

enum class TensorCore : uint8_t { kAmpere, kHopper, kRoundedOnce };
inline constexpr TensorCore kTensorCores[] = {TensorCore::kAmpere, TensorCore::kHopper, TensorCore::kRoundedOnce};

// Computes c[16][8] += a[16][16] * b[16][8]; a and b contain bf16 bits.
void multiply_add_bf16(TensorCore model, float (&c)[16][8], const uint16_t (&a)[16][16], const uint16_t (&b)[16][8]);

// Computes c[16][8] += a[16][8] * b[8][8]; a and b contain f32 bits, of which the last 13 are
// ignored.
void multiply_add_tf32(TensorCore model, float (&c)[16][8], const uint32_t (&a)[16][8], const uint32_t (&b)[8][8]);

// Rounds an f32 to tf32 as the instruction cvt.rna.tf32.f32 does: to nearest, with ties away from
// zero. NaN stays NaN.
uint32_t round_to_tf32(float value);

}  // namespace reprise::fibre
