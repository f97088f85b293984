// The interface between the blocked GEMM and its micro-kernel: one register tile of C += A * B over
// packed panels. Implementations are interchangeable: tiles in generic C++, NEON and AVX, and
// BLIS's micro-kernels.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise {

// Maximum rows and columns of a tile, for which panels are planned. A small core plans for fewer
// (cpu_size.h). find_gemm_tile() refuses a larger tile.
constexpr uint32_t kMaxMr = 32;
constexpr uint32_t kMaxNr = 32;
// Maximum depths of a piece, and so of a packed panel, except on small cores. The number is fixed,
// because it decides where a sum over K is cut, and so the bits of the sum. A panel of twelve rows
// takes 18 KiB, more than half of the smallest L1; C is read and written once for each piece of
// this depth.
constexpr uint32_t kKc = 384;
// Floats past the end of a panel that a tile may read but never uses.
constexpr uint32_t kPanelSlack = 128;

#define REPRISE_BASELINE_TILE "portable-6x8"  // name of the kBaseline tile, also if a small core has no tile

// A range of depths of the tile's rows of A, for a tile that reads rows in place and needs no
// packed panel. Such a tile has at most kMaxRowTile rows.
constexpr uint32_t kMaxRowTile = 12;
struct RowRun {
  const float* rows[kMaxRowTile];  // one for each row of the tile, with `depths` readable floats each
  uint32_t depths;
  int64_t ahead;  // floats from an element to the same element of the next row panel, to prefetch it; 0: no prefetch
};

// A depth-major operand: element (line, depth) is data[depth * step + line]. A packed panel is
// depth-major.
struct DepthOperand {
  const float* data;
  int64_t step;
  int64_t ahead;  // floats from the depth being read to the later depth that is prefetched; 0: no prefetch
};

struct GemmTile {
  char name[32];  // part of the kernel set's name
  uint32_t mr, nr;
  bool prefers_columns;  // true: C must have row_stride 1; false: column_stride 1
  // Computes c[mr,nr] = beta * c + sum over k of a_panel[k][mr] * b_panel[k][nr]; beta 0 overwrites
  // c without reading it. Panels are aligned to 64 bytes and do not overlap c. Each element is
  // summed in the order of k. `tile` is this tile.
  void (*run)(const GemmTile& tile, uint64_t k, const float* a_panel, const float* b_panel, float beta, float* c,
              int64_t row_stride, int64_t column_stride);
  // Computes as run() does, for a C with contiguous rows. The depths of A are those of the runs, in
  // order. Null if the tile has no such function.
  void (*run_rows)(const RowRun* runs, uint32_t count, const float* b_panel, float beta, float* c, int64_t row_stride);

  // Computes as run() does, for a C with contiguous rows and for depth-major operands. Computes
  // only the first `rows` rows of the tile, a multiple of row_step, and accesses no element of
  // other rows. Null if the tile has no such function.
  void (*run_depths)(uint32_t rows, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                     int64_t row_stride);
  uint32_t row_step = 1;
  // Depths of the operands that one element of a panel or of A's rows contains: 2 if each element
  // is a pair of bf16 (bf16_pairs.h).
  uint32_t depths_of_one = 1;
  // Another library's kernel and its context, for the `run` that calls it.
  void* kernel = nullptr;
  void* kernel_context = nullptr;
  // Number of successive elements of a line that are contiguous in a panel: element k of line i is
  // panel[(k / group * width + i) * group + k % group]. The number of depths, and kKc, are
  // multiples of the group.
  uint32_t group_of_a = 1, group_of_b = 1;
  // Computes as run() does, for a C with contiguous rows. The lines of A are read in place,
  // `a_step` floats apart. Null if the tile has no such function.
  void (*run_lines)(uint64_t k, const float* a, int64_t a_step, const float* b_panel, float beta, float* c,
                    int64_t row_stride) = nullptr;
  // Functions that a worker calls before and after its calls of `run`, for a tile whose registers
  // must be set up; null for most tiles.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;

  // Returns the size of the tile for a C with contiguous rows: a tile that prefers columns computes
  // the transpose.
  uint32_t rows() const { return prefers_columns ? nr : mr; }
  uint32_t columns() const { return prefers_columns ? mr : nr; }
  uint32_t group() const { return group_of_a > group_of_b ? group_of_a : group_of_b; }
};

// Returns BLIS's micro-kernel for this processor. Its `run` is null if BLIS has only a generic
// kernel or one that exceeds the maxima. The function is weak: its address is null in a program
// linked without gemm_blis.o (and -lblis). Such a program uses one of this library's own tiles.
[[gnu::weak]] GemmTile blis_gemm_tile();

// Returns the tile for NEON; its `run` is null if the build is not for AArch64.
GemmTile neon_gemm_tile();

// kFastest: the first available tile that the core's file names (cpu_core.h). kWidest: the widest
// of this library's own tiles that the processor runs. kBaseline exists everywhere; the others may
// not.
enum class GemmTileChoice : uint8_t { kFastest, kWidest, kBaseline, kNeon, kAvx2, kAvx512, kBlis };

// Finds a tile. Returns kUnsupported if the processor or the link lacks it. Call it at set-up only:
// BLIS may allocate.
[[nodiscard]] Status find_gemm_tile(GemmTileChoice choice, GemmTile& tile);

}  // namespace reprise
