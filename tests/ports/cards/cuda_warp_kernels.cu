// A pipelined product of bf16 on tensor cores, with planted faults, and a kernel that shows the
// layouts of the other collectives (cuda_warp_kernels.h).
#include "tests/ports/cards/cuda_warp_kernels.h"

#include "cuda/warp.h"

namespace reprise::test {
namespace {

// Rows and columns of c that a block computes. Each of its 4 warps computes a quarter of 32 x 32.
constexpr uint32_t kTile = 64;
constexpr uint32_t kStep = 32;      // depths (of K) in a stage
constexpr uint32_t kStages = 3;
constexpr uint32_t kThreads = 128;
constexpr uint32_t kWord = 16;      // bytes of one copy: 8 elements
constexpr uint32_t kTileABytes = kTile * kStep * 2, kTileBBytes = kStep * kTile * 2;
constexpr uint32_t kStageBytes = kTileABytes + kTileBBytes;

// Returns the offset of a word (kWord bytes) of a tile. A row of a's tile has 4 words, so that two
// rows cover all 32 banks; a row of b's tile has 8 words. A matrix load reads one word from each of
// 8 neighbouring rows. If kSwizzled, these words are in different banks.
template <bool kSwizzled>
__device__ uint32_t offset_in_a(uint32_t row, uint32_t word) {
  return (row * 4 + (kSwizzled ? word ^ row / 2 % 4 : word)) * kWord;
}
template <bool kSwizzled>
__device__ uint32_t offset_in_b(uint32_t row, uint32_t word) {
  return (row * 8 + (kSwizzled ? word ^ row % 8 : word)) * kWord;
}

template <bool kSwizzled>
__device__ void copy_stage(const SharedBytes& stage, const ProductArgs& args, uint32_t step) {
  const SharedBytes tile_a = stage.part(0, kTileABytes), tile_b = stage.part(kTileABytes, kTileBBytes);
  for (uint32_t i = threadIdx.x; i < kTile * 4; i += kThreads) {
    const uint32_t m = blockIdx.y * kTile + i / 4, k = step * kStep + i % 4 * 8;
    const bool valid = m < args.M && k < args.K;
    copy_async<16>(tile_a, offset_in_a<kSwizzled>(i / 4, i % 4), args.a + (valid ? uint64_t{m} * args.K + k : 0),
                   valid ? 16 : 0);
  }
  for (uint32_t i = threadIdx.x; i < kStep * 8; i += kThreads) {
    const uint32_t k = step * kStep + i / 8, n = blockIdx.x * kTile + i % 8 * 8;
    const bool valid = k < args.K && n < args.N;
    copy_async<16>(tile_b, offset_in_b<kSwizzled>(i / 8, i % 8), args.b + (valid ? uint64_t{k} * args.N + n : 0),
                   valid ? 16 : 0);
  }
}

// Adds the product of a stage to the sums of a warp: its quarter of the block's tile, as [2 groups
// of 16 rows][4 groups of 8 columns][4 values of this lane].
template <ProductKind kKind>
__device__ void multiply_stage(float (&sums)[2][4][4], const SharedBytes& stage) {
  constexpr bool kSwizzled = kKind != ProductKind::kPlain;
  const SharedBytes tile_a = stage.part(0, kTileABytes), tile_b = stage.part(kTileABytes, kTileBBytes);
  const uint32_t row = warp_index() / 2 * 32 + (kKind == ProductKind::kPastTheTile ? 1 : 0),
                 column = warp_index() % 2 * 32;
  const uint32_t within = lane_index() % 16, half = lane_index() / 16;  // row and word whose address this lane passes
  REPRISE_UNROLL
  for (uint32_t k = 0; k < kStep; k += 16) {
    uint32_t a[2][4], b[2][4];
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      load_matrices(a[i], tile_a, offset_in_a<kSwizzled>(row + i * 16 + within, k / 8 + half));
      load_matrices_transposed(b[i], tile_b, offset_in_b<kSwizzled>(k + within, column / 8 + i * 2 + half));
      if constexpr (kKind == ProductKind::kWrongFragment) {
        const uint32_t kept = a[i][1];
        a[i][1] = a[i][2];
        a[i][2] = kept;
      }
    }
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
        multiply_add_bf16(sums[i][j], a[i], pair);
      }
    }
  }
}

__device__ void store_sums(const ProductArgs& args, const float (&sums)[2][4][4]) {
  const uint32_t row = blockIdx.y * kTile + warp_index() / 2 * 32 + lane_index() / 4;
  const uint32_t column = blockIdx.x * kTile + warp_index() % 2 * 32 + lane_index() % 4 * 2;
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 2; ++i) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      REPRISE_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t m = row + i * 16 + e / 2 * 8, n = column + j * 8 + e % 2;
        if (m < args.M && n < args.N) args.c[uint64_t{m} * args.N + n] = sums[i][j][e];
      }
    }
  }
}

template <ProductKind kKind>
__global__ void __launch_bounds__(kThreads) product_pipelined(const ProductArgs args) {
  constexpr bool kSwizzled = kKind != ProductKind::kPlain;
  REPRISE_DYNAMIC_SHARED(stages, kStages * kStageBytes);
  const uint32_t steps = (args.K + kStep - 1) / kStep;
  const auto stage = [&](uint32_t step) { return stages.part(step % kStages * kStageBytes, kStageBytes); };
  const auto copy = [&](uint32_t step) {
    if (step < steps) copy_stage<kSwizzled>(stage(step), args, step);
    commit_copies();
  };
  float sums[2][4][4] = {};
  for (uint32_t step = 0; step + 1 < kStages; ++step) copy(step);
  for (uint32_t step = 0; step < steps; ++step) {
    if constexpr (kKind == ProductKind::kReusedTooEarly) copy(step + kStages - 1);
    constexpr uint32_t kUnfinished = kStages - 2;
    wait_copies<kUnfinished + (kKind == ProductKind::kReadBeforeWait || kKind == ProductKind::kReusedTooEarly)>();
    if constexpr (kKind != ProductKind::kNoBarrier) __syncthreads();
    if constexpr (kKind != ProductKind::kReusedTooEarly) copy(step + kStages - 1);
    multiply_stage<kKind>(sums, stage(step));
  }
  store_sums(args, sums);
}

template <ProductKind kKind>
Status launch_kind(const ProductArgs& args, void* queue) {
  const dim3 grid((args.N + kTile - 1) / kTile, (args.M + kTile - 1) / kTile);
  REPRISE_LAUNCH_DYNAMIC(product_pipelined<kKind>, grid, kThreads, kStages * kStageBytes, queue, args);
  return launch_status();
}

// ---- maps ----

constexpr uint32_t kMatricesBytes = 2 * 8 * 8 * 2;

__global__ void __launch_bounds__(kWarpLanes) store_maps(const MapArgs args) {
  REPRISE_DYNAMIC_SHARED(shared, kMatricesBytes);
  const uint32_t lane = lane_index(), g = lane / 4, t = lane % 4;
  copy_async<8>(shared, lane * 8, args.matrices + lane * 4);
  commit_copies();
  const auto bits = [&](float value) { return args.rounded ? round_to_tf32(value) : __float_as_uint(value); };
  uint32_t a[4], b[2];
  for (uint32_t r = 0; r < 4; ++r) a[r] = bits(args.a[(g + 8 * (r % 2)) * 8 + t + 4 * (r / 2)]);
  for (uint32_t r = 0; r < 2; ++r) b[r] = bits(args.b[(t + 4 * r) * 8 + g]);
  float c[4] = {};
  multiply_add_tf32(c, a, b);
  for (uint32_t i = 0; i < 4; ++i) args.c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = c[i];
  wait_copies<0>();
  __syncwarp();
  uint32_t rows[2], columns[2];
  load_matrices(rows, shared, lane % 16 * 16);
  load_matrices_transposed(columns, shared, lane % 16 * 16);
  for (uint32_t r = 0; r < 2; ++r) {
    args.rows[lane * 2 + r] = rows[r];
    args.columns[lane * 2 + r] = columns[r];
  }
}

}  // namespace

Status launch_product(const ProductArgs& args, ProductKind kind, void* queue) {
  switch (kind) {
    case ProductKind::kRight: return launch_kind<ProductKind::kRight>(args, queue);
    case ProductKind::kPlain: return launch_kind<ProductKind::kPlain>(args, queue);
    case ProductKind::kNoBarrier: return launch_kind<ProductKind::kNoBarrier>(args, queue);
    case ProductKind::kReusedTooEarly: return launch_kind<ProductKind::kReusedTooEarly>(args, queue);
    case ProductKind::kReadBeforeWait: return launch_kind<ProductKind::kReadBeforeWait>(args, queue);
    case ProductKind::kPastTheTile: return launch_kind<ProductKind::kPastTheTile>(args, queue);
    case ProductKind::kWrongFragment: return launch_kind<ProductKind::kWrongFragment>(args, queue);
  }
  return launch_status();
}

Status launch_maps(const MapArgs& args, void* queue) {
  REPRISE_LAUNCH_DYNAMIC(store_maps, 1, kWarpLanes, kMatricesBytes, queue, args);
  return launch_status();
}

}  // namespace reprise::test
