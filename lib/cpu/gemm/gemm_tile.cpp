// Register tiles in plain C++ vectors (any processor), AVX2 and AVX-512, and the choice among all
// tiles. With these a GEMM exists on every board, with or without BLIS.
#include <cstring>
#include <initializer_list>

#include "lib/cpu/cpu_core.h"
#include "lib/cpu/gemm/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise {
namespace {

// Each set of operations names its vector type; the tile's body is compiled once for each set.
struct BaselineVector {
  typedef float V __attribute__((vector_size(16)));
  static constexpr uint32_t kWidth = 4;
  [[gnu::always_inline]] static inline V broadcast(const float* p) { return V{*p, *p, *p, *p}; }
  [[gnu::always_inline]] static inline V load(const float* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  [[gnu::always_inline]] static inline void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
  [[gnu::always_inline]] static inline V multiply_add(V a, V b, V c) { return a * b + c; }
};

// Tiles of kRows x (kVectors * width) for a C with contiguous rows. The loops must unroll at any -O
// level, so that `sum` stays in registers. `beta` is 0 or 1 in practice, but any value works.
#define REPRISE_UNROLLED _Pragma("GCC unroll 16")
#define REPRISE_TILE_START(VectorSet, kRows, kVectors)                                                              \
  using Set = VectorSet;                                                                                            \
  constexpr uint32_t kColumns = (kVectors)*Set::kWidth;                                                             \
  Set::V sum[kRows][kVectors];                                                                                      \
  REPRISE_UNROLLED for (uint32_t i = 0; i < (kRows); ++i) {                                                         \
    REPRISE_UNROLLED for (uint32_t v = 0; v < (kVectors); ++v) sum[i][v] = Set::V{};                                \
  }
// Adds one depth: A's element of row i is at place_of_a.
#define REPRISE_TILE_DEPTH(kRows, kVectors, place_of_a)                                                             \
  {                                                                                                                 \
    Set::V b[kVectors];                                                                                             \
    REPRISE_UNROLLED for (uint32_t v = 0; v < (kVectors); ++v) b[v] = Set::load(b_panel + v * Set::kWidth);         \
    REPRISE_UNROLLED for (uint32_t i = 0; i < (kRows); ++i) {                                                       \
      const Set::V x = Set::broadcast(place_of_a);                                                                  \
      REPRISE_UNROLLED for (uint32_t v = 0; v < (kVectors); ++v) sum[i][v] = Set::multiply_add(x, b[v], sum[i][v]); \
    }                                                                                                               \
  }
#define REPRISE_TILE_END(kRows, kVectors)                                                                           \
  const Set::V scale = Set::broadcast(&beta);                                                                       \
  REPRISE_UNROLLED for (uint32_t i = 0; i < (kRows); ++i, c += row_stride) {                                        \
    REPRISE_UNROLLED for (uint32_t v = 0; v < (kVectors); ++v) {                                                    \
      float* place = c + v * Set::kWidth;                                                                           \
      Set::store(place, beta == 0.0f ? sum[i][v] : Set::multiply_add(scale, Set::load(place), sum[i][v]));          \
    }                                                                                                               \
  }
#define REPRISE_TILE_BODY(VectorSet, kRows, kVectors)                                                               \
  REPRISE_TILE_START(VectorSet, kRows, kVectors)                                                                    \
  for (uint64_t p = 0; p < k; ++p, a += (kRows), b_panel += kColumns) {                                             \
    __builtin_prefetch(a + kDepthsAhead * (kRows), 0, 2);                                                           \
    REPRISE_TILE_DEPTH(kRows, kVectors, a + i)                                                                      \
  }                                                                                                                 \
  REPRISE_TILE_END(kRows, kVectors)
// Computes a tile of two depth-major operands. Only a few calls prefetch B (b.ahead is not 0). They
// have a loop of their own, so that the loop of all other calls has no instructions to prefetch B.
#define REPRISE_DEPTH_TILE_BODY(VectorSet, kRows, kVectors)                                                         \
  REPRISE_TILE_START(VectorSet, kRows, kVectors)                                                                    \
  const float *place = a.data, *b_panel = b.data;                                                                   \
  if (b.ahead != 0) {                                                                                               \
    for (uint64_t p = 0; p < k; ++p, place += a.step, b_panel += b.step) {                                          \
      __builtin_prefetch(place + a.ahead, 0, 2);                                                                    \
      for (uint32_t j = 0; j < kColumns; j += kLineFloats) __builtin_prefetch(b_panel + b.ahead + j, 0, 2);         \
      REPRISE_TILE_DEPTH(kRows, kVectors, place + i)                                                                \
    }                                                                                                               \
  } else {                                                                                                          \
    for (uint64_t p = 0; p < k; ++p, place += a.step, b_panel += b.step) {                                          \
      __builtin_prefetch(place + a.ahead, 0, 2);                                                                    \
      REPRISE_TILE_DEPTH(kRows, kVectors, place + i)                                                                \
    }                                                                                                               \
  }                                                                                                                 \
  REPRISE_TILE_END(kRows, kVectors)
// While the tile uses one cache line of each row, it prefetches the corresponding cache line of the
// next row panel (RowRun::ahead).
#define REPRISE_ROW_TILE_BODY(VectorSet, kRows, kVectors)                                                           \
  REPRISE_TILE_START(VectorSet, kRows, kVectors)                                                                    \
  for (const RowRun* end = runs + count; runs != end; ++runs) {                                                     \
    const float* row[kRows];                                                                                        \
    REPRISE_UNROLLED for (uint32_t i = 0; i < (kRows); ++i) row[i] = runs->rows[i];                                 \
    for (uint32_t p = 0; p < runs->depths;) {                                                                       \
      if (runs->ahead != 0) {                                                                                       \
        REPRISE_UNROLLED for (uint32_t i = 0; i < (kRows); ++i) __builtin_prefetch(row[i] + p + runs->ahead, 0, 2); \
      }                                                                                                             \
      const uint32_t line = runs->depths - p < kLineFloats ? runs->depths : p + kLineFloats;                        \
      for (; p < line; ++p, b_panel += kColumns) REPRISE_TILE_DEPTH(kRows, kVectors, row[i] + p)                    \
    }                                                                                                               \
  }                                                                                                                 \
  REPRISE_TILE_END(kRows, kVectors)

constexpr uint32_t kLineFloats = 16;  // floats of a cache line
constexpr int64_t kDepthsAhead = 16;

// Calls the function that computes `rows` rows. A tile has one function for all its rows, one for
// two thirds of them and one for a third.
using RunDepths = void(uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                       int64_t row_stride);
template <uint32_t kRows, RunDepths kWhole, RunDepths kTwoThirds, RunDepths kThird>
void run_depths(uint32_t rows, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                int64_t row_stride) {
  RunDepths* const run = rows == kRows ? kWhole : rows == kRows / 3 * 2 ? kTwoThirds : kThird;
  run(k, a, b, beta, c, row_stride);
}

void run_baseline(const GemmTile&, uint64_t k, const float* a, const float* b_panel, float beta, float* c,
                  int64_t row_stride, int64_t) {
  REPRISE_TILE_BODY(BaselineVector, 6, 2)
}
template <uint32_t kRows>
void run_baseline_of(uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                     int64_t row_stride) {
  REPRISE_DEPTH_TILE_BODY(BaselineVector, kRows, 2)
}
void run_baseline_rows(const RowRun* runs, uint32_t count, const float* b_panel, float beta, float* c,
                       int64_t row_stride) {
  REPRISE_ROW_TILE_BODY(BaselineVector, 6, 2)
}
constexpr GemmTile kBaselineTile = {REPRISE_BASELINE_TILE,
                                    6,
                                    8,
                                    false,
                                    run_baseline,
                                    run_baseline_rows,
                                    run_depths<6, run_baseline_of<6>, run_baseline_of<4>, run_baseline_of<2>>,
                                    2};

#if defined(__x86_64__)
struct Avx2Vector {
  using V = __m256;
  static constexpr uint32_t kWidth = 8;
  [[gnu::always_inline, gnu::target("avx2,fma")]] static inline V broadcast(const float* p) {
    return _mm256_set1_ps(*p);
  }
  [[gnu::always_inline, gnu::target("avx2,fma")]] static inline V load(const float* p) { return _mm256_loadu_ps(p); }
  [[gnu::always_inline, gnu::target("avx2,fma")]] static inline void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  [[gnu::always_inline, gnu::target("avx2,fma")]] static inline V multiply_add(V a, V b, V c) {
    return _mm256_fmadd_ps(a, b, c);
  }
};
[[gnu::target("avx2,fma")]] void run_avx2(const GemmTile&, uint64_t k, const float* a, const float* b_panel, float beta,
                                          float* c, int64_t row_stride, int64_t) {
  REPRISE_TILE_BODY(Avx2Vector, 6, 2)
}
template <uint32_t kRows>
[[gnu::target("avx2,fma")]] void run_avx2_of(uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta,
                                             float* c, int64_t row_stride) {
  REPRISE_DEPTH_TILE_BODY(Avx2Vector, kRows, 2)
}
[[gnu::target("avx2,fma")]] void run_avx2_rows(const RowRun* runs, uint32_t count, const float* b_panel, float beta,
                                               float* c, int64_t row_stride) {
  REPRISE_ROW_TILE_BODY(Avx2Vector, 6, 2)
}
constexpr GemmTile kAvx2Tile = {"avx2-6x16",
                                6,
                                16,
                                false,
                                run_avx2,
                                run_avx2_rows,
                                run_depths<6, run_avx2_of<6>, run_avx2_of<4>, run_avx2_of<2>>,
                                2};

struct Avx512Vector {
  using V = __m512;
  static constexpr uint32_t kWidth = 16;
  [[gnu::always_inline, gnu::target("avx512f")]] static inline V broadcast(const float* p) {
    return _mm512_set1_ps(*p);
  }
  [[gnu::always_inline, gnu::target("avx512f")]] static inline V load(const float* p) { return _mm512_loadu_ps(p); }
  [[gnu::always_inline, gnu::target("avx512f")]] static inline void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  [[gnu::always_inline, gnu::target("avx512f")]] static inline V multiply_add(V a, V b, V c) {
    return _mm512_fmadd_ps(a, b, c);
  }
};
[[gnu::target("avx512f")]] void run_avx512(const GemmTile&, uint64_t k, const float* a, const float* b_panel,
                                           float beta, float* c, int64_t row_stride, int64_t) {
  REPRISE_TILE_BODY(Avx512Vector, 12, 2)
}
template <uint32_t kRows>
[[gnu::target("avx512f")]] void run_avx512_of(uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta,
                                              float* c, int64_t row_stride) {
  REPRISE_DEPTH_TILE_BODY(Avx512Vector, kRows, 2)
}
[[gnu::target("avx512f")]] void run_avx512_rows(const RowRun* runs, uint32_t count, const float* b_panel, float beta,
                                                float* c, int64_t row_stride) {
  REPRISE_ROW_TILE_BODY(Avx512Vector, 12, 2)
}
constexpr GemmTile kAvx512Tile = {"avx512-12x32",
                                  12,
                                  32,
                                  false,
                                  run_avx512,
                                  run_avx512_rows,
                                  run_depths<12, run_avx512_of<12>, run_avx512_of<8>, run_avx512_of<4>>,
                                  4};
#endif
#undef REPRISE_ROW_TILE_BODY
#undef REPRISE_DEPTH_TILE_BODY
#undef REPRISE_TILE_BODY
#undef REPRISE_TILE_END
#undef REPRISE_TILE_DEPTH
#undef REPRISE_TILE_START
#undef REPRISE_UNROLLED

// Returns one of this library's tiles. Here and below, `run` is null if this build or this
// processor lacks the tile.
GemmTile own_tile(GemmTileChoice choice) {
  if (choice == GemmTileChoice::kBaseline) return kBaselineTile;
  if (choice == GemmTileChoice::kNeon) return neon_gemm_tile();
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (choice == GemmTileChoice::kAvx2 && avx2) return kAvx2Tile;
  if (choice == GemmTileChoice::kAvx512 && __builtin_cpu_supports("avx512f")) return kAvx512Tile;
#endif
  return {};
}

GemmTile widest_own_tile() {
  for (const GemmTileChoice choice : {GemmTileChoice::kAvx512, GemmTileChoice::kAvx2, GemmTileChoice::kNeon}) {
    if (const GemmTile tile = own_tile(choice); tile.run != nullptr) return tile;
  }
  return kBaselineTile;
}

GemmTile blis_tile() { return &blis_gemm_tile != nullptr ? blis_gemm_tile() : GemmTile{}; }

GemmTile find_tile(GemmTileChoice choice) {
  switch (choice) {
    case GemmTileChoice::kFastest: {
      for (const GemmTileChoice each : core_here().tiles) {
        if (const GemmTile tile = find_tile(each); tile.run != nullptr) return tile;
      }
      return kBaselineTile;
    }
    case GemmTileChoice::kWidest: return widest_own_tile();
    case GemmTileChoice::kBlis: return blis_tile();
    default: return own_tile(choice);
  }
}

}  // namespace

Status find_gemm_tile(GemmTileChoice choice, GemmTile& tile) {
  tile = find_tile(choice);
  if (tile.run == nullptr)
    return {Code::kUnsupported, "this processor, or this program's link, lacks the GEMM tile asked for", 0};
  if (tile.mr > kMaxMr || tile.nr > kMaxNr)
    return {Code::kUnsupported, "a GEMM tile must fit in kMaxMr x kMaxNr", tile.mr};
  // BLIS's tile reads only packed panels. A tile of this library of the same size provides the
  // forms for an A that is read in place.
  for (const GemmTileChoice each :
       {GemmTileChoice::kAvx512, GemmTileChoice::kAvx2, GemmTileChoice::kNeon, GemmTileChoice::kBaseline}) {
    const GemmTile own = own_tile(each);
    const bool same_size = own.rows() == tile.rows() && own.columns() == tile.columns();
    if (tile.run_rows != nullptr || !same_size) continue;
    tile.run_rows = own.run_rows;
    tile.run_depths = own.run_depths;
    tile.row_step = own.row_step;
  }
  return ok_status();
}

}  // namespace reprise
