// C = A B^T of bf16 by tensor cores, summed in f32: the twin of tile_product.h with the same outputs, for operands whose rows 16-byte
// copies can take.
// Here because a multiprocessor multiplies bf16 eight times as fast as f32; and shared memory must then be read without conflicts.
//
//   block  128 x 128 outputs, four warps of 64 x 64        memory ── cp.async ──> stage 0 1 2 3 ── ldmatrix ──> registers ── mma ──> sums
//   slab   32 of the depth; four stages, of which three are on their way
//
// An operand's slab lies in shared memory as it lies in memory, in chunks of 16 bytes: [index][depth], rows of 4 chunks, or [depth][index],
// rows of 16. Chunk c of row r stands at c ^ (r / 2 % 4), or c ^ (r % 8): the eight rows that ldmatrix reads at once then have all banks.
#pragma once

#include "cuda/tile_product.h"
#include "cuda/warp.h"

namespace reprise {

struct MmaTile {
  static constexpr uint32_t kSide = 128, kDepth = 32, kStages = 4, kThreads = 128;
  static constexpr uint32_t kWarpSide = 64;
  static constexpr uint32_t kChunks = kSide * kDepth / 8;                // of an operand's slab
  static constexpr uint32_t kOperandBytes = kChunks * 16;
  static constexpr uint32_t kSharedBytes = 2 * kStages * kOperandBytes;
};
static_assert(MmaTile::kSide == kMmaSide);

// ---- operands ----
//
// A source of chunks says, as those of tile_source.h,
//   kAlongDepth          whether a chunk is eight neighbours along the depth of one index, or eight indices of one depth
//   chunk(index, depth)  where it begins; the first of its elements is inside
//   count                of indices

// x[index][depth], where the stride is a multiple of eight.
struct RowChunks {
  static constexpr bool kAlongDepth = true;
  const Bf16* x;
  uint64_t count, stride;
  __device__ const Bf16* chunk(uint64_t index, uint64_t depth) const { return x + index * stride + depth; }
};
// x[depth][index].
struct ColumnChunks {
  static constexpr bool kAlongDepth = false;
  const Bf16* x;
  uint64_t count, stride;
  __device__ const Bf16* chunk(uint64_t index, uint64_t depth) const { return x + depth * stride + index; }
};

// One stage of one operand.
template <typename Source>
struct MmaOperand {
  static constexpr uint32_t kRowChunks = Source::kAlongDepth ? MmaTile::kDepth / 8 : MmaTile::kSide / 8;

  __device__ static uint32_t offset(uint32_t row, uint32_t chunk) {
    return 16 * (row * kRowChunks + (chunk ^ (Source::kAlongDepth ? row / 2 % 4 : row % 8)));
  }

  // Begins the copies of this thread: zeros beyond the last index and the end of the depth.
  __device__ static void copy(const SharedBytes& shared, uint32_t stage, const Source& source, uint64_t first_index, uint64_t first_depth,
                              uint64_t end) {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < MmaTile::kChunks / MmaTile::kThreads; ++turn) {
      const uint32_t flat = threadIdx.x + turn * MmaTile::kThreads, row = flat / kRowChunks, chunk = flat % kRowChunks;
      const uint64_t index = first_index + (Source::kAlongDepth ? row : 8 * chunk);
      const uint64_t depth = first_depth + (Source::kAlongDepth ? 8 * chunk : row);
      const bool inside = index < source.count && depth < end;
      const uint64_t left = Source::kAlongDepth ? end - depth : source.count - index;
      copy_async<16>(shared, stage + offset(row, chunk), inside ? source.chunk(index, depth) : source.x,
                     inside ? 2 * static_cast<uint32_t>(least(8, left)) : 0);
    }
  }

  // 16 indices by 16 of the depth as mma's a: matrices of indices 0-7 and 8-15 of the first half of the depth, then of the second.
  __device__ static void load_a(uint32_t (&a)[4], const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t depth) {
    const uint32_t matrix = lane_index() / 8, i = lane_index() % 8;
    if constexpr (Source::kAlongDepth) {
      load_matrices(a, shared, stage + offset(index + matrix % 2 * 8 + i, depth / 8 + matrix / 2));
    } else {
      load_matrices_transposed(a, shared, stage + offset(depth + matrix / 2 * 8 + i, index / 8 + matrix % 2));
    }
  }
  // The same as two of mma's b, of 8 indices each.
  __device__ static void load_b(uint32_t (&b)[2][2], const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t depth) {
    const uint32_t matrix = lane_index() / 8, i = lane_index() % 8;
    uint32_t r[4];
    if constexpr (Source::kAlongDepth) {
      load_matrices(r, shared, stage + offset(index + matrix / 2 * 8 + i, depth / 8 + matrix % 2));
    } else {
      load_matrices_transposed(r, shared, stage + offset(depth + matrix % 2 * 8 + i, index / 8 + matrix / 2));
    }
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
  }
};

// ---- a warp's sums ----

struct MmaSums {
  static constexpr uint32_t kDown = MmaTile::kWarpSide / 16, kAcross = MmaTile::kWarpSide / 8;
  float at[kDown][kAcross][4] = {};

  __device__ static uint32_t first_row() { return warp_index() / 2 * MmaTile::kWarpSide; }
  __device__ static uint32_t first_column() { return warp_index() % 2 * MmaTile::kWarpSide; }

  template <typename A, typename B>
  __device__ void add(const SharedBytes& shared, uint32_t stage_a, uint32_t stage_b) {
    REPRISE_UNROLL
    for (uint32_t depth = 0; depth < MmaTile::kDepth; depth += 16) {
      uint32_t a[kDown][4], b[kAcross / 2][2][2];
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kDown; ++i) MmaOperand<A>::load_a(a[i], shared, stage_a, first_row() + 16 * i, depth);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kAcross / 2; ++j) MmaOperand<B>::load_b(b[j], shared, stage_b, first_column() + 16 * j, depth);
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kDown; ++i) {
        REPRISE_UNROLL
        for (uint32_t j = 0; j < kAcross; ++j) multiply_add_bf16(at[i][j], a[i], b[j / 2][j % 2]);
      }
    }
  }

  // f(row, column, values) for each two neighbours of a row: inside the block's tile.
  template <typename F>
  __device__ void for_each_pair(const F& f) const {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kAcross; ++j) {
        REPRISE_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const Pack<2> values = {{at[i][j][2 * half], at[i][j][2 * half + 1]}};
          f(first_row() + 16 * i + 8 * half + lane_index() / 4, first_column() + 8 * j + lane_index() % 4 * 2, values);
        }
      }
    }
  }
};

template <typename A, typename B, typename Output>
__global__ void __launch_bounds__(MmaTile::kThreads) tile_product_mma(const TileProduct<A, B, Output> p) {
  REPRISE_DYNAMIC_SHARED(shared, MmaTile::kSharedBytes);
  const TilePlace<MmaTile> place(p.shape);
  const uint64_t begin = blockIdx.y * p.part_depth, end = least(p.shape.depth, begin + p.part_depth);
  const auto stage_of = [](uint32_t slab) { return slab % MmaTile::kStages * 2 * MmaTile::kOperandBytes; };
  const auto copy = [&](uint32_t slab) {
    const uint64_t depth = begin + uint64_t{slab} * MmaTile::kDepth;
    if (depth < end) {
      MmaOperand<A>::copy(shared, stage_of(slab), p.a, place.row, depth, end);
      MmaOperand<B>::copy(shared, stage_of(slab) + MmaTile::kOperandBytes, p.b, place.column, depth, end);
    }
    commit_copies();  // a group for every slab, so that they can be counted
  };
  MmaSums sums;
  for (uint32_t slab = 0; slab + 1 < MmaTile::kStages; ++slab) copy(slab);
  const uint32_t slabs = static_cast<uint32_t>(parts(end - begin, MmaTile::kDepth));
  for (uint32_t slab = 0; slab < slabs; ++slab) {
    wait_copies<MmaTile::kStages - 2>();
    __syncthreads();  // this slab has come for all, and all are done with the one whose place the next copies take
    copy(slab + MmaTile::kStages - 1);
    sums.add<A, B>(shared, stage_of(slab), stage_of(slab) + MmaTile::kOperandBytes);
  }
  sums.for_each_pair([&](uint32_t down, uint32_t across, Pack<2> values) {
    const uint64_t row = place.row + down, column = place.column + across;
    if (row >= p.shape.rows || column >= p.shape.columns) return;
    p.output.put(blockIdx.y, row, column, static_cast<uint32_t>(least(2, p.shape.columns - column)), values);
  });
}

// ---- launching ----

template <typename A, typename B, typename Output>
void launch_mma(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  const uint64_t tiles = parts(p.shape.rows, MmaTile::kSide) * parts(p.shape.columns, MmaTile::kSide);
  REPRISE_LAUNCH_DYNAMIC((tile_product_mma<A, B, Output>), dim3(static_cast<uint32_t>(tiles), part_count), MmaTile::kThreads,
                         MmaTile::kSharedBytes, context.queue, p);
}

// Weights stored as f32, rounded once a call: tensor cores take bf16.
static __global__ void __launch_bounds__(kBlockThreads) round_weights(Bf16* to, const float* w, uint64_t n) {
  for (uint64_t i = grid_thread() * 4; i < n; i += grid_threads() * 4) store_pack(to + i, load_pack<4>(w + i));
}
// n is a multiple of four.
inline const Bf16* weights_as_bf16(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if (w.type == DType::kBf16) return static_cast<const Bf16*>(w.data);
  Bf16* rounded = static_cast<Bf16*>(scratch);
  REPRISE_LAUNCH(round_weights, blocks_for(parts(n, 4)), kBlockThreads, context.queue, rounded, static_cast<const float*>(w.data), n);
  return rounded;
}

}  // namespace reprise
