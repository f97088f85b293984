// Operations in which the threads of a block or warp take part together, under the fibres:
// barriers, shuffles, votes, and the functions of cuda/warp.h. If a thread that must take part does
// not arrive, this is a fault. The last thread that arrives does the work.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lib/bf16.h"
#include "tests/ports/fibres/cuda_fibre_memory.h"

namespace reprise::fibre {

// The segment of a warp with whose lanes the calling lane can shuffle.
struct Segment {
  explicit Segment(int width_)
      : lane(Device::instance().lane()), width(static_cast<uint32_t>(width_)), begin(lane / width * width) {}
  uint32_t clip(uint32_t source) const { return source < begin + width ? source : lane; }

  uint32_t lane, width, begin;
};

uint64_t shuffle_bits(uint32_t mask, uint64_t bits, uint32_t source, int line);

template <typename T>
T shuffle(uint32_t mask, T value, uint32_t source, int line) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = shuffle_bits(mask, bits, source, line);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t vote(uint32_t mask, bool value, int line);

void load_matrices(uint32_t* registers, uint32_t count, bool transposed, const SharedBytes& shared, uint32_t offset,
                   int line);
void issue_copy(const SharedBytes& shared, uint32_t offset, const void* source, uint32_t bytes, uint32_t valid_bytes,
                int line);

}  // namespace reprise::fibre

inline void __syncthreads(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  reprise::fibre::Device::instance().meet_block({"__syncthreads", file, line});
}
inline int __syncthreads_or(int value, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  return reprise::fibre::Device::instance().meet_block_or({"__syncthreads_or", file, line}, value != 0) ? 1 : 0;
}
inline void __syncwarp(uint32_t mask = 0xffffffffu, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  reprise::fibre::Device::instance().meet_warp({"__syncwarp", file, line}, mask);
}

// Returns the `value` of another lane, as the CUDA C++ programming guide defines it. `width`, a
// power of two, divides the warp into segments. __shfl_xor_sync and __shfl_down_sync return the
// lane's own value if the source is past the end of the lane's segment.
template <typename T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  const reprise::fibre::Segment segment(width);
  return reprise::fibre::shuffle(mask, value, segment.begin + static_cast<uint32_t>(source) % segment.width, line);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32, int line = __builtin_LINE()) {
  const reprise::fibre::Segment segment(width);
  return reprise::fibre::shuffle(mask, value, segment.clip(segment.lane ^ static_cast<uint32_t>(lane_mask)), line);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, uint32_t delta, int width = 32, int line = __builtin_LINE()) {
  const reprise::fibre::Segment segment(width);
  return reprise::fibre::shuffle(mask, value, segment.clip(segment.lane + delta), line);
}
inline uint32_t __ballot_sync(uint32_t mask, int value, int line = __builtin_LINE()) {
  return reprise::fibre::vote(mask, value != 0, line);
}
inline int __any_sync(uint32_t mask, int value, int line = __builtin_LINE()) {
  return reprise::fibre::vote(mask, value != 0, line) != 0 ? 1 : 0;
}
inline int __all_sync(uint32_t mask, int value, int line = __builtin_LINE()) {
  return reprise::fibre::vote(mask, value != 0, line) == mask ? 1 : 0;
}

// ---- functions of cuda/warp.h, which states their contracts ----

namespace reprise {

inline void load_matrices(uint32_t (&registers)[4], const SharedBytes& shared, uint32_t offset,
                          int line = __builtin_LINE()) {
  fibre::load_matrices(registers, 4, false, shared, offset, line);
}
inline void load_matrices_transposed(uint32_t (&registers)[4], const SharedBytes& shared, uint32_t offset,
                                     int line = __builtin_LINE()) {
  fibre::load_matrices(registers, 4, true, shared, offset, line);
}
inline void load_matrices(uint32_t (&registers)[2], const SharedBytes& shared, uint32_t offset,
                          int line = __builtin_LINE()) {
  fibre::load_matrices(registers, 2, false, shared, offset, line);
}
inline void load_matrices_transposed(uint32_t (&registers)[2], const SharedBytes& shared, uint32_t offset,
                                     int line = __builtin_LINE()) {
  fibre::load_matrices(registers, 2, true, shared, offset, line);
}

void multiply_add_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line = __builtin_LINE());
void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line = __builtin_LINE());
inline uint32_t round_to_tf32(float value) { return fibre::round_to_tf32(value); }
// Returns two floats rounded to bf16. NaN becomes 0x7fff, as in a card's conversion.
inline uint32_t round_to_bf16_pair(float low, float high) {
  const auto half = [](float value) -> uint32_t { return value != value ? 0x7fffu : round_to_bf16(value); };
  return half(low) | half(high) << 16;
}

template <uint32_t kBytes>
void copy_async(const SharedBytes& shared, uint32_t offset, const void* source, uint32_t valid_bytes = kBytes,
                int line = __builtin_LINE()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  fibre::issue_copy(shared, offset, source, kBytes, valid_bytes, line);
}
inline void commit_copies() { fibre::Device::instance().commit_copies(); }
template <uint32_t kGroupsLeft>
void wait_copies(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  fibre::Device::instance().wait_copies({"wait_copies", file, line}, kGroupsLeft);
}

inline float larger_or_nan(float a, float b) { return a > b || a != a ? a : b; }
inline float fma_within_unit(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  return sum > 0 ? (sum < 1 ? sum : 1.0f) : 0.0f;
}

}  // namespace reprise
