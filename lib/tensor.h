// A planned tensor: type, shape, and the range of its bytes in a region of the arena.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/bf16.h"

namespace reprise {

// The storage format of a tensor's elements; kDTypes has an entry for each. An element of a
// quantised format is part of a block.
enum class DType : uint8_t {
  kF32,
  kBf16,
  kI32,
  kI64,
  kU8,
  kF64,
  kF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kIQ4_NL,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kNF4,
  kNF4Double,
  kDynamic8,
  kDynamic8Square  // this and the format before it are for moments (state_format.h)
};

// The properties of a DType.
struct DTypeInfo {
  const char* name;                      // The format's name in texts.
  uint32_t block_elements, block_bytes;  // Elements and bytes of a block; a format without blocks has 1 element.
};
// The properties of each DType, indexed by DType.
inline constexpr DTypeInfo kDTypes[] = {{"f32", 1, 4},          {"bf16", 1, 2},
                                        {"i32", 1, 4},          {"i64", 1, 8},
                                        {"u8", 1, 1},           {"f64", 1, 8},
                                        {"f16", 1, 2},          {"q8_0", 32, 34},
                                        {"q4_0", 32, 18},       {"q4_1", 32, 20},
                                        {"q5_0", 32, 22},       {"q5_1", 32, 24},
                                        {"iq4_nl", 32, 18},     {"q2_k", 256, 84},
                                        {"q3_k", 256, 110},     {"q4_k", 256, 144},
                                        {"q5_k", 256, 176},     {"q6_k", 256, 210},
                                        {"nf4", 64, 36},        {"nf4_double", 512, 272},
                                        {"dynamic8", 256, 260}, {"dynamic8_square", 256, 260}};
constexpr uint32_t kDTypeCount = sizeof(kDTypes) / sizeof(kDTypes[0]);

// True if `dtype` is a value of DType.
constexpr bool is_dtype(DType dtype) { return static_cast<uint32_t>(dtype) < kDTypeCount; }
// Returns the properties of `dtype`.
constexpr const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<uint32_t>(dtype)]; }
// Returns the bytes of `elements` elements, rounded up to whole blocks.
constexpr uint64_t stored_bytes(DType dtype, uint64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  return (elements + info.block_elements - 1) / info.block_elements * info.block_bytes;
}

// True if `type` is a format of 8-bit codes for moments. Its blocks continue from one row of a
// tensor to the next.
constexpr bool has_dynamic_codes(DType type) { return type == DType::kDynamic8 || type == DType::kDynamic8Square; }

// True if rows of `elements` elements are whole blocks, or if the format's blocks may continue from
// one row to the next.
constexpr bool are_whole_blocks(DType dtype, uint64_t elements) {
  return has_dynamic_codes(dtype) || elements % dtype_info(dtype).block_elements == 0;
}

// The DType in which activations of C++ type Stored, float or Bf16, are stored.
template <typename Stored>
inline constexpr DType kStoredAs = DType::kF32;
template <>
inline constexpr DType kStoredAs<Bf16> = DType::kBf16;

// The maximum number of dimensions.
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kAlignment = 256;  // Bytes to which every slot and region is aligned.

// Returns `bytes` rounded up to kAlignment.
constexpr uint64_t align_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A planned tensor, row-major and contiguous.
struct Tensor {
  uint64_t offset = 0;  // Bytes from the start of the tensor's region; a multiple of kAlignment.
  uint64_t bytes = 0;   // Reserved bytes; a multiple of kAlignment, and at least used_bytes().
  DType dtype = DType::kF32;
  uint8_t rank = 0;
  uint32_t shape[kMaxRank] = {1, 1, 1, 1};  // Dimensions past `rank` are 1.

  // Returns the number of elements.
  constexpr uint64_t elements() const { return uint64_t{shape[0]} * shape[1] * shape[2] * shape[3]; }
  // Returns the bytes of the elements, without padding.
  constexpr uint64_t used_bytes() const { return stored_bytes(dtype, elements()); }
  // Returns the last dimension; 1 if the rank is 0.
  constexpr uint64_t last_dimension() const { return rank == 0 ? 1 : shape[rank - 1]; }
  // Returns the product of all dimensions but the last.
  constexpr uint64_t leading_elements() const { return elements() / last_dimension(); }
};

// True if the shapes of the two tensors are equal.
constexpr bool same_shape(const Tensor& a, const Tensor& b) {
  return a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1] && a.shape[2] == b.shape[2] && a.shape[3] == b.shape[3];
}

// A read-only view of an array, which it borrows: a std::span for constant expressions.
template <typename T>
struct Span {
  const T* data = nullptr;
  uint32_t count = 0;

  constexpr const T& operator[](uint64_t i) const { return data[i]; }
  constexpr const T* begin() const { return data; }
  constexpr const T* end() const { return data + count; }
};

}  // namespace reprise
