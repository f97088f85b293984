// Kernels that sum tiles of rows, and the total of all tiles in the last block. Some have planted
// faults (cuda_global_kernels.h).
#include "tests/ports/cards/cuda_global_kernels.h"

#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/warp.h"

namespace reprise::test {
namespace {

constexpr uint32_t kTileRows = 128, kThreads = 64;
constexpr uint32_t kCopyBytes = 16;

// Returns the sum of column c over the tile that begins at row `first`.
template <TileSumKind kKind>
__device__ float sum_column(const float* x, uint64_t rows, uint32_t columns, uint64_t first, uint32_t c) {
  float sum = 0;
  for (uint32_t i = 0; i < kTileRows; ++i) {
    const uint64_t row = first + i;
    if constexpr (kKind == TileSumKind::kMaskedRow) {
      const float value = x[row * columns + c];
      sum += row < rows ? value : 0.0f;
    } else if constexpr (kKind == TileSumKind::kNarrowIndex) {
      if (row < rows) sum += x[static_cast<uint32_t>(row) * columns + c];
    } else {
      if (kKind == TileSumKind::kOneRowTooMany ? row <= rows : row < rows) sum += x[row * columns + c];
    }
  }
  return sum;
}

template <TileSumKind kKind>
__global__ void __launch_bounds__(kThreads) tile_sums(const TileSumArgs args) {
  const uint64_t first = uint64_t{blockIdx.x} * kTileRows;
  for (uint32_t c = threadIdx.x; c < args.columns; c += kThreads) {
    const float sum = sum_column<kKind>(args.x, args.rows, args.columns, first, c);
    if constexpr (kKind == TileSumKind::kInputWritten)
      const_cast<float*>(args.x)[uint64_t{blockIdx.x} * args.columns + c] = sum;
    args.sums[uint64_t{blockIdx.x} * args.columns + c] = sum;
  }
}

// Sums four columns in each thread. A load has 16 bytes and must begin at a multiple of 16.
__global__ void __launch_bounds__(kThreads) tile_sums_of_packs(const TileSumArgs args) {
  const uint64_t first = uint64_t{blockIdx.x} * kTileRows, end = minimum(args.rows, first + kTileRows);
  for (uint32_t c = 4 * threadIdx.x; c + 4 <= args.columns; c += 4 * kThreads) {
    Pack<4> sum = {};
    for (uint64_t row = first; row < end; ++row) {
      const Pack<4> pack = load_pack<4>(args.x + row * args.columns + c);
      for (uint32_t k = 0; k < 4; ++k) sum.at[k] += pack.at[k];
    }
    for (uint32_t k = 0; k < 4; ++k) args.sums[uint64_t{blockIdx.x} * args.columns + c + k] = sum.at[k];
  }
}

// Sums four columns in each thread. A thread copies four columns of a row to shared memory at a
// time.
__global__ void __launch_bounds__(kThreads) tile_sums_of_copies(const TileSumArgs args) {
  REPRISE_DYNAMIC_SHARED(shared, kThreads * kCopyBytes);
  const uint64_t first = uint64_t{blockIdx.x} * kTileRows;
  for (uint32_t c = 4 * threadIdx.x; c < args.columns; c += 4 * kThreads) {
    Pack<4> sum = {};
    for (uint64_t row = first; row < first + kTileRows; ++row) {
      copy_async<kCopyBytes>(shared, threadIdx.x * kCopyBytes, args.x + row * args.columns + c);
      commit_copies();
      wait_copies<0>();
      const auto words = shared.load<Words<float, 4>>(threadIdx.x * kCopyBytes);
      for (uint32_t k = 0; k < 4; ++k) sum.at[k] += row < args.rows ? words.at[k] : 0.0f;
    }
    for (uint32_t k = 0; k < 4; ++k) args.sums[uint64_t{blockIdx.x} * args.columns + c + k] = sum.at[k];
  }
}

template <TileSumKind kKind>
void launch_kind(const TileSumArgs& args, void* queue) {
  const auto tiles = static_cast<uint32_t>(parts(args.rows, kTileRows));
  if constexpr (kKind == TileSumKind::kMisaligned) {
    REPRISE_LAUNCH(tile_sums_of_packs, tiles, kThreads, queue, args);
  } else if constexpr (kKind == TileSumKind::kMaskedCopy) {
    REPRISE_LAUNCH_DYNAMIC(tile_sums_of_copies, tiles, kThreads, kThreads * kCopyBytes, queue, args);
  } else {
    REPRISE_LAUNCH(tile_sums<kKind>, tiles, kThreads, queue, args);
  }
}

// ---- the total ----

template <TotalKind kKind>
__global__ void __launch_bounds__(kThreads) total_by_last_block(const TotalArgs args) {
  REPRISE_SHARED(unsigned int, turn, 1);
  const uint32_t c = threadIdx.x;
  const bool has_column = c < args.columns;
  const float sum =
      has_column ? sum_column<TileSumKind::kRight>(args.x, args.rows, args.columns, uint64_t{blockIdx.x} * kTileRows, c)
                 : 0.0f;
  if constexpr (kKind == TotalKind::kLostUpdate) {
    if (has_column) args.total[c] += sum;
    return;
  }
  if constexpr (kKind == TotalKind::kReadAhead) {
    const float before = has_column && blockIdx.x > 0 ? args.partials[uint64_t{blockIdx.x - 1} * args.columns + c] : 0;
    if (has_column) args.partials[uint64_t{blockIdx.x} * args.columns + c] = sum + before;
    if (has_column && blockIdx.x + 1 == gridDim.x) args.total[c] = sum + before;
    return;
  }
  if constexpr (kKind == TotalKind::kFenceTooEarly) __threadfence();
  if (has_column) args.partials[uint64_t{blockIdx.x} * args.columns + c] = sum;
  if constexpr (kKind != TotalKind::kNoBarrier) __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (kKind != TotalKind::kNoFence && kKind != TotalKind::kFenceTooEarly) __threadfence();
    turn[0] = atomicAdd(args.count, 1u);
    if constexpr (kKind != TotalKind::kNotAcquired) __threadfence();
  }
  __syncthreads();
  if (turn[0] + 1 != gridDim.x || !has_column) return;
  float total = 0;
  for (uint32_t tile = 0; tile < gridDim.x; ++tile) total += args.partials[uint64_t{tile} * args.columns + c];
  args.total[c] = total;
}

template <TotalKind kKind>
void launch_kind(const TotalArgs& args, void* queue) {
  REPRISE_LAUNCH(total_by_last_block<kKind>, static_cast<uint32_t>(parts(args.rows, kTileRows)), kThreads, queue, args);
}

}  // namespace

Status launch_tile_sums(const TileSumArgs& args, TileSumKind kind, void* queue) {
  switch (kind) {
    case TileSumKind::kRight: launch_kind<TileSumKind::kRight>(args, queue); break;
    case TileSumKind::kOneRowTooMany: launch_kind<TileSumKind::kOneRowTooMany>(args, queue); break;
    case TileSumKind::kMaskedRow: launch_kind<TileSumKind::kMaskedRow>(args, queue); break;
    case TileSumKind::kMaskedCopy: launch_kind<TileSumKind::kMaskedCopy>(args, queue); break;
    case TileSumKind::kMisaligned: launch_kind<TileSumKind::kMisaligned>(args, queue); break;
    case TileSumKind::kInputWritten: launch_kind<TileSumKind::kInputWritten>(args, queue); break;
    case TileSumKind::kNarrowIndex: launch_kind<TileSumKind::kNarrowIndex>(args, queue); break;
  }
  return launch_status();
}

Status launch_total(const TotalArgs& args, TotalKind kind, void* queue) {
  switch (kind) {
    case TotalKind::kRight: launch_kind<TotalKind::kRight>(args, queue); break;
    case TotalKind::kNoFence: launch_kind<TotalKind::kNoFence>(args, queue); break;
    case TotalKind::kFenceTooEarly: launch_kind<TotalKind::kFenceTooEarly>(args, queue); break;
    case TotalKind::kNoBarrier: launch_kind<TotalKind::kNoBarrier>(args, queue); break;
    case TotalKind::kNotAcquired: launch_kind<TotalKind::kNotAcquired>(args, queue); break;
    case TotalKind::kLostUpdate: launch_kind<TotalKind::kLostUpdate>(args, queue); break;
    case TotalKind::kReadAhead: launch_kind<TotalKind::kReadAhead>(args, queue); break;
  }
  return launch_status();
}

}  // namespace reprise::test
