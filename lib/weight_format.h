// A matrix of parameters, and the formats in which it may be stored. Kernels of every backend,
// their rules and the planner use these definitions. Each backend has one decoder for each format,
// which all its kernels use (lib/cpu/weight_format.cpp, cuda/weight_format.h).
//
// check.h ensures that each row of a matrix consists of whole blocks of its format. So element i of
// a matrix, counted row by row, is element i % block_elements of block i / block_elements. Code
// that reads a matrix states the index of its first element, and needs to know nothing else about
// blocks.
// A decoded number is an f32 that the format alone determines, so weights give the same bits as if
// they were stored as f32.
#pragma once

#include "lib/tensor.h"
#include "lib/weight_blocks.h"

namespace reprise {

// A set of formats, one bit for each. A kernel's rules (backend_rules.h) state the formats
// that it accepts.
using WeightFormats = uint32_t;
// Returns the set of one format.
constexpr WeightFormats weight_format(DType type) { return 1u << static_cast<uint32_t>(type); }
// f32 and bf16, the formats that a kernel accepts if its rules state no others. Kernels that read
// the stored form of a weight many times in a call accept only these.
inline constexpr WeightFormats kPlainWeights = weight_format(DType::kF32) | weight_format(DType::kBf16);
// Returns the set of all block formats.
template <typename... F>
constexpr WeightFormats weight_formats(blocks::Formats<F...>) {
  return (weight_format(F::kType) | ...);
}
// All formats that decoders read.
inline constexpr WeightFormats kEveryWeight =
    kPlainWeights | weight_format(DType::kF16) | weight_formats(blocks::Every{});

// True if the set contains `type`.
constexpr bool takes_weights(WeightFormats formats, DType type) { return (formats & weight_format(type)) != 0; }

// A matrix that a kernel reads. Its format is a property of the call, not of the kernel's C++ type.
struct Weight {
  const void* data = nullptr;  // Borrowed; null: absent.
  DType type = DType::kF32;

  constexpr Weight() = default;
  constexpr Weight(const float* w) : data(w) {}
  constexpr Weight(const Bf16* w) : data(w), type(DType::kBf16) {}
  constexpr Weight(const void* w, DType stored) : data(w), type(stored) {}

  // Returns the matrix as f32; `type` must be kF32.
  const float* f32() const { return static_cast<const float*>(data); }
  // Returns the matrix as bf16; `type` must be kBf16.
  const Bf16* bf16() const { return static_cast<const Bf16*>(data); }
};

}  // namespace reprise
