// C = A B^T on tensor cores, summed in f32. The counterpart of tile_product.h, with the same types
// of output, for operands whose rows can be copied in chunks of 16 bytes. Operands are bf16. They
// may also be f32 if the plan's math lets tensor cores multiply f32 with fewer bits
// (product_math.h). The loop is separate from tile_product.h, because it must read shared memory
// without bank conflicts: a multiprocessor multiplies bf16 eight times as fast as f32.
//
//   block  128 x 128 outputs, or 256 x 64, or 64 x 256: four warps of 64 x 64
//   slab   four chunks of the depth, 32 bf16 or 16 f32; four stages, three in flight
//
//   memory ── cp.async ──> stage 0 1 2 3 ── ldmatrix ──> registers ── mma ──> sums ──┐
//                             └─ convert: a thread converts the chunks it copied     │
//                                         rows of C <── the stages' shared memory <──┘
//
// An operand's slab has the same layout in shared memory as in memory, in chunks of 16 bytes:
// [index][depth] with rows of 4 chunks, or [depth][index]. Chunk c of row r is stored at
// c ^ (r / 2 % 4) in the first layout and at c ^ (r % 8) in the second. The eight rows that
// ldmatrix reads at once then use all banks.
//
// ldmatrix can transpose only elements of two bytes. So f32 in [depth][index] is read word by word,
// from four depths and eight indices at once. Then chunk c of row r is stored at c ^ 2 (r % 4).
#pragma once

#include "cuda/gemm/chunk_source.h"
#include "cuda/gemm/tile_product.h"
#include "cuda/warp.h"
#include "cuda/weight_format.h"

namespace reprise {

// ---- how tensor cores multiply ----
//
// A math is a struct that loads fragments and multiplies them. A fragment is 16 rows of A or 8
// columns of B, kChunks chunks deep. The product of two fragments is added in kProducts parts. A
// warp adds one part to all of its sums before the next part, so that consecutive instructions add
// to different sums. `Operand` is an MmaOperand.

struct Bf16Math {
  static constexpr uint32_t kChunks = 2, kProducts = 1;
  struct A {
    uint32_t r[4];
  };
  struct B {
    uint32_t r[2];
  };
  template <typename Operand>
  __device__ static void load_a(A& a, const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Operand::load_a(a.r, shared, stage, index, chunk);
  }
  template <typename Operand>
  __device__ static void load_b(B (&b)[2], const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Operand::load_b(b[0].r, b[1].r, shared, stage, index, chunk);
  }
  template <uint32_t kPart>
  __device__ static void multiply_add(float (&c)[4], const A& a, const B& b) {
    multiply_add_bf16(c, a.r, b.r);
  }
};

// Multiplies f32 that is rounded to tf32. Infinities and NaN remain. A number that rounds past the
// largest tf32 becomes infinite.
struct Tf32Math {
  static constexpr uint32_t kChunks = 2, kProducts = 1;
  using A = Bf16Math::A;
  using B = Bf16Math::B;

  template <uint32_t kRegisters>
  __device__ static void round(uint32_t (&r)[kRegisters]) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kRegisters; ++i) r[i] = round_to_tf32(std::bit_cast<float>(r[i]));
  }
  template <typename Operand>
  __device__ static void load_a(A& a, const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Operand::load_a(a.r, shared, stage, index, chunk);
    round(a.r);
  }
  template <typename Operand>
  __device__ static void load_b(B (&b)[2], const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    Operand::load_b(b[0].r, b[1].r, shared, stage, index, chunk);
    round(b[0].r), round(b[1].r);
  }
  template <uint32_t kPart>
  __device__ static void multiply_add(float (&c)[4], const A& a, const B& b) {
    multiply_add_tf32(c, a.r, b.r);
  }
};

// Multiplies f32 that is split into two bf16, x = high + low; omits low times low. A fragment has
// the depths of two adjacent fragments of tf32. A pair of bf16 has one depth of a chunk and one
// depth of the next chunk. This order permutes the depths, equally for both operands.
//
// The high part is at most the largest finite bf16. An infinity becomes this number plus an
// infinite low part, so that no infinities are subtracted. High times high is added first. So if an
// infinity makes a sum infinite, the sum has the same sign as in f32.
struct Bf16x3Math {
  static constexpr uint32_t kChunks = 4, kProducts = 3;
  struct A {
    uint32_t high[4], low[4];
  };
  struct B {
    uint32_t high[2], low[2];
  };

  __device__ static float within_bf16(float x) {
    constexpr float kLargest = 0x1.fep127f;
    return fminf(fmaxf(x, -kLargest), kLargest);  // NaN becomes a number here, but its low part is NaN
  }
  __device__ static void split(uint32_t& high, uint32_t& low, uint32_t first_bits, uint32_t second_bits) {
    const float first = std::bit_cast<float>(first_bits), second = std::bit_cast<float>(second_bits);
    high = round_to_bf16_pair(within_bf16(first), within_bf16(second));
    low =
        round_to_bf16_pair(first - std::bit_cast<float>(high << 16), second - std::bit_cast<float>(high & 0xffff0000u));
  }
  template <typename Operand>
  __device__ static void load_a(A& a, const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t r[4];
      Operand::load_a(r, shared, stage, index, chunk + 2 * half);
      REPRISE_UNROLL
      for (uint32_t i = 0; i < 2; ++i) split(a.high[2 * half + i], a.low[2 * half + i], r[i], r[2 + i]);
    }
  }
  template <typename Operand>
  __device__ static void load_b(B (&b)[2], const SharedBytes& shared, uint32_t stage, uint32_t index, uint32_t chunk) {
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t r[2][2];
      Operand::load_b(r[0], r[1], shared, stage, index, chunk + 2 * half);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 2; ++j) split(b[j].high[half], b[j].low[half], r[j][0], r[j][1]);
    }
  }
  template <uint32_t kPart>
  __device__ static void multiply_add(float (&c)[4], const A& a, const B& b) {
    multiply_add_bf16(c, kPart == 2 ? a.low : a.high, kPart == 1 ? b.low : b.high);
  }
};

template <uint32_t kRows_, uint32_t kColumns_, typename Math_>
struct TensorTile {
  using Math = Math_;
  static constexpr uint32_t kRows = kRows_, kColumns = kColumns_, kSlabChunks = 4, kStages = 4, kThreads = 128;
  static constexpr TileSides kSides = {kRows, kColumns};
  static constexpr uint32_t kWarpSide = 64, kWarpsDown = kRows / kWarpSide, kWarpsAcross = kColumns / kWarpSide;
  static constexpr uint32_t kBytesOfA = kRows * kSlabChunks * 16, kBytesOfB = kColumns * kSlabChunks * 16;
  static constexpr uint32_t kStageBytes = kBytesOfA + kBytesOfB;
  static constexpr uint32_t kSumBytes = kRows * kColumns * sizeof(float);  // bytes of the sums, which overwrite stages
  static constexpr uint32_t kMomentBytes = kWarpsDown * kColumns * sizeof(float);
  static constexpr uint32_t kSharedBytes =
      static_cast<uint32_t>(maximum(kStages * kStageBytes, kSumBytes + 2 * kMomentBytes));
  static_assert(kWarpsDown * kWarpsAcross * kWarpLanes == kThreads);
};
template <uint32_t kRows, uint32_t kColumns>
struct MmaTile : TensorTile<kRows, kColumns, Bf16Math> {};
using SquareMmaTile = MmaTile<kSquareTile.rows, kSquareTile.columns>;
using TallMmaTile = MmaTile<kTallTile.rows, kTallTile.columns>;
using WideMmaTile = MmaTile<kWideTile.rows, kWideTile.columns>;
struct Tf32Tile : TensorTile<kSquareTile.rows, kSquareTile.columns, Tf32Math> {};
struct Bf16x3Tile : TensorTile<kSquareTile.rows, kSquareTile.columns, Bf16x3Math> {};

// Depths of a slab whose elements have type Stored.
template <typename Stored>
inline constexpr uint32_t kSlabDepth = SquareMmaTile::kSlabChunks* kPackWidth<Stored>;

// ---- operands ----

// Returns the depth of a product of JoinedChunks: the first source's depth, rounded up to whole
// slabs with zeros, plus the second source's depth.
template <typename Stored>
constexpr uint64_t joined_depth(uint64_t first, uint64_t second) {
  return whole_pieces(first, kSlabDepth<Stored>) * kSlabDepth<Stored> + second;
}
// Joins two sources of chunks (chunk_source.h) with the same indices along the depth: the second
// source follows the last slab of the first.
template <typename Source>
struct JoinedChunks {
  static constexpr uint32_t kElements = Source::kElements;
  static constexpr bool kAlongDepth = Source::kAlongDepth, kConverts = false;
  Source first, second;
  uint64_t first_depth, second_depth;

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const JoinedChunks& source, uint64_t index, uint64_t depth, uint64_t)
        : source_(source),
          index_(index),
          depth_(static_cast<uint32_t>(depth)),
          walk_(source.first, index, depth, source.first_depth),
          slabs_(static_cast<uint32_t>(whole_pieces(source.first_depth, kSlab))) {}
    __device__ auto take(uint32_t turn) { return walk_.take(turn); }
    __device__ void next_slab(uint32_t waiting) {
      walk_.next_slab(waiting);
      if (--slabs_ == 0) walk_ = {source_.second, index_, depth_, source_.second_depth};
    }

   private:
    const JoinedChunks& source_;
    uint64_t index_;
    uint32_t depth_;
    typename Source::template Walk<kTurns, kStep, kSlab> walk_;
    uint32_t slabs_;  // remaining slabs of the first source
  };
};

// One operand, whose slabs have kIndices indices. A thread copies and converts its own part of each
// slab; a warp loads fragments.
template <typename Source, uint32_t kIndices>
class MmaOperand {
 public:
  __device__ MmaOperand(const Source& source, uint64_t first_index, uint64_t first_depth, uint64_t end)
      : walk_(source, first_index + (kAlong ? row() : kElements * chunk()),
              first_depth + (kAlong ? kElements * chunk() : row()), end),
        first_(offset(row(), chunk())) {}

  // Begins this thread's copies of the next slab to `stage`. `waiting` is the number of earlier
  // slabs that are not yet converted. Chunks outside of the operand become zeros.
  __device__ void copy(const SharedBytes& shared, uint32_t stage, uint32_t waiting) {
    REPRISE_UNROLL
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      const auto chunk = walk_.take(turn);
      copy_async<16>(shared, stage + place(turn), chunk.from, chunk.inside ? 16u : 0u);
    }
    walk_.next_slab(waiting);
  }

  // Converts this thread's chunks of the next slab, whose copies must have completed.
  __device__ void convert(const SharedBytes& shared, uint32_t stage) {
    if constexpr (Source::kConverts) {
      constexpr uint32_t kAtOnce = 4;
      const auto conversion = walk_.conversion();
      REPRISE_UNROLL
      for (uint32_t first = 0; first < kTurns; first += kAtOnce) {
        Words<uint32_t, 4> chunks[kAtOnce];
        REPRISE_UNROLL
        for (uint32_t i = 0; i < kAtOnce && first + i < kTurns; ++i)
          chunks[i] = shared.load<Words<uint32_t, 4>>(stage + place(first + i));
        REPRISE_UNROLL
        for (uint32_t i = 0; i < kAtOnce && first + i < kTurns; ++i) {
          conversion.apply(chunks[i].at);
          if (walk_.is_inside(first + i)) shared.store(stage + place(first + i), chunks[i]);
        }
      }
      walk_.end_conversion();
    }
  }

  // Loads 16 indices by two chunks of the depth as operand a of mma: the matrices of indices 0-7
  // and 8-15 of the first chunk, then of the second. A matrix has 8 rows of 16 bytes, eight bf16 or
  // four f32.
  __device__ static void load_a(uint32_t (&a)[4], const SharedBytes& shared, uint32_t stage, uint32_t index,
                                uint32_t first_chunk) {
    const uint32_t matrix = lane_index() / 8, i = lane_index() % 8;
    if constexpr (kAlong) {
      load_matrices(a, shared, stage + offset(index + matrix % 2 * 8 + i, first_chunk + matrix / 2));
    } else if constexpr (kElements == 8) {
      load_matrices_transposed(a, shared, stage + offset(8 * first_chunk + matrix / 2 * 8 + i, index / 8 + matrix % 2));
    } else {
      REPRISE_UNROLL
      for (uint32_t r = 0; r < 4; ++r) a[r] = load_word(shared, stage, index + 8 * (r % 2), first_chunk + r / 2);
    }
  }
  // Loads 16 indices by two chunks of the depth as two operands b of mma, of 8 indices each.
  __device__ static void load_b(uint32_t (&b)[2], uint32_t (&next)[2], const SharedBytes& shared, uint32_t stage,
                                uint32_t index, uint32_t first_chunk) {
    const uint32_t matrix = lane_index() / 8, i = lane_index() % 8;
    uint32_t r[4];
    if constexpr (kAlong) {
      load_matrices(r, shared, stage + offset(index + matrix / 2 * 8 + i, first_chunk + matrix % 2));
    } else if constexpr (kElements == 8) {
      load_matrices_transposed(r, shared, stage + offset(8 * first_chunk + matrix % 2 * 8 + i, index / 8 + matrix / 2));
    } else {
      REPRISE_UNROLL
      for (uint32_t k = 0; k < 4; ++k) r[k] = load_word(shared, stage, index + 8 * (k / 2), first_chunk + k % 2);
    }
    b[0] = r[0], b[1] = r[1], next[0] = r[2], next[1] = r[3];
  }

 private:
  static constexpr bool kAlong = Source::kAlongDepth;
  static constexpr uint32_t kElements = Source::kElements, kSlabChunks = SquareMmaTile::kSlabChunks,
                            kThreads = SquareMmaTile::kThreads;
  static constexpr uint32_t kRowChunks = kAlong ? kSlabChunks : kIndices / kElements;
  static constexpr uint32_t kTurns = kIndices * kSlabChunks / kThreads, kStep = kThreads / kRowChunks;
  using Walk = typename Source::template Walk<kTurns, kStep, kElements * kSlabChunks>;

  __device__ static uint32_t row() { return threadIdx.x / kRowChunks; }  // the first row that this thread copies
  __device__ static uint32_t chunk() { return threadIdx.x % kRowChunks; }
  __device__ static constexpr uint32_t swizzled(uint32_t row) {
    return kAlong ? row / 2 % 4 : kElements == 8 ? row % 8 : 2 * (row % 4);
  }
  __device__ static uint32_t offset(uint32_t row, uint32_t chunk) {
    return 16 * (row * kRowChunks + (chunk ^ swizzled(row)));
  }
  // Returns offset(row() + turn * kStep, chunk()), computed from first_. This is exact because
  // row() is less than kStep, and kStep is a power of two.
  __device__ uint32_t place(uint32_t turn) const {
    return (first_ ^ 16 * swizzled(turn * kStep)) + 16 * turn * kStep * kRowChunks;
  }
  // Returns, for f32 in [depth][index], the word that ldmatrix would give this lane. It is an
  // element of the matrix of 8 indices, from first_index on, by 4 depths, from 4 * four on. The
  // terms of the address that do not depend on the lane are added separately. These terms are
  // constants, or equal in all lanes of the warp.
  __device__ static uint32_t load_word(const SharedBytes& shared, uint32_t stage, uint32_t first_index, uint32_t four) {
    const uint32_t g = lane_index() / 4, t = lane_index() % 4, chunk = first_index / 4;
    const uint32_t of_lane = offset(t, g / 4) + 4 * (g % 4);
    return shared.load<uint32_t>(stage + 16 * (4 * four * kRowChunks + chunk / 8 * 8) + (of_lane ^ 16 * (chunk % 8)));
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
    using Math = typename Tile::Math;
    REPRISE_UNROLL
    for (uint32_t chunk = 0; chunk < Tile::kSlabChunks; chunk += Math::kChunks) {
      typename Math::A a[kDown];
      typename Math::B b[kAcross / 2][2];
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kDown; ++i)
        Math::template load_a<MmaOperand<A, Tile::kRows>>(a[i], shared, stage, first_row() + 16 * i, chunk);
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kAcross / 2; ++j) {
        Math::template load_b<MmaOperand<B, Tile::kColumns>>(b[j], shared, stage + Tile::kBytesOfA,
                                                             first_column() + 16 * j, chunk);
      }
      add_parts_from<0>(a, b);
    }
  }

 private:
  template <uint32_t kPart, typename A, typename B>
  __device__ void add_parts_from(const A (&a)[kDown], const B (&b)[kAcross / 2][2]) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kAcross; ++j) Tile::Math::template multiply_add<kPart>(at[i][j], a[i], b[j / 2][j % 2]);
    }
    if constexpr (kPart + 1 < Tile::Math::kProducts) add_parts_from<kPart + 1>(a, b);
  }
};

// ---- a warp's results in shared memory ----

// A warp's 64 x 64 sums in shared memory, in rows of 16 chunks. Chunk c of row r is stored at
// c ^ (2 (r % 4) + r % 2). This order uses all banks when lanes store the pairs that mma leaves in
// four rows, and when eight lanes read packs of kWidth.
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
          shared_.store(offset(row, 2 * j + lane_index() % 4 / 2) + lane_index() % 2 * 8,
                        Pair{{four[2 * half], four[2 * half + 1]}});
        }
      }
    }
    __syncwarp();
  }

  // Returns the row of the lane's pack among kRowsAtOnce rows. pack() returns the index of the pack
  // in that row. Neighbouring lanes write neighbouring bytes. Eight lanes have half of one row, or
  // half of each of two rows.
  __device__ static uint32_t row() {
    return kWidth == 8 ? lane_index() / 16 * 2 + lane_index() % 8 / 4 : lane_index() / 16;
  }
  __device__ static uint32_t pack() {
    return kWidth == 8 ? lane_index() / 8 % 2 * 4 + lane_index() % 4 : lane_index() % 16;
  }

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
  __device__ static uint32_t offset(uint32_t row, uint32_t chunk) {
    return row * 256 + 16 * (chunk ^ (2 * (row % 4) + row % 2));
  }

  SharedBytes shared_;
};

// Computes the mean and the sum of squared deviations of each column of a tile. Each lane sums its
// rows in order; then the lanes of a warp and the warps of the same columns are added. `rows` is
// the number of the tile's rows that are inside C.
template <typename Tile, uint32_t kWidth>
class TileMoments {
 public:
  using Sums = StagedSums<Tile, kWidth>;

  __device__ TileMoments(const SharedBytes& shared, uint32_t rows) : shared_(shared), rows_(rows) {}

  // Adds a pack of stored values: the lane's pack of the kRowsAtOnce rows of the warp from `row`
  // on.
  __device__ void add(uint32_t row, const Pack<kWidth>& stored) {
    if (!is_inside(row)) return;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i) sum_.at[i] += stored.at[i];
  }
  // Writes the moments. Requires that every pack of the tile has been stored, added by add(), and
  // written to `sums` by put_back().
  __device__ void finish(const Sums& sums, float* moments, const TileCorner& place, const ProductShape& shape) {
    Pack<kWidth> mean = over_the_tile(0);
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i) mean.at[i] /= static_cast<float>(rows_), sum_.at[i] = 0;
    REPRISE_ROLLED
    for (uint32_t row = 0; row < Tile::kWarpSide; row += Sums::kRowsAtOnce) {
      const Pack<kWidth> stored = sums.load(row);
      REPRISE_UNROLL
      for (uint32_t i = 0; i < kWidth; ++i) {
        const float deviation = stored.at[i] - mean.at[i];
        if (is_inside(row)) sum_.at[i] = fmaf(deviation, deviation, sum_.at[i]);
      }
    }
    const Pack<kWidth> squares = over_the_tile(1);
    if (warp_index() >= Tile::kWarpsAcross || Sums::row() != 0) return;
    float* to = moments + place.row / Tile::kRows * 2 * shape.columns;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i) {
      const uint64_t column = place.column + MmaSums<Tile>::first_column() + kWidth * Sums::pack() + i;
      if (column < shape.columns) to[column] = mean.at[i], to[shape.columns + column] = squares.at[i];
    }
  }

 private:
  __device__ bool is_inside(uint32_t row) const { return MmaSums<Tile>::first_row() + row + Sums::row() < rows_; }
  // Returns the offset in shared memory of four column sums of one warp. The four columns are 4 *
  // four to 4 * four + 3 of this lane's pack. The warp is in row `down` of the tile's warps, and
  // has the same columns as this warp.
  __device__ static uint32_t offset(uint32_t pass, uint32_t down, uint32_t four) {
    const uint32_t warp = down * Tile::kWarpsAcross + warp_index() % Tile::kWarpsAcross;
    return Tile::kSumBytes + pass * Tile::kMomentBytes + warp * Tile::kWarpSide * sizeof(float) + 128 * four +
           16 * Sums::pack();
  }
  __device__ Pack<kWidth> over_the_tile(uint32_t pass) {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < kWidth; ++i) {
      if (Sums::kRowsAtOnce == 4) sum_.at[i] += __shfl_xor_sync(kAllLanes, sum_.at[i], 4);
      sum_.at[i] += __shfl_xor_sync(kAllLanes, sum_.at[i], 16);
    }
    REPRISE_UNROLL
    for (uint32_t four = 0; four < kWidth / 4 && Sums::row() == 0; ++four) {
      const float* at = sum_.at + 4 * four;
      shared_.store(offset(pass, warp_index() / Tile::kWarpsAcross, four), SharedPack{{at[0], at[1], at[2], at[3]}});
    }
    __syncthreads();
    Pack<kWidth> total = {};
    REPRISE_UNROLL
    for (uint32_t down = 0; down < Tile::kWarpsDown; ++down) {
      REPRISE_UNROLL
      for (uint32_t four = 0; four < kWidth / 4; ++four) {
        const SharedPack words = shared_.load<SharedPack>(offset(pass, down, four));
        REPRISE_UNROLL
        for (uint32_t i = 0; i < 4; ++i) total.at[4 * four + i] += words.at[i];
      }
    }
    return total;
  }

  SharedBytes shared_;
  uint32_t rows_;
  Pack<kWidth> sum_ = {};
};

// Writes a warp's sums to rows of C; each lane writes 16 bytes at a time.
template <typename Tile, bool kMoments, typename Product>
__device__ void put_sums(const SharedBytes& shared, const MmaSums<Tile>& sums, const Product& p,
                         const TileCorner& place) {
  constexpr uint32_t kWidth = decltype(p.output)::kPutWidth;
  using Staged = StagedSums<Tile, kWidth>;
  const Staged staged(shared);
  staged.store(sums);
  const uint64_t first_row = place.row + MmaSums<Tile>::first_row() + Staged::row();
  const uint64_t column = place.column + MmaSums<Tile>::first_column() + kWidth * Staged::pack();
  [[maybe_unused]] TileMoments<Tile, kWidth> moments(shared, static_cast<uint32_t>(
                                                                 minimum(Tile::kRows, p.shape.rows - place.row)));
  REPRISE_UNROLL_BY_FOUR
  for (uint32_t row = 0; row < Tile::kWarpSide; row += Staged::kRowsAtOnce) {
    Pack<kWidth> values = staged.load(row);
    if (first_row + row < p.shape.rows && column < p.shape.columns) {
      p.output.put(blockIdx.y, first_row + row, column,
                   static_cast<uint32_t>(minimum(kWidth, p.shape.columns - column)), values);
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
  const uint64_t begin = blockIdx.y * p.part_depth, end = minimum(p.shape.depth, begin + p.part_depth);
  const uint32_t slabs = static_cast<uint32_t>(parts(end - begin, Tile::kSlabChunks * A::kElements));
  const auto stage_of = [](uint32_t slab) { return slab % Tile::kStages * Tile::kStageBytes; };
  MmaOperand<A, Tile::kRows> a(p.a, place.row, begin, end);
  MmaOperand<B, Tile::kColumns> b(p.b, place.column, begin, end);
  const auto copy = [&](uint32_t slab, uint32_t waiting) {
    if (slab < slabs) {
      a.copy(shared, stage_of(slab), waiting);
      b.copy(shared, stage_of(slab) + Tile::kBytesOfA, waiting);
    }
    commit_copies();  // one group for each slab, even if it is empty, because wait_copies() counts groups
  };
  MmaSums<Tile> sums;
  REPRISE_UNROLL
  for (uint32_t slab = 0; slab + 1 < Tile::kStages; ++slab) copy(slab, slab);
  for (uint32_t slab = 0; slab < slabs; ++slab) {
    wait_copies<Tile::kStages - 2>();
    a.convert(shared, stage_of(slab));
    b.convert(shared, stage_of(slab) + Tile::kBytesOfA);
    __syncthreads();  // this slab is complete; no thread reads the slab that the next copies overwrite
    copy(slab + Tile::kStages - 1, Tile::kStages - 2);
    sums.template add<A, B>(shared, stage_of(slab));
  }
  __syncthreads();  // no thread reads the stages any more, and no copy is pending
  put_sums<Tile, kMoments>(shared, sums, p, place);
}

// ---- launching ----

template <typename Tile, bool kMoments, typename A, typename B, typename Output>
void launch_mma_by(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count) {
  const dim3 grid = grid_of(Tile::kSides.tiles(p.shape), part_count);
  REPRISE_LAUNCH_DYNAMIC((tile_product_mma<Tile, kMoments, A, B, Output>), grid, Tile::kThreads, Tile::kSharedBytes,
                         context.queue, p);
}
template <bool kMoments = false, typename A, typename B, typename Output>
void launch_mma(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  const TileSides sides = mma_tile(p.shape);
  if (sides.rows == kTallTile.rows) return launch_mma_by<TallMmaTile, kMoments>(context, p, part_count);
  if (sides.rows == kWideTile.rows) return launch_mma_by<WideMmaTile, kMoments>(context, p, part_count);
  launch_mma_by<SquareMmaTile, kMoments>(context, p, part_count);
}
// Launches a product of operands in chunks on tensor cores. The operands are bf16, or f32 if the
// plan's math is tf32 or bf16x3.
template <bool kMoments = false, typename A, typename B, typename Output>
void launch_tensor_cores(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  if constexpr (A::kElements == kPackWidth<Bf16>) {
    launch_mma<kMoments>(context, p, part_count);
  } else {
    product_math(context) == ProductMath::kTf32 ? launch_mma_by<Tf32Tile, kMoments>(context, p, part_count)
                                                : launch_mma_by<Bf16x3Tile, kMoments>(context, p, part_count);
  }
}
// Launches a product of operands in chunks, on tensor cores or by the tile of f32. mma_tile() and
// chunk_tile() select the tile.
template <bool kMoments = false, typename A, typename B, typename Output>
void launch_chunk_product(const KernelContext& context, const TileProduct<A, B, Output>& p, uint32_t part_count = 1) {
  if constexpr (A::kElements == kPackWidth<float>) {
    if (product_math(context) == ProductMath::kF32) return launch_product<kMoments>(context, p, part_count);
  }
  launch_tensor_cores<kMoments>(context, p, part_count);
}

// Writes a copy of n weights in bf16 to `to`. n is a multiple of four.
static __global__ void __launch_bounds__(kBlockThreads) round_weights(Bf16* to, const Weight w, uint64_t n) {
  for (uint64_t i = grid_thread() * 4; i < n; i += grid_threads() * 4) store_pack(to + i, decode_weights<4>(w, i));
}
// Returns n weights as bf16, which tensor cores need. If they are not stored as bf16, launches a
// copy to `scratch`, once for each call. n is a multiple of four.
inline const Bf16* weights_as_bf16(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if (w.type == DType::kBf16) return static_cast<const Bf16*>(w.data);
  REPRISE_ASSERT(n % 4 == 0, "weights are rounded in whole packs of four");
  Bf16* rounded = static_cast<Bf16*>(scratch);
  REPRISE_LAUNCH(round_weights, blocks_for(parts(n, 4)), kBlockThreads, context.queue, rounded, w, n);
  return rounded;
}
// Returns n weights as `Stored`, for products that read them in chunks. If Stored is f32, the
// weights must be stored as f32.
template <typename Stored>
const Stored* chunk_weights(const KernelContext& context, const Weight& w, uint64_t n, void* scratch) {
  if constexpr (kStoredAs<Stored> == DType::kBf16) return weights_as_bf16(context, w, n, scratch);
  else return static_cast<const float*>(w.data);
}

}  // namespace reprise
