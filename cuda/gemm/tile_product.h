// C = A B^T in f32; each block computes a tile of C. Sources read the operands, and an output
// writes the results; both are template parameters. Linear layers and convolutions share this loop,
// for the forward and for both gradients. The counterpart of lib/cpu/gemm/gemm.h.
//
//      B, columns of C
//        ┌────────┐
//      ┌─┼────────┤
//    A │ │  tile  │
//      └─┴────────┘
//
// A slab is kDepth depths of both operands. One slab is in shared memory, as [depth][index], while
// the next slab is read into registers. A thread has 8 x 8 sums, in four squares of 4 x 4 that are
// half a tile apart, so that neighbouring threads read neighbouring words. A sum adds its depths in
// order, by fmaf, so the bits depend on the shape alone.
#pragma once

#include <cmath>
#include <type_traits>

#include "cuda/cuda_backend.h"
#include "cuda/gemm/pack.h"
#include "cuda/gemm/product_shape.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"
#include "cuda/warp.h"

namespace reprise {

template <uint32_t kSide_, uint32_t kDepth_>
struct SimtTile {
  static constexpr uint32_t kSide = kSide_, kDepth = kDepth_;
  static constexpr TileSides kSides = {kSide, kSide};
  static constexpr uint32_t kPacks = kSide / 4;
  // Packs from one depth to the next. One pack is padding, so that a column uses all banks.
  static constexpr uint32_t kPitch = kPacks + 1;
  static constexpr uint32_t kAcross = kSide / 8;   // threads along a side of the tile
  static constexpr uint32_t kThreads = kAcross * kAcross;
  static constexpr uint32_t kStaged = kDepth * kPacks / kThreads;  // packs of an operand that a thread loads
  static constexpr uint32_t kSlabBytes = kDepth * kPitch * 16,
                            kSharedBytes = 4 * kSlabBytes;  // one slab of one operand; two slabs of both operands
};
using SmallTile = SimtTile<kSmallSide, 8>;
using LargeTile = SimtTile<kLargeSide, 8>;

// A pack as it is stored in shared memory.
using SharedPack = Words<float, 4>;

__device__ inline SharedPack to_shared(const Pack<4>& pack) {
  return {{pack.at[0], pack.at[1], pack.at[2], pack.at[3]}};
}

// The depth and the index of the pack, in a slab, that this thread loads in iteration `turn`.
// Neighbouring threads read neighbouring memory.
template <typename Tile, bool kAlongDepth>
struct Staging {
  uint32_t depth, pack;
  __device__ explicit Staging(uint32_t turn) {
    const uint32_t flat = threadIdx.x + turn * Tile::kThreads;
    depth = kAlongDepth ? flat % Tile::kDepth : flat / Tile::kPacks;
    pack = kAlongDepth ? flat / Tile::kDepth : flat % Tile::kPacks;
  }
};

// One thread's packs of one operand. The thread reads them into registers and later stores them in
// shared memory. The source returns packs of four indices (tile_source.h).
template <typename Tile, typename Source>
class StagedPacks {
 public:
  __device__ StagedPacks(const Source& source, uint64_t first_index, uint64_t, uint64_t)
      : source_(source), index_(first_index) {}

  // Reads the slab from first_depth on; depths from `end` on become zeros.
  __device__ void read(uint64_t first_depth, uint64_t end) {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
      const Staging<Tile, Source::kAlongDepth> at(turn);
      const uint64_t depth = first_depth + at.depth;
      packs_[turn] = depth < end ? source_.read(index_ + 4 * at.pack, depth) : Pack<4>{};
    }
  }
  __device__ void store(const SharedBytes& shared, uint32_t slab) const {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
      const Staging<Tile, Source::kAlongDepth> at(turn);
      shared.store(slab + 16 * (at.depth * Tile::kPitch + at.pack), to_shared(packs_[turn]));
    }
  }

 private:
  const Source& source_;
  uint64_t index_;
  Pack<4> packs_[Tile::kStaged];
};

// Like StagedPacks, for a source that gives whole chunks of 16 bytes (chunk_source.h). A chunk is
// four f32, one pack.
template <typename Tile, typename Source>
class StagedChunks {
 public:
  __device__ StagedChunks(const Source& source, uint64_t first_index, uint64_t first_depth, uint64_t end)
      : walk_(source, first_index + (kAlong ? row() : 4 * chunk()), first_depth + (kAlong ? 4 * chunk() : row()), end) {
  }

  // Reads the next slab.
  __device__ void read(uint64_t, uint64_t) {
    bool inside[Tile::kStaged];
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
      const auto next = walk_.take(turn);
      packs_[turn] = next.inside ? load_pack<4>(next.from) : Pack<4>{};
      inside[turn] = next.inside;
    }
    if constexpr (Source::kConverts) {
      const auto norm = walk_.norm();
      REPRISE_UNROLL
      for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
        REPRISE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const float y = norm.of(packs_[turn].at[i], i);
          packs_[turn].at[i] = !inside[turn] || y <= 0.0f ? 0.0f : y;  // NaN stays NaN
        }
      }
    }
    walk_.next_slab(0);
  }
  __device__ void store(const SharedBytes& shared, uint32_t slab) const {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < Tile::kStaged; ++turn) {
      const uint32_t at = row() + turn * kStep;
      if constexpr (kAlong) {
        REPRISE_UNROLL
        for (uint32_t i = 0; i < 4; ++i)
          shared.store(slab + 16 * (4 * chunk() + i) * Tile::kPitch + 4 * at, packs_[turn].at[i]);
      } else {
        shared.store(slab + 16 * (at * Tile::kPitch + chunk()), to_shared(packs_[turn]));
      }
    }
  }

 private:
  static_assert(Source::kElements == 4);
  static constexpr bool kAlong = Source::kAlongDepth;
  static constexpr uint32_t kRowChunks = kAlong ? Tile::kDepth / 4 : Tile::kPacks, kStep = Tile::kThreads / kRowChunks;

  __device__ static uint32_t row() { return threadIdx.x / kRowChunks; }
  __device__ static uint32_t chunk() { return threadIdx.x % kRowChunks; }

  typename Source::template Walk<Tile::kStaged, kStep, Tile::kDepth> walk_;
  Pack<4> packs_[Tile::kStaged];
};

template <typename Source>
constexpr bool kIsOfChunks = requires {
  Source::kElements;
};
template <typename Tile, typename Source>
using StagedOperand = std::conditional_t<kIsOfChunks<Source>, StagedChunks<Tile, Source>, StagedPacks<Tile, Source>>;

// A thread's sums. The threads of a warp are a rectangle of 4 x 8, so that the warp reads few
// different words of shared memory at once.
template <typename Tile>
struct TileSums {
  float at[8][8] = {};

  __device__ static uint32_t thread_row() { return warp_index() / (Tile::kAcross / 8) * 4 + lane_index() / 8; }
  __device__ static uint32_t thread_column() { return warp_index() % (Tile::kAcross / 8) * 8 + lane_index() % 8; }
  __device__ static uint32_t row(uint32_t i) { return 4 * (thread_row() + i / 4 * Tile::kAcross) + i % 4; }
  __device__ static uint32_t column(uint32_t j) { return 4 * (thread_column() + j / 4 * Tile::kAcross) + j % 4; }

  // Adds the product of kDepth depths of both operands. `slab` is the offset of a's slab; b's slab
  // follows a's slab.
  template <uint32_t kDepth>
  __device__ void add(const SharedBytes& shared, uint32_t slab) {
    REPRISE_UNROLL
    for (uint32_t depth = 0; depth < kDepth; ++depth) {
      const auto pack = [&](uint32_t bytes, uint32_t at) {
        return shared.load<SharedPack>(slab + bytes + 16 * (depth * Tile::kPitch + at));
      };
      const SharedPack rows[2] = {pack(0, thread_row()), pack(0, thread_row() + Tile::kAcross)};
      const SharedPack columns[2] = {pack(Tile::kSlabBytes, thread_column()),
                                     pack(Tile::kSlabBytes, thread_column() + Tile::kAcross)};
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 8; ++j) at[i][j] = fmaf(rows[i / 4].at[i % 4], columns[j / 4].at[j % 4], at[i][j]);
      }
    }
  }
};

// The arguments of a launch. An output has the function
//   put(part, row, column, count, values)   stores the first `count` sums of a pack of neighbouring
//                                           columns; the others are outside of C. Replaces `values`
//                                           by the stored values.
template <typename A, typename B, typename Output>
struct TileProduct {
  A a;
  B b;
  Output output;
  ProductShape shape;
  uint64_t part_depth;  // depth of each part; blockIdx.y is the part
  // Receives the moments of the stored values (moments_scratch_bytes); null if they are not needed.
  // Must be null unless kMoments.
  float* moments;
};

// Stores the mean and the sum of squared deviations of each column of the tile. Each thread sums
// its eight rows; then the sums of the threads with the same columns are added in order.
template <typename Tile, typename Shared>
__device__ void store_moments(Shared& shared, float* moments, const float (&stored)[8][8], const TileCorner& place,
                              const ProductShape& shape) {
  constexpr uint32_t kColumnsEach = (Tile::kSide + Tile::kThreads - 1) / Tile::kThreads;
  const uint32_t rows = static_cast<uint32_t>(minimum(Tile::kSide, shape.rows - place.row));
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

// Returns the number of blocks on one multiprocessor for which the compiler must limit registers.
// It is 2 for the large tile, unless `Source` needs more registers; otherwise 1.
template <typename Tile, typename Source>
constexpr uint32_t simt_blocks() {
  constexpr bool kNeedsRegisters = requires { Source::kNeedsRegisters; };
  return Tile::kSide == kLargeSide && !kNeedsRegisters ? 2 : 1;
}

template <typename Tile, bool kMoments, typename A, typename B, typename Output>
__global__ void __launch_bounds__(Tile::kThreads, (simt_blocks<Tile, B>()))
    tile_product_simt(const TileProduct<A, B, Output> p) {
  REPRISE_DYNAMIC_SHARED(shared, Tile::kSharedBytes);
  REPRISE_SHARED(TileCorner, corner_of_block, 1);  // in shared memory, because registers are few
  if (threadIdx.x == 0) corner_of_block[0] = tile_corner(p.shape, Tile::kSides, blockIdx.x);
  __syncthreads();
  const auto corner = [&]() -> TileCorner { return corner_of_block[0]; };
  const uint64_t begin = blockIdx.y * p.part_depth, end = minimum(p.shape.depth, begin + p.part_depth);
  TileSums<Tile> sums;
  StagedOperand<Tile, A> a(p.a, corner().row, begin, end);
  StagedOperand<Tile, B> b(p.b, corner().column, begin, end);
  uint64_t depth = begin;
  a.read(depth, end);
  b.read(depth, end);
  uint32_t slab = 0;
  for (uint32_t left = static_cast<uint32_t>(parts(end - begin, Tile::kDepth)); left > 0; --left) {
    a.store(shared, slab);
    b.store(shared, slab + Tile::kSlabBytes);
    __syncthreads();
    depth += Tile::kDepth;
    b.read(depth, end);
    a.read(depth, end);
    if constexpr (kIsOfChunks<A> && kIsOfChunks<B>) {
      sums.template add<Tile::kDepth>(shared, slab);
    } else {
      REPRISE_ROLLED
      for (uint32_t half = 0; half < 2; ++half)
        sums.template add<Tile::kDepth / 2>(shared, slab + half * Tile::kSlabBytes / 2);
    }
    slab = 2 * Tile::kSlabBytes - slab;
  }
  const TileCorner place = corner();
  REPRISE_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const uint64_t row = place.row + TileSums<Tile>::row(i);
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint64_t column = place.column + TileSums<Tile>::column(4 * half);
      if (row >= p.shape.rows || column >= p.shape.columns) continue;
      const uint32_t count = static_cast<uint32_t>(minimum(4, p.shape.columns - column));
      Pack<4> values = {
          {sums.at[i][4 * half], sums.at[i][4 * half + 1], sums.at[i][4 * half + 2], sums.at[i][4 * half + 3]}};
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

// Maps row r of C to row r of a matrix.
struct MatrixRows {
  uint64_t stride;
  __device__ uint64_t offset(uint64_t row) const { return row * stride; }
};

// An output that stores C plus a bias for each column. If `accumulate`, also adds the earlier
// content of `to`. The sum is rounded once.
template <typename Stored, typename Rows = MatrixRows>
struct TileOutput {
  static constexpr uint32_t kPutWidth = kPackWidth<Stored>;  // elements of the widest pack that put() stores
  Stored* to;
  Rows rows;
  const float* bias;     // [columns] or null
  bool accumulate;
  bool wide;             // true if put() may write whole packs: rows of C, or their padding, are whole packs
  uint64_t part_stride;  // elements from the sums of one part to the sums of the next part

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

template <typename Tile, bool kMoments = false, typename A, typename B, typename Output>
void launch_product_by(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  const dim3 grid = grid_of(Tile::kSides.tiles(p.shape), part_count);
  REPRISE_LAUNCH_DYNAMIC((tile_product_simt<Tile, kMoments, A, B, Output>), grid, Tile::kThreads, Tile::kSharedBytes,
                         context.queue, p);
}
template <bool kMoments = false, typename A, typename B, typename Output>
void launch_product(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  const bool large = simt_tile(p.shape, card_size(context)).rows == kLargeSide;
  large ? launch_product_by<LargeTile, kMoments>(context, p, part_count)
        : launch_product_by<SmallTile, kMoments>(context, p, part_count);
}

}  // namespace reprise
