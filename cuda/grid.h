// The number of blocks of a launch, and each thread's share of the work. Every kernel that loops
// over elements divides them in the same way: neighbouring threads process neighbouring packs, and
// a thread's next pack is grid_threads() packs further.
#pragma once

#include <cstdint>

#include "cuda/launch.h"
#include "lib/assert.h"

namespace reprise {

constexpr uint32_t kBlockThreads = 256;   // threads of a block, unless a kernel has its own number
constexpr uint32_t kMaxBlocks = 1u << 14;  // maximum of blocks, enough for any device; threads loop over further work

constexpr uint64_t parts(uint64_t total, uint64_t size) { return total / size + (total % size != 0); }
constexpr uint64_t minimum(uint64_t a, uint64_t b) { return a < b ? a : b; }
constexpr uint64_t maximum(uint64_t a, uint64_t b) { return a > b ? a : b; }

// Returns the number of blocks for `threads` threads, at most max_blocks. Returns 1 if `threads` is
// 0, because no device accepts an empty grid.
constexpr uint32_t blocks_for(uint64_t threads, uint64_t max_blocks = kMaxBlocks) {
  return static_cast<uint32_t>(maximum(1, minimum(parts(threads, kBlockThreads), max_blocks)));
}

// Returns a grid of x by y blocks. The limits are those of every card (cuda/launch.h).
inline dim3 grid_of(uint64_t x, uint64_t y = 1) {
  constexpr uint64_t kMaxX = 0x7fffffff, kMaxY = 65535;
  REPRISE_ASSERT(x > 0 && x <= kMaxX && y > 0 && y <= kMaxY, "a grid has blocks, and no more than every card accepts");
  return dim3(static_cast<uint32_t>(x), static_cast<uint32_t>(y));
}

__device__ inline uint64_t grid_thread() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline uint64_t grid_threads() { return uint64_t{gridDim.x} * blockDim.x; }

}  // namespace reprise
