// C = A B^T in f32, a tile of C for each block: operands come from sources, results go to an output, and both say what they are.
// Here so that linear layers and convolutions, forward and both gradients, share one loop. It is the twin of lib/cpu/gemm.h.
//
//      B, columns of C          A slab of kDepth of both operands waits in shared memory, [depth][index], while the next one is on its
//        ┌────────┐             way into registers. A thread has 8 x 8 sums, in four squares of 4 x 4 that lie half a tile apart, so that
//      ┌─┼────────┤             neighbouring threads read neighbouring words.
//    A │ │  tile  │
//      └─┴────────┘             Sums follow the depth in its order, by fmaf: bits depend on the shape alone.
#pragma once

#include <cmath>

#include "cuda/cuda_backend.h"
#include "cuda/grid.h"
#include "cuda/pack.h"
#include "cuda/product_shape.h"
#include "cuda/reduce.h"

namespace reprise {

template <uint32_t kSide_, uint32_t kDepth_>
struct SimtTile {
  static constexpr uint32_t kSide = kSide_, kDepth = kDepth_;
  static constexpr TileSides kSides = {kSide, kSide};
  static constexpr uint32_t kPacks = kSide / 4;
  static constexpr uint32_t kPitch = kPacks + 1;   // packs from one depth to the next: one more, so that a column has all banks
  static constexpr uint32_t kAcross = kSide / 8;   // threads along a side
  static constexpr uint32_t kThreads = kAcross * kAcross;
  static constexpr uint32_t kStaged = kDepth * kPacks / kThreads;  // packs of an operand that a thread brings
  static constexpr uint32_t kSlabPacks = kDepth * kPitch;
};
using SmallTile = SimtTile<kSmallSide, 8>;
using LargeTile = SimtTile<kLargeSide, 8>;

// A pack as it lies in shared memory.
using SharedPack = Words<float, 4>;

__device__ inline SharedPack to_shared(const Pack<4>& pack) { return {{pack.at[0], pack.at[1], pack.at[2], pack.at[3]}}; }

// Which packs of a slab a thread brings, so that its neighbours read what lies beside.
template <typename Tile, bool kAlongDepth>
struct Staging {
  uint32_t depth, pack;
  __device__ explicit Staging(uint32_t turn) {
    const uint32_t flat = threadIdx.x + turn * Tile::kThreads;
    depth = kAlongDepth ? flat % Tile::kDepth : flat / Tile::kPacks;
    pack = kAlongDepth ? flat / Tile::kDepth : flat % Tile::kPacks;
  }
};

// A thread's share of one operand, on the way from memory to shared memory.
template <typename Tile, typename Source>
struct StagedPacks {
  Pack<4> packs[Tile::kStaged];

  __device__ void read(const Source& source, uint64_t first_index, uint64_t first_depth, uint64_t end) {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
      const Staging<Tile, Source::kAlongDepth> at(turn);
      const uint64_t depth = first_depth + at.depth;
      packs[turn] = depth < end ? source.read(first_index + 4 * at.pack, depth) : Pack<4>{};
    }
  }
  template <typename Shared>
  __device__ void store(Shared& shared, uint32_t slab) const {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
      const Staging<Tile, Source::kAlongDepth> at(turn);
      shared[slab * Tile::kSlabPacks + at.depth * Tile::kPitch + at.pack] = to_shared(packs[turn]);
    }
  }
};

// A thread's sums. A warp has 4 x 8 threads, so that it reads few different words of shared memory at once.
template <typename Tile>
struct TileSums {
  float at[8][8] = {};

  __device__ static uint32_t thread_row() { return warp_index() / (Tile::kAcross / 8) * 4 + lane_index() / 8; }
  __device__ static uint32_t thread_column() { return warp_index() % (Tile::kAcross / 8) * 8 + lane_index() % 8; }
  __device__ static uint32_t row(uint32_t i) { return 4 * (thread_row() + i / 4 * Tile::kAcross) + i % 4; }
  __device__ static uint32_t column(uint32_t j) { return 4 * (thread_column() + j / 4 * Tile::kAcross) + j % 4; }

  template <typename Shared>
  __device__ void add(Shared& a, Shared& b, uint32_t slab) {
    REPRISE_UNROLL_BY_FOUR
    for (uint32_t depth = 0; depth < Tile::kDepth; ++depth) {
      const uint32_t at_depth = slab * Tile::kSlabPacks + depth * Tile::kPitch;
      const SharedPack rows[2] = {a[at_depth + thread_row()], a[at_depth + thread_row() + Tile::kAcross]};
      const SharedPack columns[2] = {b[at_depth + thread_column()], b[at_depth + thread_column() + Tile::kAcross]};
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 8; ++j) at[i][j] = fmaf(rows[i / 4].at[i % 4], columns[j / 4].at[j % 4], at[i][j]);
      }
    }
  }
};

// What a launch computes. An output has, for a row and a pack of neighbouring columns of which `count` exist,
//   put(part, row, column, count, values)   stores them, and leaves in `values` what it has stored
template <typename A, typename B, typename Output>
struct TileProduct {
  A a;
  B b;
  Output output;
  ProductShape shape;
  uint64_t part_depth;  // of each part of the depth; blockIdx.y is the part
  float* moments;       // of what is stored (product_shape.h), or null; must be null unless kMoments
};

// Mean, then squared deviations from it, of the tile's columns: each thread's eight rows, then the threads above one another in order.
template <typename Tile, typename Shared>
__device__ void store_moments(Shared& shared, float* moments, const float (&stored)[8][8], const TileCorner& place,
                              const ProductShape& shape) {
  constexpr uint32_t kColumnsEach = (Tile::kSide + Tile::kThreads - 1) / Tile::kThreads;
  const uint32_t rows = static_cast<uint32_t>(least(Tile::kSide, shape.rows - place.row));
  float* to = moments + place.row / Tile::kSide * 2 * shape.columns + place.column;
  float mean[8] = {};
  for (uint32_t pass = 0; pass < 2; ++pass) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 8; ++j) {
      float sum = 0;
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const float deviation = stored[i][j] - mean[j];
        if (TileSums<Tile>::row(i) < rows) sum = pass == 0 ? sum + stored[i][j] : fmaf(deviation, deviation, sum);
      }
      shared[TileSums<Tile>::thread_row() * Tile::kSide + TileSums<Tile>::column(j)] = sum;
    }
    __syncthreads();
    float total[kColumnsEach] = {};
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kColumnsEach; ++k) {
      const uint32_t column = threadIdx.x + k * Tile::kThreads;
      if (column >= Tile::kSide) break;
      for (uint32_t above = 0; above < Tile::kAcross; ++above) total[k] += shared[above * Tile::kSide + column];
      if (pass == 0) total[k] /= static_cast<float>(rows);
      if (place.column + column < shape.columns) to[pass * shape.columns + column] = total[k];
    }
    __syncthreads();
    if (pass == 1) break;
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kColumnsEach; ++k) {
      const uint32_t column = threadIdx.x + k * Tile::kThreads;
      if (column < Tile::kSide) shared[column] = total[k];
    }
    __syncthreads();
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 8; ++j) mean[j] = shared[TileSums<Tile>::column(j)];
    __syncthreads();
  }
}

// Blocks that registers are shared out for, on one multiprocessor: two large ones, where no source needs more.
template <typename Tile, typename Source>
constexpr uint32_t simt_blocks() {
  constexpr bool kNeedsRegisters = requires { Source::kNeedsRegisters; };
  return Tile::kSide == kLargeSide && !kNeedsRegisters ? 2 : 1;
}

template <typename Tile, bool kMoments, typename A, typename B, typename Output>
__global__ void __launch_bounds__(Tile::kThreads, (simt_blocks<Tile, B>())) tile_product_simt(const TileProduct<A, B, Output> p) {
  REPRISE_SHARED(SharedPack, shared_a, 2 * Tile::kSlabPacks);
  REPRISE_SHARED(SharedPack, shared_b, 2 * Tile::kSlabPacks);
  const TileCorner place = tile_corner(p.shape, Tile::kSides, blockIdx.x);
  const uint64_t begin = blockIdx.y * p.part_depth, end = least(p.shape.depth, begin + p.part_depth);
  TileSums<Tile> sums;
  StagedPacks<Tile, A> a;
  StagedPacks<Tile, B> b;
  a.read(p.a, place.row, begin, end);
  b.read(p.b, place.column, begin, end);
  uint32_t slab = 0;
  for (uint64_t depth = begin; depth < end; depth += Tile::kDepth, slab ^= 1) {
    a.store(shared_a, slab);
    b.store(shared_b, slab);
    __syncthreads();
    a.read(p.a, place.row, depth + Tile::kDepth, end);
    b.read(p.b, place.column, depth + Tile::kDepth, end);
    sums.add(shared_a, shared_b, slab);
  }
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const uint64_t row = place.row + TileSums<Tile>::row(i);
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint64_t column = place.column + TileSums<Tile>::column(4 * half);
      if (row >= p.shape.rows || column >= p.shape.columns) continue;
      const uint32_t count = static_cast<uint32_t>(least(4, p.shape.columns - column));
      Pack<4> values = {{sums.at[i][4 * half], sums.at[i][4 * half + 1], sums.at[i][4 * half + 2], sums.at[i][4 * half + 3]}};
      p.output.put(blockIdx.y, row, column, count, values);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j) sums.at[i][4 * half + j] = values.at[j];
    }
  }
  if constexpr (kMoments) {
    REPRISE_SHARED(float, shared_sums, Tile::kAcross * Tile::kSide);
    if (p.moments != nullptr) store_moments<Tile>(shared_sums, p.moments, sums.at, place, p.shape);
  }
}

// ---- outputs ----

// Row r of C is row r of a matrix.
struct MatrixRows {
  uint64_t stride;
  __device__ uint64_t offset(uint64_t row) const { return row * stride; }
};

// C, plus a bias for each column, plus what is there already: rounded once.
template <typename Stored, typename Rows = MatrixRows>
struct TileOutput {
  static constexpr uint32_t kPutWidth = kPackWidth<Stored>;  // of the widest packs that are put
  Stored* to;
  Rows rows;
  const float* bias;     // [columns] or null
  bool accumulate;
  bool wide;             // all rows of C are whole packs, as wide as those that are put
  uint64_t part_stride;  // elements from one part's sums to the next's

  template <uint32_t kWidth>
  __device__ void put(uint32_t part, uint64_t row, uint64_t column, uint32_t count, Pack<kWidth>& values) const {
    Stored* at = to + part * part_stride + rows.offset(row) + column;
    if (wide) {
      values = complete(values, bias == nullptr ? Pack<kWidth>{} : load_pack<kWidth>(bias + column),
                        accumulate ? load_pack<kWidth>(at) : Pack<kWidth>{});
      store_pack(at, values);
    } else {
      Pack<kWidth> shift{}, before{};
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kWidth; ++j) {
        if (j < count && bias != nullptr) shift.at[j] = bias[column + j];
        if (j < count && accumulate) before.at[j] = at[j];
      }
      values = complete(values, shift, before);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kWidth; ++j) {
        if (j < count) at[j] = values.at[j];
      }
    }
  }
  template <uint32_t kWidth>
  __device__ static Pack<kWidth> complete(Pack<kWidth> values, const Pack<kWidth>& shift, const Pack<kWidth>& before) {
    REPRISE_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) values.at[j] = float{Stored((values.at[j] + shift.at[j]) + before.at[j])};
    return values;
  }
};

// ---- launching ----

template <bool kMoments = false, typename A, typename B, typename Output>
void launch_product(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  const TileSides sides = simt_tile(p.shape, card_size(context));
  const bool large = sides.rows == kLargeSide;
  const dim3 grid(static_cast<uint32_t>(sides.tiles(p.shape)), part_count);
  const auto kernel = large ? tile_product_simt<LargeTile, kMoments, A, B, Output> : tile_product_simt<SmallTile, kMoments, A, B, Output>;
  REPRISE_LAUNCH(kernel, grid, large ? LargeTile::kThreads : SmallTile::kThreads, context.queue, p);
}

}  // namespace reprise
