// The seam between the blocked GEMM and its micro-kernel: one register tile of C += A * B over packed panels.
// Here so that a portable tile, NEON and AVX tiles and BLIS's micro-kernels can stand in for each other.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise {

// Panels are planned at these maxima, those of a small core at less (cpu_size.h); find_gemm_tile() refuses a larger tile.
constexpr uint32_t kMaxMr = 32;
constexpr uint32_t kMaxNr = 32;
// Depth of a packed panel, on all but small cores: fixed, because it decides where a sum over K is cut, and so its bits. A panel of twelve
// rows takes 18 KiB, more than half of the smallest first-level cache; C is read and written once for each piece of this depth.
constexpr uint32_t kKc = 384;
// A tile may read (never use) this many floats past the end of a panel.
constexpr uint32_t kPanelSlack = 128;

#define REPRISE_BASELINE_TILE "portable-6x8"  // its name, for a kernel set that is named without its tile

// Part of the rows of A as they lie in memory, for a tile that needs no packed panel of them.
constexpr uint32_t kMaxRowTile = 12;
struct RowRun {
  const float* rows[kMaxRowTile];  // as many as the tile has, `depths` readable floats each
  uint32_t depths;
  int64_t ahead;  // floats from here to what the next rows of C will read, to be fetched meanwhile; 0 for nothing
};

// An operand by depths: element (line, depth) at data[depth * step + line], its lines side by side. A packed panel is one.
struct DepthOperand {
  const float* data;
  int64_t step;
  int64_t ahead;  // floats from a depth here to one that will be read next, to be fetched meanwhile; 0 for nothing
};

struct GemmTile {
  char name[32];  // part of the kernel set's id
  uint32_t mr, nr;
  bool prefers_columns;  // C must have row_stride 1, else column_stride 1
  // c[mr,nr] = beta * c + sum over k of a_panel[k][mr] * b_panel[k][nr]; beta 0 overwrites whatever c held. Panels are
  // aligned to 64 bytes and do not overlap c. Each element is summed in the order of k.
  // `tile` is this one.
  void (*run)(const GemmTile& tile, uint64_t k, const float* a_panel, const float* b_panel, float beta, float* c, int64_t row_stride,
              int64_t column_stride);
  // The same for C with contiguous rows, A's depths being those of the runs, one after another. Null where the tile has none.
  void (*run_rows)(const RowRun* runs, uint32_t count, const float* b_panel, float beta, float* c, int64_t row_stride);

  // The same for C with contiguous rows and operands by depths. Of the tile's rows it takes `rows`, a multiple of row_step: no element of others
  // is read or written. Null where the tile has none.
  void (*run_depths)(uint32_t rows, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c, int64_t row_stride);
  uint32_t row_step = 1;
  // Depths of the operands that one depth of a panel holds: 2 where each of its elements is a pair of bf16 (bf16_pairs.h), then of A's rows too.
  uint32_t depths_of_one = 1;
  // Another library's kernel and what it wants beside its operands, for the `run` that calls it.
  void* kernel = nullptr;
  void* kernel_context = nullptr;
  // Elements of a line that stand side by side in a panel: element k of line i is panel[(k / group * width + i) * group + k % group]. Depths
  // then come in whole groups, which divide kKc.
  uint32_t group_of_a = 1, group_of_b = 1;
  // `run` for C with contiguous rows and an A whose lines lie in memory, `a_step` floats from one to the next. Null where the tile has none.
  void (*run_lines)(uint64_t k, const float* a, int64_t a_step, const float* b_panel, float beta, float* c, int64_t row_stride) = nullptr;
  // Before and after a worker's `run`s, for a tile whose registers must be set up; null for most.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;

  // Of C with contiguous rows: a tile that prefers columns computes the transpose.
  uint32_t rows() const { return prefers_columns ? nr : mr; }
  uint32_t columns() const { return prefers_columns ? mr : nr; }
  uint32_t group() const { return group_of_a > group_of_b ? group_of_a : group_of_b; }
};

// BLIS's micro-kernel for this processor; one without `run` where BLIS has only its generic one or one that breaks the maxima.
// Weak: a product that leaves gemm_blis.o (and -lblis) out of its link gets a null address here, and one of this
// library's own tiles is taken.
[[gnu::weak]] GemmTile blis_gemm_tile();

// The tile for NEON; one without `run` where this is no AArch64.
GemmTile neon_gemm_tile();

// kFastest: what the micro-architecture's file names first (cpu_core.h). kPortable: the widest of this library's own that the processor runs.
// kBaseline exists everywhere; the others may not.
enum class GemmTileChoice : uint8_t { kFastest, kPortable, kBaseline, kNeon, kAvx2, kAvx512, kBlis };

// kUnsupported where the processor or the link lacks the tile. BLIS may take heap: this belongs to set-up.
[[nodiscard]] Status find_gemm_tile(GemmTileChoice choice, GemmTile& tile);

}  // namespace reprise
