// A matrix of parameters and the formats in which it may be stored.
// Here because kernels on every backend, their rules and the planner must mean the same by a format; each backend has one decoder for each,
// in the file of this name (lib/cpu/weight_format.cpp, cuda/weight_format.h), and every kernel that reads weights reads them by it.
//
// A row of a matrix is whole blocks of its format, which check.h sees to. So element i of a matrix, counted row by row, is element
// i % block_elements of block i / block_elements: whoever reads says where its elements begin in the matrix, and need not know of blocks.
// A decoded number is an f32 that the format determines alone, so weights give the bits that the same numbers give when they are stored as f32.
#pragma once

#include "lib/tensor.h"
#include "lib/weight_blocks.h"

namespace reprise {

// Sets of formats, a bit each. A kernel's rules (backend_rules.h) say which it takes.
using WeightFormats = uint32_t;
constexpr WeightFormats weight_format(DType type) { return 1u << static_cast<uint32_t>(type); }
// Plain numbers: what a kernel takes that reads weights many times from where they lie.
inline constexpr WeightFormats kPlainWeights = weight_format(DType::kF32) | weight_format(DType::kBf16);
// All that decoders read.
template <typename... F>
constexpr WeightFormats weight_formats(blocks::Formats<F...>) {
  return (weight_format(F::kType) | ...);
}
inline constexpr WeightFormats kEveryWeight = kPlainWeights | weight_format(DType::kF16) | weight_formats(blocks::Every{});

constexpr bool takes_weights(WeightFormats formats, DType type) { return (formats & weight_format(type)) != 0; }

// A matrix as a kernel gets it. How it is stored is a fact of the call, not of the kernel's type.
struct Weight {
  const void* data = nullptr;
  DType type = DType::kF32;

  constexpr Weight() = default;
  constexpr Weight(const float* w) : data(w) {}
  constexpr Weight(const Bf16* w) : data(w), type(DType::kBf16) {}
  constexpr Weight(const void* w, DType stored) : data(w), type(stored) {}

  const float* f32() const { return static_cast<const float*>(data); }
  const Bf16* bf16() const { return static_cast<const Bf16*>(data); }
};

}  // namespace reprise
