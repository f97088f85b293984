// C = A B^T of bf16 by tensor cores, summed in f32: the twin of tile_product.h with the same outputs, for operands whose rows 16-byte
// copies can take.
// Here because a multiprocessor multiplies bf16 eight times as fast as f32; and shared memory must then be read without conflicts.
//
//   block  128 x 128 outputs, or 256 x 64, or 64 x 256: four warps of 64 x 64
//   slab   32 of the depth; four stages, of which three are on their way
//
//   memory ── cp.async ──> stage 0 1 2 3 ── ldmatrix ──> registers ── mma ──> sums ── the stages' memory ──> rows of C
//                             └─ convert: each thread, what it has copied itself
//
// An operand's slab lies in shared memory as it lies in memory, in chunks of 16 bytes: [index][depth], rows of 4 chunks, or [depth][index].
// Chunk c of row r stands at c ^ (r / 2 % 4), or c ^ (r % 8): the eight rows that ldmatrix reads at once then have all banks.
#pragma once

#include "cuda/chunk_source.h"
#include "cuda/tile_product.h"
#include "cuda/warp.h"
#include "cuda/weight_format.h"

namespace reprise {

template <uint32_t kRows_, uint32_t kColumns_>
struct MmaTile {
  static constexpr uint32_t kRows = kRows_, kColumns = kColumns_, kDepth = 32, kStages = 4, kThreads = 128;
  static constexpr TileSides kSides = {kRows, kColumns};
  static constexpr uint32_t kWarpSide = 64, kWarpsDown = kRows / kWarpSide, kWarpsAcross = kColumns / kWarpSide;
  static constexpr uint32_t kBytesOfA = kRows * kDepth * sizeof(Bf16), kBytesOfB = kColumns * kDepth * sizeof(Bf16);
  static constexpr uint32_t kStageBytes = kBytesOfA + kBytesOfB;
  static constexpr uint32_t kSumBytes = kRows * kColumns * sizeof(float);  // when the stages are done with
  static constexpr uint32_t kMomentBytes = kWarpsDown * kColumns * sizeof(float);
  static constexpr uint32_t kSharedBytes = static_cast<uint32_t>(most(kStages * kStageBytes, kSumBytes + 2 * kMomentBytes));
  static_assert(kWarpsDown * kWarpsAcross * kWarpLanes == kThreads);
};
using SquareMmaTile = MmaTile<kSquareTile.rows, kSquareTile.columns>;
using TallMmaTile = MmaTile<kTallTile.rows, kTallTile.columns>;
using WideMmaTile = MmaTile<kWideTile.rows, kWideTile.columns>;

// ---- operands ----

// Two sources of chunks (chunk_source.h) of the same indices, one behind the other along the depth. The second begins with a slab of its own: a product is
// joined_depth() deep, of which what lies between them is zeros.
constexpr uint64_t joined_depth(uint64_t first, uint64_t second) { return whole_pieces(first, SquareMmaTile::kDepth) * SquareMmaTile::kDepth + second; }
template <typename Source>
struct JoinedChunks {
  static constexpr bool kAlongDepth = Source::kAlongDepth, kConverts = false;
  Source first, second;
  uint64_t first_depth, second_depth;

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const JoinedChunks& source, uint64_t index, uint64_t depth, uint64_t)
        : source_(source), index_(index), depth_(static_cast<uint32_t>(depth)), walk_(source.first, index, depth, source.first_depth),
          slabs_(static_cast<uint32_t>(whole_pieces(source.first_depth, SquareMmaTile::kDepth))) {}
    __device__ Chunk<Bf16> take(uint32_t turn) { return walk_.take(turn); }
    __device__ void next_slab(uint32_t waiting) {
      walk_.next_slab(waiting);
      if (--slabs_ == 0) walk_ = {source_.second, index_, depth_, source_.second_depth};
    }

   private:
    const JoinedChunks& source_;
    uint64_t index_;
    uint32_t depth_;
    typename Source::template Walk<kTurns, kStep, kSlab> walk_;
    uint32_t slabs_;  // of the first source that are to come
  };
};

// A thread's share of one operand, of which a slab has kIndices indices.
template <typename Source, uint32_t kIndices>
class MmaOperand {
 public:
  __device__ MmaOperand(const Source& source, uint64_t first_index, uint64_t first_depth, uint64_t end)
      : walk_(source, first_index + (Source::kAlongDepth ? row() : 8 * chunk()), first_depth + (Source::kAlongDepth ? 8 * chunk() : row()), end),
        first_(offset(row(), chunk())) {}

  // Begins the copies of the next slab, `waiting` slabs behind the one that is converted next: zeros for what is outside.
  __device__ void copy(const SharedBytes& shared, uint32_t stage, uint32_t waiting) {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      const Chunk<Bf16> chunk = walk_.take(turn);
      copy_async<16>(shared, stage + place(turn), chunk.from, chunk.inside ? 16u : 0u);
    }
    walk_.next_slab(waiting);
  }

  // Of the next slab, which has come.
  __device__ void convert(const SharedBytes& shared, uint32_t stage) {
    if constexpr (Source::kConverts) {
      constexpr uint32_t kAtOnce = 4;
      const auto conversion = walk_.conversion();
      REPRISE_UNROLL
      for (uint32_t first = 0; first < kTurns; first += kAtOnce) {
        Words<uint32_t, 4> chunks[kAtOnce];
        REPRISE_UNROLL
        for (uint32_t i = 0; i < kAtOnce && first + i < kTurns; ++i) chunks[i] = shared.load<Words<uint32_t, 4>>(stage + place(first + i));
        REPRISE_UNROLL
        for (uint32_t i = 0; i < kAtOnce && first + i < kTurns; ++i) {
          conversion.apply(chunks[i].at);
          if (walk_.is_inside(first + i)) shared.store(stage + place(first + i), chunks[i]);
        }
      }
      walk_.end_conversion();
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

 private:
  static constexpr uint32_t kThreads = SquareMmaTile::kThreads, kRowChunks = (Source::kAlongDepth ? SquareMmaTile::kDepth : kIndices) / 8;
  static constexpr uint32_t kTurns = kIndices * SquareMmaTile::kDepth / 8 / kThreads, kStep = kThreads / kRowChunks;
  using Walk = typename Source::template Walk<kTurns, kStep, SquareMmaTile::kDepth>;

  __device__ static uint32_t row() { return threadIdx.x / kRowChunks; }  // the first that this thread copies to
  __device__ static uint32_t chunk() { return threadIdx.x % kRowChunks; }
  __device__ static uint32_t offset(uint32_t row, uint32_t chunk) {
    return 16 * (row * kRowChunks + (chunk ^ (Source::kAlongDepth ? row / 2 % 4 : row % 8)));
  }
  // offset(row() + turn * kStep, chunk()), without asking for the row: it is below kStep, a power of two.
  __device__ uint32_t place(uint32_t turn) const {
    return (Source::kAlongDepth ? first_ : first_ ^ 16 * (turn * kStep % 8)) + 16 * turn * kStep * kRowChunks;
  }

  Walk walk_;
  uint32_t first_;
};

// ---- a warp's sums ----

template <typename Tile>
struct MmaSums {
  static constexpr uint32_t kDown = Tile::kWarpSide / 16, kAcross = Tile::kWarpSide / 8;
  float at[kDown][kAcross][4] = {};

  __device__ static uint32_t first_row() { return warp_index() / Tile::kWarpsAcross * Tile::kWarpSide; }
  __device__ static uint32_t first_column() { return warp_index() % Tile::kWarpsAcross * Tile::kWarpSide; }

  template <typename A, typename B>
  __device__ void add(const SharedBytes& shared, uint32_t stage) {
    REPRISE_UNROLL
    for (uint32_t depth = 0; depth < Tile::kDepth; depth += 16) {
      uint32_t a[kDown][4], b[kAcross / 2][2][2];
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kDown; ++i) MmaOperand<A, Tile::kRows>::load_a(a[i], shared, stage, first_row() + 16 * i, depth);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kAcross / 2; ++j) {
        MmaOperand<B, Tile::kColumns>::load_b(b[j], shared, stage + Tile::kBytesOfA, first_column() + 16 * j, depth);
      }
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kDown; ++i) {
        REPRISE_UNROLL
        for (uint32_t j = 0; j < kAcross; ++j) multiply_add_bf16(at[i][j], a[i], b[j / 2][j % 2]);
      }
    }
  }
};

// ---- a warp's results, on their way through shared memory ----

// Rows of 64 sums in 16 chunks. Chunk c of row r stands at c ^ (2 (r % 4) + r % 2): the pairs that mma leaves to four rows have all
// banks, and so have eight lanes that read packs of kWidth, in one row or in two.
template <typename Tile, uint32_t kWidth>
class StagedSums {
 public:
  static constexpr uint32_t kRowsAtOnce = kWarpLanes * kWidth / Tile::kWarpSide;

  __device__ explicit StagedSums(const SharedBytes& shared) : shared_(shared.part(warp_index() * kBytes, kBytes)) {}

  __device__ void store(const MmaSums<Tile>& sums) const {
    using Pair = Words<float, 2>;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < MmaSums<Tile>::kDown; ++i) {
      REPRISE_UNROLL
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t row = 16 * i + 8 * half + lane_index() / 4;
        REPRISE_UNROLL
        for (uint32_t j = 0; j < MmaSums<Tile>::kAcross; ++j) {
          const float(&four)[4] = sums.at[i][j];
          shared_.store(offset(row, 2 * j + lane_index() % 4 / 2) + lane_index() % 2 * 8, Pair{{four[2 * half], four[2 * half + 1]}});
        }
      }
    }
    __syncwarp();
  }

  // Which pack of kRowsAtOnce rows is the lane's: neighbours write neighbouring bytes. Eight lanes take half of two rows, or of one.
  __device__ static uint32_t row() {
    return kWidth == 8 ? lane_index() / 16 * 2 + lane_index() % 8 / 4 : lane_index() / 16;
  }
  __device__ static uint32_t pack() { return kWidth == 8 ? lane_index() / 8 % 2 * 4 + lane_index() % 4 : lane_index() % 16; }

  __device__ Pack<kWidth> load(uint32_t first_row) const {
    Pack<kWidth> values;
    REPRISE_UNROLL
    for (uint32_t four = 0; four < kWidth / 4; ++four) {
      const SharedPack words = shared_.load<SharedPack>(offset(first_row + row(), pack() * (kWidth / 4) + four));
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) values.at[4 * four + i] = words.at[i];
    }
    return values;
  }
  __device__ void put_back(uint32_t first_row, const Pack<kWidth>& values) const {
    REPRISE_UNROLL
    for (uint32_t four = 0; four < kWidth / 4; ++four) {
      const float* at = values.at + 4 * four;
      shared_.store(offset(first_row + row(), pack() * (kWidth / 4) + four), SharedPack{{at[0], at[1], at[2], at[3]}});
    }
  }

 private:
  static constexpr uint32_t kBytes = Tile::kWarpSide * Tile::kWarpSide * sizeof(float);
  static_assert(kWidth == 4 || kWidth == 8);
  __device__ static uint32_t offset(uint32_t row, uint32_t chunk) { return row * 256 + 16 * (chunk ^ (2 * (row % 4) + row % 2)); }

  SharedBytes shared_;
};

// Mean, then squared deviations from it, of the tile's columns: each lane's rows in their order, the lanes of a warp, the warps that stand
// above one another. `rows` of the tile are inside.
template <typename Tile>
class TileMoments {
 public:
  using Sums = StagedSums<Tile, 8>;

  __device__ TileMoments(const SharedBytes& shared, uint32_t rows) : shared_(shared), rows_(rows) {}

  // What is stored in the pack of the lane that begins at this row of the warp.
  __device__ void add(uint32_t row, const Pack<8>& stored) {
    if (!is_inside(row)) return;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) sum_.at[i] += stored.at[i];
  }
  // All of `sums` has been added, and put back as it is stored.
  __device__ void finish(const Sums& sums, float* moments, const TileCorner& place, const ProductShape& shape) {
    Pack<8> mean = over_the_tile(0);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) mean.at[i] /= static_cast<float>(rows_), sum_.at[i] = 0;
    REPRISE_ROLLED
    for (uint32_t row = 0; row < Tile::kWarpSide; row += Sums::kRowsAtOnce) {
      const Pack<8> stored = sums.load(row);
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 8; ++i) {
        const float deviation = stored.at[i] - mean.at[i];
        if (is_inside(row)) sum_.at[i] = fmaf(deviation, deviation, sum_.at[i]);
      }
    }
    const Pack<8> squares = over_the_tile(1);
    if (warp_index() >= Tile::kWarpsAcross || Sums::row() != 0) return;
    float* to = moments + place.row / Tile::kRows * 2 * shape.columns;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const uint64_t column = place.column + MmaSums<Tile>::first_column() + 8 * Sums::pack() + i;
      if (column < shape.columns) to[column] = mean.at[i], to[shape.columns + column] = squares.at[i];
    }
  }

 private:
  __device__ bool is_inside(uint32_t row) const { return MmaSums<Tile>::first_row() + row + Sums::row() < rows_; }
  // Where the warp of row `down` of the tile leaves the sums of the first four of each eight columns, then of the others.
  __device__ static uint32_t offset(uint32_t pass, uint32_t down, uint32_t four) {
    const uint32_t warp = down * Tile::kWarpsAcross + warp_index() % Tile::kWarpsAcross;
    return Tile::kSumBytes + pass * Tile::kMomentBytes + warp * Tile::kWarpSide * sizeof(float) + 128 * four + 16 * Sums::pack();
  }
  __device__ Pack<8> over_the_tile(uint32_t pass) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      sum_.at[i] += __shfl_xor_sync(kAllLanes, sum_.at[i], 4);
      sum_.at[i] += __shfl_xor_sync(kAllLanes, sum_.at[i], 16);
    }
    REPRISE_UNROLL
    for (uint32_t four = 0; four < 2 && Sums::row() == 0; ++four) {
      const float* at = sum_.at + 4 * four;
      shared_.store(offset(pass, warp_index() / Tile::kWarpsAcross, four), SharedPack{{at[0], at[1], at[2], at[3]}});
    }
    __syncthreads();
    Pack<8> total = {};
    REPRISE_UNROLL
    for (uint32_t down = 0; down < Tile::kWarpsDown; ++down) {
      REPRISE_UNROLL
      for (uint32_t four = 0; four < 2; ++four) {
        const SharedPack words = shared_.load<SharedPack>(offset(pass, down, four));
        REPRISE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) total.at[4 * four + i] += words.at[i];
      }
    }
    return total;
  }

  SharedBytes shared_;
  uint32_t rows_;
  Pack<8> sum_ = {};
};

// Rows of C, 16 bytes a lane.
template <typename Tile, bool kMoments, typename Product>
__device__ void put_sums(const SharedBytes& shared, const MmaSums<Tile>& sums, const Product& p, const TileCorner& place) {
  constexpr uint32_t kWidth = decltype(p.output)::kPutWidth;
  using Staged = StagedSums<Tile, kWidth>;
  const Staged staged(shared);
  staged.store(sums);
  const uint64_t first_row = place.row + MmaSums<Tile>::first_row() + Staged::row();
  const uint64_t column = place.column + MmaSums<Tile>::first_column() + kWidth * Staged::pack();
  [[maybe_unused]] TileMoments<Tile> moments(shared, static_cast<uint32_t>(least(Tile::kRows, p.shape.rows - place.row)));
  REPRISE_UNROLL_BY_FOUR
  for (uint32_t row = 0; row < Tile::kWarpSide; row += Staged::kRowsAtOnce) {
    Pack<kWidth> values = staged.load(row);
    if (first_row + row < p.shape.rows && column < p.shape.columns) {
      p.output.put(blockIdx.y, first_row + row, column, static_cast<uint32_t>(least(kWidth, p.shape.columns - column)), values);
    }
    if constexpr (kMoments) {
      if (p.moments == nullptr) continue;
      staged.put_back(row, values);
      moments.add(row, values);
    }
  }
  if constexpr (kMoments) {
    if (p.moments != nullptr) moments.finish(staged, p.moments, place, p.shape);
  }
}

template <typename Tile, bool kMoments, typename A, typename B, typename Output>
__global__ void __launch_bounds__(Tile::kThreads, 2) tile_product_mma(const TileProduct<A, B, Output> p) {
  REPRISE_DYNAMIC_SHARED(shared, Tile::kSharedBytes);
  const TileCorner place = tile_corner(p.shape, Tile::kSides, blockIdx.x);
  const uint64_t begin = blockIdx.y * p.part_depth, end = least(p.shape.depth, begin + p.part_depth);
  const uint32_t slabs = static_cast<uint32_t>(parts(end - begin, Tile::kDepth));
  const auto stage_of = [](uint32_t slab) { return slab % Tile::kStages * Tile::kStageBytes; };
  MmaOperand<A, Tile::kRows> a(p.a, place.row, begin, end);
  MmaOperand<B, Tile::kColumns> b(p.b, place.column, begin, end);
  const auto copy = [&](uint32_t slab, uint32_t waiting) {
    if (slab < slabs) {
      a.copy(shared, stage_of(slab), waiting);
      b.copy(shared, stage_of(slab) + Tile::kBytesOfA, waiting);
    }
    commit_copies();  // a group for every slab, so that they can be counted
  };
  MmaSums<Tile> sums;
  REPRISE_UNROLL
  for (uint32_t slab = 0; slab + 1 < Tile::kStages; ++slab) copy(slab, slab);
  for (uint32_t slab = 0; slab < slabs; ++slab) {
    wait_copies<Tile::kStages - 2>();
    a.convert(shared, stage_of(slab));
    b.convert(shared, stage_of(slab) + Tile::kBytesOfA);
    __syncthreads();  // this slab has come for all, and all are done with the one whose place the next copies take
    copy(slab + Tile::kStages - 1, Tile::kStages - 2);
    sums.template add<A, B>(shared, stage_of(slab));
  }
  __syncthreads();  // all are done with the stages, and no copy is on its way
  put_sums<Tile, kMoments>(shared, sums, p, place);
}

// ---- launching ----

template <bool kMoments = false, typename A, typename B, typename Output>
void launch_mma(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  const TileSides sides = mma_tile(p.shape);
  const dim3 grid(static_cast<uint32_t>(sides.tiles(p.shape)), part_count);
  const auto launch = [&](auto kernel, uint32_t shared_bytes) {
    REPRISE_LAUNCH_DYNAMIC(kernel, grid, SquareMmaTile::kThreads, shared_bytes, context.queue, p);
  };
  if (sides.rows == kTallTile.rows) return launch(tile_product_mma<TallMmaTile, kMoments, A, B, Output>, TallMmaTile::kSharedBytes);
  if (sides.rows == kWideTile.rows) return launch(tile_product_mma<WideMmaTile, kMoments, A, B, Output>, WideMmaTile::kSharedBytes);
  launch(tile_product_mma<SquareMmaTile, kMoments, A, B, Output>, SquareMmaTile::kSharedBytes);
}

// Weights that are not stored as bf16, rounded once a call: tensor cores take bf16.
static __global__ void __launch_bounds__(kBlockThreads) round_weights(Bf16* to, const Weight w, uint64_t n) {
  for (uint64_t i = grid_thread() * 4; i < n; i += grid_threads() * 4) store_pack(to + i, decode_weights<4>(w, i));
}
// n is a multiple of four.
inline const Bf16* weights_as_bf16(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if (w.type == DType::kBf16) return static_cast<const Bf16*>(w.data);
  Bf16* rounded = static_cast<Bf16*>(scratch);
  REPRISE_LAUNCH(round_weights, blocks_for(parts(n, 4)), kBlockThreads, context.queue, rounded, w, n);
  return rounded;
}

}  // namespace reprise
