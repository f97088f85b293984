// A blocked matrix product C[M,N] (+)= A[M,K] B[K,N] whose operands are provided by two packing
// callables. Linear layers, convolutions and the loss head share this loop nest (Goto & van de
// Geijn 2008). Its bits follow from shape and tile, not from the number of workers.
//
//   for k, a few pieces of fixed depth at a time    outermost: keeps A's piece in a cache
//     for columns j of C, nc at a time              B's block [pieces x kc x nc], packed in scratch
//       for rows i of C, a tile at a time
//         for pieces of k                           A's panel [kc x rows], in place or packed
//           for tiles along j: a tile of gemm_tile.h
//
// The machine chooses nc, and whether a panel is packed that could be read in place
// (cpu_blocking.h); neither changes a bit. Operands stored as bf16, or normalised, become f32 while
// they are packed. Rows of such an A are packed, or at least copied as f32 to the worker's stack. A
// C stored as bf16 is rounded once: all of K is one group of pieces, and a strip of f32 on the
// stack keeps the sums.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "lib/assert.h"
#include "lib/bf16.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {

// Part of a panel: lines [first, first + count) of the operand (rows of A, columns of B), depths
// [k0, k0 + kc). A packer writes panel[k * width + i] for all i < width. This is the element of
// line first + i at depth k0 + k, or zero if i >= count. The packer uses the loops of vector level
// `level`.
//
// If lines can be read in place, the packer also has find_runs(). This function writes the runs of
// which the panel consists, and returns their number: at most max_runs(kc), or 0 if the panel must
// be packed. If the panel can be read depth-major, the packer has find_depths(), which returns a
// null `data` if the panel must be packed.
struct PanelRange {
  VectorLevel level;
  uint32_t width, count;
  uint64_t first, k0;
  uint32_t kc;
  uint32_t stride = 0;  // floats from one line to the next in the buffer of widen_lines(); unused by other functions
  // Prefetch distances of the machine (cpu_blocking.h).
  uint32_t floats_ahead = CpuBlocking{}.floats_ahead;
  uint32_t rows_ahead = CpuBlocking{}.rows_ahead;
};

// True if lines with this stride fall into the same set of the L1 cache and evict each other; such
// lines are packed.
constexpr bool lines_collide(int64_t stride) { return stride % 1024 == 0; }

// Copies a short run, for which a call of memcpy would take longer than the copy.
inline void copy_run(float* to, const float* from, uint32_t count) {
  for (; count >= 16; count -= 16, to += 16, from += 16) std::memcpy(to, from, 16 * sizeof(float));
  for (; count >= 4; count -= 4, to += 4, from += 4) std::memcpy(to, from, 4 * sizeof(float));
  for (; count > 0; --count) *to++ = *from++;
}

inline void copy_run(float* to, const Bf16* from, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = from[i];
}
inline void copy_run(Bf16* to, const Bf16* from, uint32_t count) { std::memcpy(to, from, count * sizeof *to); }
// Writes to[i] = from[i] + bias[i], rounded; adds to[i] before rounding if `accumulate`. `bias` may
// be null.
void narrow(VectorLevel level, Bf16* to, const float* from, uint64_t count, const float* bias, bool accumulate);
void widen(VectorLevel level, float* to, const Bf16* from, uint64_t count);

// Writes panel[k * width + i] = lines[i][k]. `lines` has `width` entries, each with kc readable
// floats, or pairs of bf16. Prefetches each line `floats_ahead` elements ahead.
void pack_lines(VectorLevel level, float* panel, uint32_t width, const float* const* lines, uint32_t kc,
                uint32_t floats_ahead);
// Writes panel[k * width + i] = first[k * stride + i] for i < count, and zeros for other i < width.
template <typename Stored>
void pack_depths(VectorLevel level, float* panel, uint32_t width, uint32_t count, const Stored* first, int64_t stride,
                 uint32_t kc);
// kKc zeros, for a line that does not exist.
extern const float kZeroLine[kKc];

// An operand in memory: element (line, depth) is data[line * line_stride + depth * depth_stride];
// one of the strides is 1.
template <typename Stored>
struct MatrixPackerOf;
template <>
struct MatrixPackerOf<float> {
  const float* data;
  int64_t line_stride, depth_stride;

  void operator()(float* panel, const PanelRange& range) const;
  uint32_t find_runs(RowRun* runs, const PanelRange& range) const;
  DepthOperand find_depths(const PanelRange& range) const;
};
template <>
struct MatrixPackerOf<Bf16> {
  const Bf16* data;
  int64_t line_stride, depth_stride;

  void operator()(float* panel, const PanelRange& range) const;
  // Writes line i of the range, as f32, to lines + i * range.stride. Returns false, and writes
  // nothing, if the operand's lines are not contiguous.
  bool widen_lines(float* lines, const PanelRange& range) const;
};
using MatrixPacker = MatrixPackerOf<float>;

// Weights in any format; they are decoded while they are packed.
struct WeightPacker {
  Weight w;
  int64_t line_stride, depth_stride;

  void operator()(float* panel, const PanelRange& range) const;
  // Returns the index of the range's first element in the matrix.
  uint64_t start(const PanelRange& range) const {
    return range.first * static_cast<uint64_t>(line_stride) + range.k0 * static_cast<uint64_t>(depth_stride);
  }
};

// Weights that are multiplied by `factor` while they are packed.
struct ScaledWeights {
  WeightPacker weights;
  float factor;

  void operator()(float* panel, const PanelRange& range) const;
};

// Two operands with the same lines, joined along the depth: depths below `depth` are those of
// `first`, and the others those of `second`.
template <typename First, typename Second>
struct JoinedPacker {
  First first;
  Second second;
  uint64_t depth;

  JoinedPacker(const First& a, const Second& b, uint64_t depth_of_first) : first(a), second(b), depth(depth_of_first) {}

  void operator()(float* panel, const PanelRange& range) const {
    const PanelRange near = of_first(range), far = of_second(range);
    if (near.kc > 0) first(panel, near);
    if (far.kc > 0) second(panel + uint64_t{near.kc} * range.width, far);
  }
  uint32_t find_runs(RowRun* runs, const PanelRange& range) const
    requires requires { first.find_runs(runs, range); second.find_runs(runs, range); }
  {
    const PanelRange near = of_first(range), far = of_second(range);
    uint32_t count = 0;
    for (const bool is_first : {true, false}) {
      if ((is_first ? near : far).kc == 0) continue;
      const uint32_t found = is_first ? first.find_runs(runs, near) : second.find_runs(runs + count, far);
      if (found == 0) return 0;
      count += found;
    }
    return count;
  }
  bool widen_lines(float* lines, const PanelRange& range) const
    requires requires { first.widen_lines(lines, range); second.widen_lines(lines, range); }
  {
    const PanelRange near = of_first(range), far = of_second(range);
    return (near.kc == 0 || first.widen_lines(lines, near)) &&
           (far.kc == 0 || second.widen_lines(lines + near.kc, far));
  }

 private:
  PanelRange of_first(PanelRange range) const {
    range.kc = static_cast<uint32_t>(range.k0 >= depth ? 0 : smaller(range.kc, depth - range.k0));
    return range;
  }
  PanelRange of_second(PanelRange range) const {
    const uint64_t end = range.k0 + range.kc, from = larger(range.k0, depth);
    range.kc = static_cast<uint32_t>(end > from ? end - from : 0);
    range.k0 = from - depth;
    return range;
  }
};

// Packs a panel with the packer's widen_lines(): widens the lines on the stack, then transposes
// them.
template <typename Pack>
void pack_widened(float* panel, PanelRange range, const Pack& pack) {
  range.stride = widened_stride(range.kc);
  REPRISE_STACK_BUFFER(float, widened, range.width * range.stride);
  pack.widen_lines(widened, range);
  const float* lines[kMaxMr];
  for (uint32_t i = 0; i < range.width; ++i) lines[i] = i < range.count ? widened + i * range.stride : kZeroLine;
  pack_lines(range.level, panel, range.width, lines, range.kc, range.floats_ahead);
}

// C in memory: row i is at data + i * row_stride. An output whose rows have no fixed distance sets
// kUniformRows = false and needs only row(). Such an output may have find_rows(rows, i, count),
// which finds several rows faster than row() does. Any output may have written(begin, end,
// columns), which is called when `columns` columns of rows [begin, end) are final.
template <typename Stored>
struct MatrixOutputOf {
  static constexpr bool kUniformRows = true;
  Stored* data;
  int64_t row_stride;

  Stored* row(uint64_t i) const { return data + static_cast<int64_t>(i) * row_stride; }
};
using MatrixOutput = MatrixOutputOf<float>;

// A C whose rows are initialised with a bias [N]; `bias` is null if there is none. It is only for
// products that overwrite C.
template <typename Stored>
struct BiasedOutputOf : MatrixOutputOf<Stored> {
  const float* bias;
};

struct GemmShape {
  uint64_t M, N, K;
};

namespace gemm_detail {

struct TileGeometry {
  const GemmTile& tile;
  VectorLevel level;
  const CpuBlocking& blocking;
  const CpuBlocks& blocks;
  uint32_t rows, columns;  // size of the tile in C

  // Uses the machine's tile if `t` is null.
  explicit TileGeometry(const KernelContext& context, const GemmTile* t = nullptr)
      : tile(t != nullptr ? *t : cpu_machine(context).tile),
        level(cpu_machine(context).level),
        blocking(cpu_machine(context).blocking),
        blocks(blocks_of(cpu_machine(context).size)),
        rows(tile.rows()),
        columns(tile.columns()) {
    REPRISE_ASSERT(tile.run != nullptr,
                   "a product needs the machine's tile, which choose_plan_machine() leaves out for plans without one");
  }

  void assert_depth([[maybe_unused]] uint64_t K) const {
    REPRISE_ASSERT(K > 0 && K % tile.group() == 0, "a product's depth is a multiple of its tile's group, and not 0");
  }

  PanelRange range(uint32_t width, uint32_t count, uint64_t first, uint64_t k0, uint32_t kc) const {
    return {level, width, count, first, k0, kc, 0, blocking.floats_ahead, blocking.rows_ahead};
  }

  // Runs the tile for a C with contiguous rows. A tile that prefers columns computes the transpose,
  // so its operands are exchanged.
  void run(uint64_t k, const float* a, const float* b, float beta, float* c, int64_t row_stride) const {
    if (tile.prefers_columns) {
      tile.run(tile, k, b, a, beta, c, 1, row_stride);
    } else {
      tile.run(tile, k, a, b, beta, c, row_stride, 1);
    }
  }
};

// A C to which each tile is added after it has been computed completely in a buffer. With a plain
// MatrixOutput, a tile for pairs of bf16 may start its sums with the old C.
struct AddedOutput : MatrixOutput {
  static constexpr bool kUniformRows = false;
};

// Calls the tile's enter() and leave() around a worker's calls of the tile.
class TileScope {
 public:
  explicit TileScope(const GemmTile& tile) : tile_(tile) {
    if (tile_.enter != nullptr) tile_.enter();
  }
  ~TileScope() {
    if (tile_.leave != nullptr) tile_.leave();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const GemmTile& tile_;
};

// One piece of a packed block: columns [j0, j0 + nc), depths [k0, k0 + kc).
struct Block {
  uint64_t j0, k0;
  uint32_t nc, kc;
  bool add;
  float* packed;
  float* edge = nullptr;  // the worker's buffer for a tile that does not fit into C
};

template <typename Output>
inline constexpr bool kIsNarrow = std::is_same_v<decltype(std::declval<const Output&>().row(0)), Bf16*>;

// Position of a tile in C: rows [i0, i0 + rows), columns [j0, j0 + columns). `edge` is a buffer for
// a complete tile, used if the tile cannot be written directly to C.
struct TilePlace {
  uint64_t i0, j0;
  uint32_t rows, columns;
  float* edge;
};

// Returns the bias of columns j0 and up, which initialises each row of C; null if there is none.
template <typename Output>
const float* find_bias(const Output& output, uint64_t j0) {
  if constexpr (requires { output.bias; }) return output.bias == nullptr ? nullptr : output.bias + j0;
  return nullptr;
}

// Writes the bias to a tile of C and returns true; returns false if there is no bias. The tile's
// product is added directly after this, while the tile is in a cache.
template <typename Output>
bool put_bias(const Output& output, const TilePlace& place) {
  const float* bias = find_bias(output, place.j0);
  if (bias == nullptr) return false;
  for (uint32_t i = 0; i < place.rows; ++i) copy_run(output.row(place.i0 + i) + place.j0, bias, place.columns);
  return true;
}

// Prefetches a part of a row of C for writing while its tile is computed.
inline void fetch_output(const float* c, uint32_t columns) {
  for (uint32_t j = 0; j < columns; j += 16) __builtin_prefetch(c + j, 1, 3);
}

// Calls compute(beta, c, row_stride), which writes `computed_rows` complete rows of a tile. The
// rows are written to C if C contains the complete tile and has uniform rows. Otherwise they are
// written to `edge`, and the elements that belong to C are then copied or added to C.
template <typename Output, typename Compute>
void put_tile(const TileGeometry& g, uint32_t computed_rows, bool accumulate, const Output& output,
              const TilePlace& place, const Compute& compute) {
  const bool add = accumulate || put_bias(output, place);
  // Local copies: g++ would compare the two adjacent members with one 64-bit load. This load would
  // wait until the stores to both members, and to C, have left the store buffer.
  const uint32_t rows = place.rows, columns = place.columns;
  if constexpr (Output::kUniformRows) {
    if (rows == computed_rows && columns == g.columns) {
      for (uint32_t i = 0; i < rows; ++i) fetch_output(output.row(place.i0 + i) + place.j0, columns);
      compute(add ? 1.0f : 0.0f, output.row(place.i0) + place.j0, output.row_stride);
      return;
    }
  }
  float* c[kMaxMr];
  if constexpr (requires { output.find_rows(c, place.i0, rows); }) {
    output.find_rows(c, place.i0, rows);
  } else {
    for (uint32_t i = 0; i < rows; ++i) c[i] = output.row(place.i0 + i);
  }
  for (uint32_t i = 0; i < rows; ++i) {
    c[i] += place.j0;
    fetch_output(c[i], columns);
  }
  compute(0.0f, place.edge, g.columns);
  for (uint32_t i = 0; i < rows; ++i) {
    const float* t = place.edge + i * g.columns;
    if (add) {
      for (uint32_t j = 0; j < columns; ++j) c[i][j] += t[j];
    } else {
      copy_run(c[i], t, columns);
    }
  }
}

// Calls use(place, b) for each tile of a row panel in the block's columns [j, j_end). `b` is the
// tile's packed panel of B.
template <typename Use>
void for_each_tile(const TileGeometry& g, const Block& block, uint64_t i0, uint32_t rows, uint64_t j, uint64_t j_end,
                   const Use& use) {
  for (uint64_t at = j; at < j_end; at += g.columns) {
    const uint32_t columns = static_cast<uint32_t>(smaller(g.columns, j_end - at));
    use(TilePlace{i0, block.j0 + at, rows, columns, block.edge}, block.packed + at * block.kc);
  }
}

// Computes a row panel whose rows are read in place; returns false if they must be packed.
template <typename PackA, typename Output>
bool run_rows(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output,
              const PanelRange& range, uint64_t j, uint64_t j_end) {
  if constexpr (requires(RowRun* runs) { pack_a.find_runs(runs, range); }) {
    if (g.tile.run_rows == nullptr) return false;
    REPRISE_STACK_BUFFER(RowRun, runs, max_runs(range.kc));
    const uint32_t count = pack_a.find_runs(runs, range);
    if (count == 0) return false;
    for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
      put_tile(g, g.rows, block.add, output, place,
               [&](float beta, float* c, int64_t stride) { g.tile.run_rows(runs, count, b, beta, c, stride); });
      for (uint32_t r = 0; r < count; ++r) runs[r].ahead = 0;  // the next row panel is already prefetched
    });
    return true;
  }
  return false;
}

// Computes a row panel whose rows are read after they are widened or normalised to f32; returns
// false if they must be packed.
template <typename PackA, typename Output>
bool run_widened(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output, PanelRange range,
                 uint64_t j, uint64_t j_end) {
  if constexpr (requires(float* lines) { pack_a.widen_lines(lines, range); }) {
    if (g.tile.run_rows == nullptr) return false;
    range.stride = widened_stride(range.kc);
    REPRISE_STACK_BUFFER(float, lines, range.width * range.stride);
    if (!pack_a.widen_lines(lines, range)) return false;
    RowRun run;
    run.depths = range.kc;
    run.ahead = 0;
    for (uint32_t i = 0; i < range.width; ++i) run.rows[i] = i < range.count ? lines + i * range.stride : kZeroLine;
    for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
      put_tile(g, g.rows, block.add, output, place,
               [&](float beta, float* c, int64_t stride) { g.tile.run_rows(&run, 1, b, beta, c, stride); });
    });
    return true;
  }
  return false;
}

// Computes a row panel that is read in place, depth-major; returns false if it must be packed.
template <typename PackA, typename Output>
bool run_depths(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output,
                const PanelRange& range, uint64_t j, uint64_t j_end) {
  if constexpr (requires { pack_a.find_depths(range); }) {
    if (g.tile.run_depths == nullptr || range.count % g.tile.row_step != 0) return false;
    DepthOperand a = pack_a.find_depths(range);
    if (a.data == nullptr) return false;
    for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
      put_tile(g, range.count, block.add, output, place, [&](float beta, float* c, int64_t stride) {
        g.tile.run_depths(range.count, block.kc, a, {b, g.columns, 0}, beta, c, stride);
      });
      a.ahead = 0;  // already prefetched by the first tile
    });
    return true;
  }
  return false;
}

// Computes one row panel of C for the block's columns [j, j_end). Reads A in place if possible,
// else packs it into `a`.
template <typename PackA, typename Output>
void run_panel(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output,
               const PanelRange& range, uint64_t j, uint64_t j_end, float* a) {
  if (run_widened(g, block, pack_a, output, range, j, j_end)) return;
  if (j_end - j < g.blocking.pack_from && run_rows(g, block, pack_a, output, range, j, j_end)) return;
  if (j_end - j < g.blocking.pack_depths_from && run_depths(g, block, pack_a, output, range, j, j_end)) return;
  pack_a(a, range);
  for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
    put_tile(g, g.rows, block.add, output, place,
             [&](float beta, float* c, int64_t stride) { g.run(block.kc, a, b, beta, c, stride); });
  });
}

constexpr uint32_t kAddedRows = 8;   // rows of sums that a worker adds to C at a time
constexpr uint32_t kFewPanels = 16;  // with fewer row panels the columns of a block are split, too

// Splits the tiles of C[M,N] by row panels, and by columns if there are few panels. Calls
// use(panels begin, end, columns begin, end) on any worker.
template <typename Use>
void for_each_tile_task(const Workers& workers, const TileGeometry& g, uint64_t M, uint64_t N, const Use& use) {
  const Partition panels = split_at_most(divide_up(M, g.rows), g.blocking.product_tasks, 1);
  const uint64_t shares = panels.count() >= kFewPanels ? 1 : divide_up(kFewPanels, panels.count());
  const Partition columns = split_at_most(divide_up(N, g.columns), shares, 1);
  parallel_for(workers, panels.count() * columns.count(), [&](uint32_t task) {
    const uint32_t p = task / columns.count(), c = task % columns.count();
    use(panels.begin(p), panels.end(p), columns.begin(c) * g.columns, smaller(N, columns.end(c) * g.columns));
  });
}

// The pieces of one block of B, packed one after another: pieces [first, first + count) of
// `depths`.
struct Pieces {
  const Partition& depths;
  uint32_t first, count;
  uint64_t j0;
  uint32_t nc;
  uint64_t padded;  // nc rounded up to whole tiles
  bool add;         // true if the first piece is added to C; all later pieces are added
  float* packed;

  Block operator[](uint32_t n) const {
    const uint64_t k0 = depths.begin(first + n), skipped = k0 - depths.begin(first);
    return {j0, k0, nc, static_cast<uint32_t>(depths.end(first + n) - k0), add || n > 0, packed + padded * skipped};
  }
};

template <typename PackB>
void pack_pieces(const Workers& workers, const TileGeometry& g, const Pieces& pieces, const PackB& pack_b) {
  const uint32_t panels = static_cast<uint32_t>(divide_up(pieces.nc, g.columns));
  parallel_for(workers, panels * pieces.count, [&](uint32_t task) {
    const Block block = pieces[task / panels];
    const uint32_t first = task % panels * g.columns;
    const uint32_t count = static_cast<uint32_t>(smaller(g.columns, block.nc - first));
    pack_b(block.packed + uint64_t{first} * block.kc, g.range(g.columns, count, block.j0 + first, block.k0, block.kc));
  });
}

// A buffer of f32 that is written instead of C; data[0] is for element (i0, j0) of C.
struct StripOutput {
  static constexpr bool kUniformRows = true;
  float* data;
  int64_t row_stride;
  uint64_t i0, j0;

  float* row(uint64_t i) const { return data + static_cast<int64_t>(i - i0) * row_stride - j0; }
};

// Buffers on a worker's stack: a panel of A, and a tile. They have the size of the largest tile, so
// that every processor uses exactly the stack that the rules state.
struct PanelBuffer {
  float *a, *edge;
};

// Computes all pieces of one row panel and the block's columns [j, j_end).
template <typename PackA, typename Output>
void run_panel_pieces(const TileGeometry& g, const Pieces& pieces, const PackA& pack_a, const Output& output,
                      uint64_t i0, uint32_t rows, uint64_t j, uint64_t j_end, const PanelBuffer& space) {
  for (uint32_t n = 0; n < pieces.count; ++n) {
    Block block = pieces[n];
    block.edge = space.edge;
    run_panel(g, block, pack_a, output, g.range(g.rows, rows, i0, block.k0, block.kc), j, j_end, space.a);
  }
}

// Computes what run_panel_pieces() computes, for a C stored as bf16: rounds after all pieces have
// been added.
template <typename PackA, typename Output>
void run_narrow_panel(const TileGeometry& g, const Pieces& pieces, const PackA& pack_a, const Output& output,
                      uint64_t i0, uint32_t rows, uint64_t j, uint64_t j_end, bool accumulate,
                      const PanelBuffer& space) {
  const uint64_t columns = j_end - j;
  REPRISE_STACK_BUFFER(float, sums, g.blocks.tile * columns);
  const StripOutput strip{sums, static_cast<int64_t>(columns), i0, pieces.j0 + j};
  run_panel_pieces(g, pieces, pack_a, strip, i0, rows, j, j_end, space);
  const float* bias = find_bias(output, pieces.j0 + j);
  for (uint32_t i = 0; i < rows; ++i)
    narrow(g.level, output.row(i0 + i) + pieces.j0 + j, sums + i * columns, columns, bias, accumulate);
}

// Rows [i0, i_end) and columns [j0, j_end) of C.
struct Area {
  uint64_t i0, i_end, j0, j_end;
};

// Computes an area of C for the given pieces. `is_last` is true if no later depths are added to C.
template <typename PackA, typename Output>
void run_pieces(const Workers& workers, const TileGeometry& g, const Pieces& pieces, const PackA& pack_a,
                const Output& output, const Area& area, bool accumulate, bool is_last) {
  for_each_tile_task(workers, g, area.i_end - area.i0, pieces.nc,
                     [&](uint64_t panel, uint64_t panel_end, uint64_t j, uint64_t j_end) {
                       const TileScope scope(g.tile);
                       const uint32_t deepest = static_cast<uint32_t>(smaller(pieces.depths.size, pieces.depths.total));
                       const uint64_t panel_floats = uint64_t{deepest} * g.blocks.tile + g.blocks.slack;
                       REPRISE_STACK_BUFFER(float, a, panel_floats + g.blocks.tile * g.blocks.tile);
                       const PanelBuffer space{a, a + panel_floats};
                       for (uint64_t p = panel; p < panel_end; ++p) {
                         const uint64_t i0 = area.i0 + p * g.rows;
                         const uint32_t rows = static_cast<uint32_t>(smaller(g.rows, area.i_end - i0));
                         if constexpr (kIsNarrow<Output>) {
                           run_narrow_panel(g, pieces, pack_a, output, i0, rows, j, j_end, accumulate, space);
                         } else {
                           run_panel_pieces(g, pieces, pack_a, output, i0, rows, j, j_end, space);
                         }
                       }
                       if constexpr (requires { output.written(panel, panel, j); }) {
                         if (is_last)
                           output.written(area.i0 + panel * g.rows, smaller(area.i_end, area.i0 + panel_end * g.rows),
                                          j_end - j);
                       }
                     });
}

// Splits a sum over K depths into pieces of at most `maximum` depths. K and `maximum` must be
// multiples of `group`; the pieces then are, too.
constexpr Partition depth_pieces(uint64_t K, uint32_t group, uint32_t maximum) {
  const Partition depths = split_at_most(K, divide_up(K, maximum), 1);
  return {K, divide_up(depths.size, group) * group};
}

// Maximum columns of a packed block, and maximum pieces of depth that it contains.
struct BlockLimits {
  uint32_t columns, depth_pieces;
};
// Returns the limits of a block of at most `columns` columns. If B is narrower, a block has several
// pieces of depth.
constexpr BlockLimits limits_of(uint64_t N, uint32_t columns, const CpuBlocks& blocks) {
  return {columns, gemm_depth_pieces(N, columns, blocks)};
}

// Computes an area of C as a product of depth K.
template <typename PackA, typename PackB, typename Output>
void run_area(const Workers& workers, const TileGeometry& g, const Area& area, uint64_t K, const PackA& pack_a,
              const PackB& pack_b, const Output& output, bool accumulate, const BlockLimits& limits, float* packed) {
  const uint32_t nc = limits.columns / g.columns * g.columns;
  const Partition depths = depth_pieces(K, g.tile.group(), g.blocks.depth);
  for (uint32_t d = 0; d < depths.count(); d += limits.depth_pieces) {
    for (uint64_t j0 = area.j0; j0 < area.j_end; j0 += nc) {
      const uint32_t width = static_cast<uint32_t>(smaller(nc, area.j_end - j0));
      const Pieces pieces{.depths = depths,
                          .first = d,
                          .count = static_cast<uint32_t>(smaller(limits.depth_pieces, depths.count() - d)),
                          .j0 = j0,
                          .nc = width,
                          .padded = divide_up(width, g.columns) * g.columns,
                          .add = !kIsNarrow<Output> && (accumulate || d > 0),
                          .packed = packed};
      pack_pieces(workers, g, pieces, pack_b);
      run_pieces(workers, g, pieces, pack_a, output, area, accumulate, d + pieces.count == depths.count());
    }
  }
}

template <typename PackA, typename PackB, typename Output>
void run_product(const Workers& workers, const TileGeometry& g, const GemmShape& shape, const PackA& pack_a,
                 const PackB& pack_b, const Output& output, bool accumulate, const BlockLimits& limits, float* packed) {
  run_area(workers, g, {0, shape.M, 0, shape.N}, shape.K, pack_a, pack_b, output, accumulate, limits, packed);
}

// Computes c[M,N] += A B for several pieces of depths. Each sum over K is completed before it is
// added to c. The sums of one area of C at a time are stored in scratch, which has space for them
// because blocks of B are narrower here.
//
//   scratch   | an area of C, about depth x columns | B, depth x columns |
template <typename PackA, typename PackB>
void add_product(const Workers& workers, const TileGeometry& g, const GemmShape& shape, const PackA& pack_a,
                 const PackB& pack_b, float* c, float* scratch) {
  const GemmAddBuffer space(shape.N, g.columns, g.rows, g.blocks);
  for (uint64_t i0 = 0; i0 < shape.M; i0 += space.rows) {
    for (uint64_t j0 = 0; j0 < shape.N; j0 += space.columns) {
      const Area area{i0, smaller(shape.M, i0 + space.rows), j0, smaller(shape.N, j0 + space.columns)};
      const StripOutput sums{scratch, static_cast<int64_t>(space.columns), i0, j0};
      run_area(workers, g, area, shape.K, pack_a, pack_b, sums, false, {space.columns, 1},
               scratch + uint64_t{space.rows} * space.columns);
      for_each_piece(workers, {area.i_end - area.i0, kAddedRows}, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = area.i0 + begin; i < area.i0 + end; ++i) {
          float *to = c + i * shape.N, *from = sums.row(i);
          REPRISE_INDEPENDENT
          for (uint64_t j = area.j0; j < area.j_end; ++j) to[j] += from[j];
        }
      });
    }
  }
}

// A packer whose depths are those of another packer, from the other packer's depth k0 on.
template <typename Pack>
struct Deeper {
  const Pack& pack;
  uint64_t k0;

  void operator()(float* panel, PanelRange range) const {
    range.k0 += k0;
    pack(panel, range);
  }
  DepthOperand find_depths(PanelRange range) const
    requires requires { pack.find_depths(range); }
  {
    range.k0 += k0;
    return pack.find_depths(range);
  }
};

}  // namespace gemm_detail

// Computes C (+)= A B. `scratch` has gemm_scratch_bytes(N, K, storage type of C). shape.K counts
// the tile's depths. shape.K must not be 0, and must be a multiple of the tile's group. If one
// depth of the tile is several depths of the operands, as for pairs, scratch for the operands' K is
// enough. A null `tile` is the machine's tile, also in the functions below.
template <typename PackA, typename PackB, typename Output>
void gemm(const KernelContext& context, const GemmShape& shape, const PackA& pack_a, const PackB& pack_b,
          const Output& output, bool accumulate, void* scratch, const GemmTile* tile = nullptr) {
  const gemm_detail::TileGeometry g(context, tile);
  g.assert_depth(shape.K);
  gemm_detail::BlockLimits limits = gemm_detail::limits_of(shape.N, g.blocking.columns, g.blocks);
  if constexpr (gemm_detail::kIsNarrow<Output>) {
    limits = {gemm_narrow_columns(shape.K * g.tile.depths_of_one, g.blocks),
              static_cast<uint32_t>(divide_up(shape.K, g.blocks.depth))};
  }
  gemm_detail::run_product(*context.workers, g, shape, pack_a, pack_b, output, accumulate, limits,
                           static_cast<float*>(scratch));
}

// Computes out[K] (+)= the sum of the rows of in[M,K]. Sums at most kColumnSumBlocks blocks of rows
// separately, then adds the sums in order. `scratch` has 4 * kColumnSumBlocks * K bytes.
template <typename Stored>
void column_sums(const KernelContext& context, float* out, const Stored* in, uint64_t M, uint64_t K, bool accumulate,
                 void* scratch);

// Computes c[count] (+)= sums[0] + sums[1] + ... in this order. sums[s] is contiguous and starts
// `stride` floats after sums[s - 1].
void add_partials(const Workers& workers, float* c, uint64_t count, const float* sums, uint64_t stride, uint32_t parts,
                  bool accumulate);

// One of the gemm_splits() parts of a product: its depths, and its scratch, a partial C followed by
// a packed block.
struct SplitPart {
  uint64_t k0, depths;
  float *partial, *scratch;

  // Computes the depths, in whole groups of the tile, and the addresses of part s. `all` is the
  // scratch of all parts.
  SplitPart(const GemmShape& shape, uint32_t group, void* all, uint32_t s, CpuSize size) {
    const uint64_t groups = shape.K / group, splits = gemm_splits(shape.M, shape.N, shape.K, size);
    k0 = groups * s / splits * group;
    depths = groups * (s + 1) / splits * group - k0;
    partial = static_cast<float*>(all) + s * gemm_split_part_floats(shape.M, shape.N, shape.K, size);
    scratch = partial + (shape.M * shape.N + 15) / 16 * 16;  // rounded up to 64 bytes
  }
};

// Computes C (+)= A B for a depth-major A, as weight gradients need it. If there are few outputs
// and K is long, computes parts along K and adds them in order. C is contiguous. `scratch` has
// gemm_split_scratch_bytes(M, N, K).
template <typename PackA, typename PackB>
void gemm_split(const KernelContext& context, const GemmShape& shape, const PackA& pack_a, const PackB& pack_b,
                float* c, bool accumulate, void* scratch, const GemmTile* tile = nullptr) {
  const gemm_detail::TileGeometry g(context, tile);
  g.assert_depth(shape.K);
  const CpuSize size = cpu_machine(context).size;
  const uint32_t splits = gemm_splits(shape.M, shape.N, shape.K, size);
  if (splits == 1) {
    if (accumulate && shape.K > g.blocks.depth)
      return gemm_detail::add_product(*context.workers, g, shape, pack_a, pack_b, c, static_cast<float*>(scratch));
    const gemm_detail::BlockLimits limits = gemm_detail::limits_of(shape.N, g.blocking.depth_columns, g.blocks);
    const MatrixOutput output{c, static_cast<int64_t>(shape.N)};
    if (accumulate && g.tile.group() > 1) {
      return gemm_detail::run_product(*context.workers, g, shape, pack_a, pack_b, gemm_detail::AddedOutput{output},
                                      true, limits, static_cast<float*>(scratch));
    }
    return gemm_detail::run_product(*context.workers, g, shape, pack_a, pack_b, output, accumulate, limits,
                                    static_cast<float*>(scratch));
  }
  parallel_for(*context.workers, splits, [&](uint32_t s) {
    const SplitPart part(shape, g.tile.group(), scratch, s, size);
    gemm_detail::run_product(Workers{}, g, GemmShape{shape.M, shape.N, part.depths},
                             gemm_detail::Deeper<PackA>{pack_a, part.k0}, gemm_detail::Deeper<PackB>{pack_b, part.k0},
                             MatrixOutput{part.partial, static_cast<int64_t>(shape.N)}, false,
                             {g.blocks.split_columns, 1}, part.scratch);
  });
  add_partials(*context.workers, c, shape.M * shape.N, static_cast<float*>(scratch),
               gemm_split_part_floats(shape.M, shape.N, shape.K, size), splits, accumulate);
}

// Computes C[M,N] (+)= A[K,M]^T B[K,N], all row-major: the gradient of weights (gemm_depths.cpp).
// Both operands are depth-major. A wide tile reads them in place if M is a multiple of its row step
// and N of its columns; otherwise B is packed. `scratch` has gemm_split_scratch_bytes(M, N, K).
void multiply_columns(const KernelContext& context, const GemmShape& shape, const float* a, const float* b, float* c,
                      bool accumulate, void* scratch);

}  // namespace reprise
