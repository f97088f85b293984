// A planned tensor: type, shape, and where its bytes lie in a region of the arena.
// Here because plan, check and dispatch all speak of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/bf16.h"

namespace reprise {

// How the elements of a tensor are stored: one row of this table each. A quantised format is a block of several elements.
enum class DType : uint8_t {
  kF32, kBf16, kI32, kI64, kU8, kF64, kF16, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kIQ4_NL, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kNF4, kNF4Double,
  kDynamic8, kDynamic8Square  // of moments (state_format.h)
};

struct DTypeInfo {
  const char* name;
  uint32_t block_elements, block_bytes;
};
inline constexpr DTypeInfo kDTypes[] = {
    {"f32", 1, 4},    {"bf16", 1, 2},    {"i32", 1, 4},     {"i64", 1, 8},     {"u8", 1, 1},      {"f64", 1, 8},      {"f16", 1, 2},
    {"q8_0", 32, 34}, {"q4_0", 32, 18},  {"q4_1", 32, 20},  {"q5_0", 32, 22},  {"q5_1", 32, 24},  {"iq4_nl", 32, 18}, {"q2_k", 256, 84},
    {"q3_k", 256, 110}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210}, {"nf4", 64, 36}, {"nf4_double", 512, 272},
    {"dynamic8", 256, 260}, {"dynamic8_square", 256, 260}};
constexpr uint32_t kDTypeCount = sizeof(kDTypes) / sizeof(kDTypes[0]);

constexpr bool is_dtype(DType dtype) { return static_cast<uint32_t>(dtype) < kDTypeCount; }
constexpr const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<uint32_t>(dtype)]; }
// Of so many elements; a started block counts whole.
constexpr uint64_t stored_bytes(DType dtype, uint64_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  return (elements + info.block_elements - 1) / info.block_elements * info.block_bytes;
}

// Codes of moments: their blocks run through a tensor, from row to row.
constexpr bool has_dynamic_codes(DType type) { return type == DType::kDynamic8 || type == DType::kDynamic8Square; }

// Whether rows of so many elements are whole blocks, where these must be.
constexpr bool are_whole_blocks(DType dtype, uint64_t elements) {
  return has_dynamic_codes(dtype) || elements % dtype_info(dtype).block_elements == 0;
}

// How activations may be stored.
template <typename Stored>
inline constexpr DType kStoredAs = DType::kF32;
template <>
inline constexpr DType kStoredAs<Bf16> = DType::kBf16;

constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kAlignment = 256;  // of every slot, in bytes

constexpr uint64_t align_up(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Row-major and contiguous; dimensions past `rank` are 1.
struct Tensor {
  uint64_t offset = 0;  // bytes from the start of its region; a multiple of kAlignment
  uint64_t bytes = 0;   // reserved; a multiple of kAlignment, at least used_bytes()
  DType dtype = DType::kF32;
  uint8_t rank = 0;
  uint32_t shape[kMaxRank] = {1, 1, 1, 1};

  constexpr uint64_t elements() const { return uint64_t{shape[0]} * shape[1] * shape[2] * shape[3]; }
  constexpr uint64_t used_bytes() const { return stored_bytes(dtype, elements()); }
  constexpr uint64_t last_dimension() const { return rank == 0 ? 1 : shape[rank - 1]; }
  constexpr uint64_t leading_elements() const { return elements() / last_dimension(); }  // all but the last dimension
};

constexpr bool same_shape(const Tensor& a, const Tensor& b) {
  return a.shape[0] == b.shape[0] && a.shape[1] == b.shape[1] && a.shape[2] == b.shape[2] && a.shape[3] == b.shape[3];
}

// A constant view of an array: all that lib needs of std::span, usable in constant expressions.
template <typename T>
struct Span {
  const T* data = nullptr;
  uint32_t count = 0;

  constexpr const T& operator[](uint64_t i) const { return data[i]; }
  constexpr const T* begin() const { return data; }
  constexpr const T* end() const { return data + count; }
};

}  // namespace reprise
