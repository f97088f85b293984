// How many blocks a launch has, and which share of the work a thread takes.
// Here so that every kernel that walks over elements walks alike: neighbouring threads take neighbouring packs, in strides of the grid.
#pragma once

#include <cstdint>

#include "cuda/launch.h"

namespace reprise {

constexpr uint32_t kBlockThreads = 256;   // of every block, unless a kernel says otherwise
constexpr uint32_t kMostBlocks = 1u << 14;  // enough for any device; more work is taken in turns

constexpr uint64_t parts(uint64_t total, uint64_t size) { return total / size + (total % size != 0); }
constexpr uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
constexpr uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

// Blocks for so many threads; one where there is nothing to do, because no device takes a grid of none.
constexpr uint32_t blocks_for(uint64_t threads, uint64_t most_blocks = kMostBlocks) {
  return static_cast<uint32_t>(most(1, least(parts(threads, kBlockThreads), most_blocks)));
}

__device__ inline uint64_t grid_thread() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline uint64_t grid_threads() { return uint64_t{gridDim.x} * blockDim.x; }

}  // namespace reprise
