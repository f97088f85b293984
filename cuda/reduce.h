// Sums over a warp and over a block. The order of the additions depends only on the shape of the
// launch, so that every run has the same bits.
#pragma once

#include <cstdint>

#include "cuda/warp.h"

namespace reprise {

constexpr uint32_t kAllLanes = 0xffffffffu;

// Returns the sum over the warp to every lane. All lanes get the same bits, because the two lanes
// of an exchange add the same two numbers.
template <typename T>
__device__ T warp_sum(T value) {
  for (uint32_t distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance));
  }
  return value;
}
// Returns the maximum over the warp to every lane. Unspecified if a lane passes NaN.
__device__ inline float warp_max(float value) {
  for (uint32_t distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance));
    value = other > value ? other : value;
  }
  return value;
}
// Returns the minimum over the warp to every lane.
__device__ inline uint64_t warp_min(uint64_t value) {
  for (uint32_t distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance));
    value = other < value ? other : value;
  }
  return value;
}
// Returns a word to every lane: bit l is the `bit` that lane l passes.
__device__ inline uint32_t warp_bits(bool bit) {
  uint32_t bits = uint32_t{bit} << lane_index();
  for (uint32_t distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    bits |= __shfl_xor_sync(kAllLanes, bits, static_cast<int>(distance));
  }
  return bits;
}

// Returns the number of bits that are set.
__device__ inline uint32_t bit_count(uint32_t bits) {
  bits -= bits >> 1 & 0x55555555u;
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  return ((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

// Adds kCount values over the warps, in order. Returns to lane l of warp k < kCount the sum of
// value k of lane l of all warps; returns 0 to the other warps. `shared` has kCount * blockDim.x
// floats.
template <uint32_t kWarps, uint32_t kCount, typename Shared>
__device__ float sum_across_warps(Shared& shared, const float (&values)[kCount]) {
  static_assert(kCount <= kWarps);
  constexpr uint32_t kThreads = kWarps * kWarpLanes;
  for (uint32_t k = 0; k < kCount; ++k) shared[k * kThreads + threadIdx.x] = values[k];
  __syncthreads();
  float sum = 0;
  if (warp_index() < kCount) {
    for (uint32_t w = 0; w < kWarps; ++w) sum += shared[warp_index() * kThreads + w * kWarpLanes + lane_index()];
  }
  __syncthreads();  // the next call overwrites `shared`
  return sum;
}

// Returns the sum over the block to every thread. Adds the lanes of each warp first, then the warps
// in order. `shared` has kWarps values.
template <uint32_t kWarps, typename T, typename Shared>
__device__ T block_sum(Shared& shared, T value) {
  value = warp_sum(value);
  if constexpr (kWarps == 1) return value;
  if (lane_index() == 0) shared[warp_index()] = value;
  __syncthreads();
  T sum = 0;
  for (uint32_t w = 0; w < kWarps; ++w) sum += shared[w];
  __syncthreads();
  return sum;
}

}  // namespace reprise
