// A blocked matrix product C[M,N] (+)= A[M,K] B[K,N] whose operands are whatever two packing callables make of them.
// Here so that linear layers, convolutions and the loss head share one loop nest (Goto & van de Geijn 2008).
// It must not know what A, B and C mean, nor how many workers there are: the bits follow from shape and tile.
//
//   for k, a few pieces of fixed depth at a time         outermost, so that A's piece is still in a cache for the next columns
//     for columns j of C, nc at a time                 B's block [pieces x kc x nc] is packed in scratch, by panels of tile columns
//       for rows i of C, a tile at a time
//         for pieces of k                              A's panel [kc x rows] serves as it lies, or is packed on the worker's stack
//           for tiles along j: a tile of gemm_tile.h
//
// nc, and whether a panel that could serve as it lies is packed, are the machine's (cpu_blocking.h): they change no bit.
// Operands stored as bf16, or normalised, become f32 while they are packed; rows of A at least become lines of f32 on the worker's stack. A C that is
// stored as bf16 is rounded once: all of K is one group of pieces, and a strip of f32 on the stack holds the sums.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "lib/assert.h"
#include "lib/bf16.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/gemm_scratch.h"

namespace reprise {

// Part of a panel: lines [first, first + count) of the operand (rows of A, columns of B), depths [k0, k0 + kc).
// A packer writes panel[k * width + i] for all i < width: the element of line first + i at depth k0 + k, zero where i
// >= count, by loops of the level.
struct PanelRange {
  VectorLevel level;
  uint32_t width, count;
  uint64_t first, k0;
  uint32_t kc;
  uint32_t stride = 0;                                 // floats between two lines that are widened
  uint32_t floats_ahead = CpuBlocking{}.floats_ahead;  // the machine's (cpu_blocking.h)
  uint32_t rows_ahead = CpuBlocking{}.rows_ahead;
};

// A packer whose lines may serve as they lie also has find_runs: it writes the runs that together are the panel and answers their
// number, at most most_runs(kc); 0 where the panel must be packed.
// One with find_depths answers where the panel lies by depths; null where it must be packed.
// Lines so far apart fall into one set of a first-level cache and drive each other out: they are packed.
constexpr bool lines_collide(int64_t stride) { return stride % 1024 == 0; }

// Copies a run as short as a tile's width: a call of memcpy would cost more than the copy.
inline void copy_run(float* to, const float* from, uint32_t count) {
  for (; count >= 16; count -= 16, to += 16, from += 16) std::memcpy(to, from, 16 * sizeof(float));
  for (; count >= 4; count -= 4, to += 4, from += 4) std::memcpy(to, from, 4 * sizeof(float));
  for (; count > 0; --count) *to++ = *from++;
}

inline void copy_run(float* to, const Bf16* from, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) to[i] = from[i];
}
inline void copy_run(Bf16* to, const Bf16* from, uint32_t count) { std::memcpy(to, from, count * sizeof *to); }
// to[i] = from[i] + bias[i], where there is a bias, added to what `to` holds where it accumulates.
void narrow(VectorLevel level, Bf16* to, const float* from, uint64_t count, const float* bias, bool accumulate);
void widen(VectorLevel level, float* to, const Bf16* from, uint64_t count);

// panel[k * width + i] = lines[i][k]; `lines` has `width` entries, each with kc readable floats, or pairs of bf16, of which so many are fetched ahead.
void pack_lines(VectorLevel level, float* panel, uint32_t width, const float* const* lines, uint32_t kc, uint32_t floats_ahead);
// panel[k * width + i] = first[k * stride + i] for i < count.
template <typename Stored>
void pack_depths(VectorLevel level, float* panel, uint32_t width, uint32_t count, const Stored* first, int64_t stride, uint32_t kc);
// kKc zeros, for a line that is not there.
extern const float kZeroLine[kKc];

// An operand in memory: element (line, depth) at data[line * line_stride + depth * depth_stride], one of the strides
// being 1.
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
  // Writes line i of the range at lines + i * range.stride; false where lines are not contiguous.
  bool widen_lines(float* lines, const PanelRange& range) const;
};
using MatrixPacker = MatrixPackerOf<float>;

// Weights in any format, decoded while they are packed.
struct WeightPacker {
  Weight w;
  int64_t line_stride, depth_stride;

  void operator()(float* panel, const PanelRange& range) const;
  // Elements of the matrix before those of the range.
  uint64_t start(const PanelRange& range) const {
    return range.first * static_cast<uint64_t>(line_stride) + range.k0 * static_cast<uint64_t>(depth_stride);
  }
};

// Weights times a factor.
struct ScaledWeights {
  WeightPacker weights;
  float factor;

  void operator()(float* panel, const PanelRange& range) const;
};

// Two operands of the same lines, one behind the other along the depth: those of `first` are `depth` deep.
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
    return (near.kc == 0 || first.widen_lines(lines, near)) && (far.kc == 0 || second.widen_lines(lines + near.kc, far));
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

// The panel of a packer that widens lines.
template <typename Pack>
void pack_widened(float* panel, PanelRange range, const Pack& pack) {
  range.stride = widened_stride(range.kc);
  REPRISE_STACK_ROOM(float, widened, range.width * range.stride);
  pack.widen_lines(widened, range);
  const float* lines[kMaxMr];
  for (uint32_t i = 0; i < range.width; ++i) lines[i] = i < range.count ? widened + i * range.stride : kZeroLine;
  pack_lines(range.level, panel, range.width, lines, range.kc, range.floats_ahead);
}

// C in memory, row i at data + i * row_stride. An output whose rows lie anywhere says kUniformRows = false and needs
// row() alone; find_rows(rows, i, count), where several together are found faster. One that wants to know has written(begin, end,
// columns): so many columns of rows [begin, end) are final.
template <typename Stored>
struct MatrixOutputOf {
  static constexpr bool kUniformRows = true;
  Stored* data;
  int64_t row_stride;

  Stored* row(uint64_t i) const { return data + static_cast<int64_t>(i) * row_stride; }
};
using MatrixOutput = MatrixOutputOf<float>;

// The same with a bias [N], or null, that every row starts from; for products that overwrite C.
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
  uint32_t rows, columns;  // of C

  // Without a tile, the machine's.
  explicit TileGeometry(const KernelContext& context, const GemmTile* t = nullptr)
      : tile(t != nullptr ? *t : cpu_machine(context).tile),
        level(cpu_machine(context).level),
        blocking(cpu_machine(context).blocking),
        blocks(blocks_of(cpu_machine(context).size)),
        rows(tile.rows()),
        columns(tile.columns()) {
    REPRISE_ASSERT(tile.run != nullptr, "a product needs the machine's tile, which choose_plan_machine() leaves out for plans without one");
  }

  PanelRange range(uint32_t width, uint32_t count, uint64_t first, uint64_t k0, uint32_t kc) const {
    return {level, width, count, first, k0, kc, 0, blocking.floats_ahead, blocking.rows_ahead};
  }

  // C's rows are contiguous: a tile that prefers columns computes the transpose.
  void run(uint64_t k, const float* a, const float* b, float beta, float* c, int64_t row_stride) const {
    if (tile.prefers_columns) {
      tile.run(tile, k, b, a, beta, c, 1, row_stride);
    } else {
      tile.run(tile, k, a, b, beta, c, row_stride, 1);
    }
  }
};

// A C whose tiles are computed beside it and added when they are complete: a tile for pairs of bf16 may begin its sums with what C holds.
struct AddedOutput : MatrixOutput {
  static constexpr bool kUniformRows = false;
};

// Around what a worker runs of a tile.
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
  float* edge = nullptr;  // the worker's room for a tile that C has not room for
};

template <typename Output>
inline constexpr bool kIsNarrow = std::is_same_v<decltype(std::declval<const Output&>().row(0)), Bf16*>;

// Where a tile of C goes: rows [i0, i0 + rows), columns [j0, j0 + columns). `edge`: room for a whole one, where that may not be whole.
struct TilePlace {
  uint64_t i0, j0;
  uint32_t rows, columns;
  float* edge;
};

// What every row of C starts from, from column j0 on; null for nothing.
template <typename Output>
const float* find_bias(const Output& output, uint64_t j0) {
  if constexpr (requires { output.bias; }) return output.bias == nullptr ? nullptr : output.bias + j0;
  return nullptr;
}

// A tile of C becomes the bias, if there is one: just before its product adds to it, while it is in a cache.
template <typename Output>
bool put_bias(const Output& output, const TilePlace& place) {
  const float* bias = find_bias(output, place.j0);
  if (bias == nullptr) return false;
  for (uint32_t i = 0; i < place.rows; ++i) copy_run(output.row(place.i0 + i) + place.j0, bias, place.columns);
  return true;
}

// Fetches part of a row of C, to be written, while its tile is computed.
inline void fetch_output(const float* c, uint32_t columns) {
  for (uint32_t j = 0; j < columns; j += 16) __builtin_prefetch(c + j, 1, 3);
}

// compute(beta, c, row_stride) writes `computed_rows` whole rows of a tile: into C, or beside it where C has not room for them.
template <typename Output, typename Compute>
void put_tile(const TileGeometry& g, uint32_t computed_rows, bool accumulate, const Output& output, const TilePlace& place, const Compute& compute) {
  const bool add = accumulate || put_bias(output, place);
  // Copies: g++ compares the two adjacent members by one load of 64 bits, which must wait until their two stores and C's have left.
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

// Calls use(place, b) for the tiles of a row panel in the block's columns [j, j_end).
template <typename Use>
void for_each_tile(const TileGeometry& g, const Block& block, uint64_t i0, uint32_t rows, uint64_t j, uint64_t j_end, const Use& use) {
  for (uint64_t at = j; at < j_end; at += g.columns) {
    const uint32_t columns = static_cast<uint32_t>(smaller(g.columns, j_end - at));
    use(TilePlace{i0, block.j0 + at, rows, columns, block.edge}, block.packed + at * block.kc);
  }
}

// A row panel whose rows serve as they lie; false where they must be packed.
template <typename PackA, typename Output>
bool run_rows(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output, const PanelRange& range,
              uint64_t j, uint64_t j_end) {
  if constexpr (requires(RowRun* runs) { pack_a.find_runs(runs, range); }) {
    if (g.tile.run_rows == nullptr) return false;
    REPRISE_STACK_ROOM(RowRun, runs, most_runs(range.kc));
    const uint32_t count = pack_a.find_runs(runs, range);
    if (count == 0) return false;
    for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
      put_tile(g, g.rows, block.add, output, place, [&](float beta, float* c, int64_t stride) { g.tile.run_rows(runs, count, b, beta, c, stride); });
      for (uint32_t r = 0; r < count; ++r) runs[r].ahead = 0;  // fetched
    });
    return true;
  }
  return false;
}

// A row panel whose rows serve once they are f32, or normalised; false where they must be packed.
template <typename PackA, typename Output>
bool run_widened(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output, PanelRange range,
                 uint64_t j, uint64_t j_end) {
  if constexpr (requires(float* lines) { pack_a.widen_lines(lines, range); }) {
    if (g.tile.run_rows == nullptr) return false;
    range.stride = widened_stride(range.kc);
    REPRISE_STACK_ROOM(float, lines, range.width * range.stride);
    if (!pack_a.widen_lines(lines, range)) return false;
    RowRun run;
    run.depths = range.kc;
    run.ahead = 0;
    for (uint32_t i = 0; i < range.width; ++i) run.rows[i] = i < range.count ? lines + i * range.stride : kZeroLine;
    for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
      put_tile(g, g.rows, block.add, output, place, [&](float beta, float* c, int64_t stride) { g.tile.run_rows(&run, 1, b, beta, c, stride); });
    });
    return true;
  }
  return false;
}

// A row panel that serves as it lies by depths; false where it must be packed.
template <typename PackA, typename Output>
bool run_depths(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output, const PanelRange& range,
                uint64_t j, uint64_t j_end) {
  if constexpr (requires { pack_a.find_depths(range); }) {
    if (g.tile.run_depths == nullptr || range.count % g.tile.row_step != 0) return false;
    DepthOperand a = pack_a.find_depths(range);
    if (a.data == nullptr) return false;
    for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
      put_tile(g, range.count, block.add, output, place, [&](float beta, float* c, int64_t stride) {
        g.tile.run_depths(range.count, block.kc, a, {b, g.columns, 0}, beta, c, stride);
      });
      a.ahead = 0;  // fetched
    });
    return true;
  }
  return false;
}

// One row panel of C against the piece's columns [j, j_end).
template <typename PackA, typename Output>
void run_panel(const TileGeometry& g, const Block& block, const PackA& pack_a, const Output& output, const PanelRange& range,
               uint64_t j, uint64_t j_end, float* a) {
  if (run_widened(g, block, pack_a, output, range, j, j_end)) return;
  if (j_end - j < g.blocking.pack_from && run_rows(g, block, pack_a, output, range, j, j_end)) return;
  if (j_end - j < g.blocking.pack_depths_from && run_depths(g, block, pack_a, output, range, j, j_end)) return;
  pack_a(a, range);
  for_each_tile(g, block, range.first, range.count, j, j_end, [&](const TilePlace& place, const float* b) {
    put_tile(g, g.rows, block.add, output, place, [&](float beta, float* c, int64_t stride) { g.run(block.kc, a, b, beta, c, stride); });
  });
}

constexpr uint32_t kAddedRows = 8;    // of an area of sums that a worker adds to C at a time
constexpr uint32_t kFewPanels = 16;   // below this many row panels a block's columns are shared out too

// Shares out the tiles of C[M,N] by row panels, and by columns too where those are few: use(panels begin, end, columns begin, end) on any worker.
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

// The pieces of one block, packed side by side: `count` of the depths' parts from `first` on.
struct Pieces {
  const Partition& depths;
  uint32_t first, count;
  uint64_t j0;
  uint32_t nc;
  uint64_t padded;  // nc, in whole tiles
  bool add;         // the first one, too, adds to C
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

// A strip of f32 in C's place: rows from i0, columns from j0 on.
struct StripOutput {
  static constexpr bool kUniformRows = true;
  float* data;
  int64_t row_stride;
  uint64_t i0, j0;

  float* row(uint64_t i) const { return data + static_cast<int64_t>(i - i0) * row_stride - j0; }
};

// Of a worker's stack, for the panels that it runs: A's, and a tile. As much as the largest tile wants, so that no processor takes more than
// another, and what is stated is what is taken.
struct PanelRoom {
  float *a, *edge;
};

// All pieces of one row panel and the block's columns [j, j_end).
template <typename PackA, typename Output>
void run_panel_pieces(const TileGeometry& g, const Pieces& pieces, const PackA& pack_a, const Output& output, uint64_t i0, uint32_t rows,
                      uint64_t j, uint64_t j_end, const PanelRoom& room) {
  for (uint32_t n = 0; n < pieces.count; ++n) {
    Block block = pieces[n];
    block.edge = room.edge;
    run_panel(g, block, pack_a, output, g.range(g.rows, rows, i0, block.k0, block.kc), j, j_end, room.a);
  }
}

// The same for a C that is rounded when all pieces have been added.
template <typename PackA, typename Output>
void run_narrow_panel(const TileGeometry& g, const Pieces& pieces, const PackA& pack_a, const Output& output, uint64_t i0, uint32_t rows,
                      uint64_t j, uint64_t j_end, bool accumulate, const PanelRoom& room) {
  const uint64_t columns = j_end - j;
  REPRISE_STACK_ROOM(float, sums, g.blocks.tile * columns);
  const StripOutput strip{sums, static_cast<int64_t>(columns), i0, pieces.j0 + j};
  run_panel_pieces(g, pieces, pack_a, strip, i0, rows, j, j_end, room);
  const float* bias = find_bias(output, pieces.j0 + j);
  for (uint32_t i = 0; i < rows; ++i) narrow(g.level, output.row(i0 + i) + pieces.j0 + j, sums + i * columns, columns, bias, accumulate);
}

// Rows [i0, i_end) and columns [j0, j_end) of C.
struct Area {
  uint64_t i0, i_end, j0, j_end;
};

// `is_last`: no later depths add to C.
template <typename PackA, typename Output>
void run_pieces(const Workers& workers, const TileGeometry& g, const Pieces& pieces, const PackA& pack_a, const Output& output,
                const Area& area, bool accumulate, bool is_last) {
  for_each_tile_task(workers, g, area.i_end - area.i0, pieces.nc, [&](uint64_t panel, uint64_t panel_end, uint64_t j, uint64_t j_end) {
    const TileScope scope(g.tile);
    const uint32_t deepest = static_cast<uint32_t>(smaller(pieces.depths.size, pieces.depths.total));
    const uint64_t panel_floats = uint64_t{deepest} * g.blocks.tile + g.blocks.slack;
    REPRISE_STACK_ROOM(float, a, panel_floats + g.blocks.tile * g.blocks.tile);
    const PanelRoom room{a, a + panel_floats};
    for (uint64_t p = panel; p < panel_end; ++p) {
      const uint64_t i0 = area.i0 + p * g.rows;
      const uint32_t rows = static_cast<uint32_t>(smaller(g.rows, area.i_end - i0));
      if constexpr (kIsNarrow<Output>) {
        run_narrow_panel(g, pieces, pack_a, output, i0, rows, j, j_end, accumulate, room);
      } else {
        run_panel_pieces(g, pieces, pack_a, output, i0, rows, j, j_end, room);
      }
    }
    if constexpr (requires { output.written(panel, panel, j); }) {
      if (is_last) output.written(area.i0 + panel * g.rows, smaller(area.i_end, area.i0 + panel_end * g.rows), j_end - j);
    }
  });
}

// Where a sum over K is cut: pieces of at most `most`, of whole groups.
constexpr Partition depth_pieces(uint64_t K, uint32_t group, uint32_t most) {
  const Partition depths = split_at_most(K, divide_up(K, most), 1);
  return {K, divide_up(depths.size, group) * group};
}

// How wide and deep a packed block may be.
struct BlockLimits {
  uint32_t columns, depth_pieces;
};
// Of at most `columns`, or of several pieces of a narrower B.
constexpr BlockLimits limits_of(uint64_t N, uint32_t columns, const CpuBlocks& blocks) { return {columns, gemm_depth_pieces(N, columns, blocks)}; }

// An area of C, K deep.
template <typename PackA, typename PackB, typename Output>
void run_area(const Workers& workers, const TileGeometry& g, const Area& area, uint64_t K, const PackA& pack_a, const PackB& pack_b,
              const Output& output, bool accumulate, const BlockLimits& limits, float* packed) {
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
void run_product(const Workers& workers, const TileGeometry& g, const GemmShape& shape, const PackA& pack_a, const PackB& pack_b,
                 const Output& output, bool accumulate, const BlockLimits& limits, float* packed) {
  run_area(workers, g, {0, shape.M, 0, shape.N}, shape.K, pack_a, pack_b, output, accumulate, limits, packed);
}

// c[M,N] += A B, a sum of several pieces of depths: each sum is complete before it is added. So an area of C at a time is computed in the scratch
// that a narrower block of B leaves.
//
//   scratch   | an area of C, about depth x columns | B, depth x columns |
template <typename PackA, typename PackB>
void add_product(const Workers& workers, const TileGeometry& g, const GemmShape& shape, const PackA& pack_a, const PackB& pack_b, float* c,
                 float* scratch) {
  const GemmAddRoom room(shape.N, g.columns, g.rows, g.blocks);
  for (uint64_t i0 = 0; i0 < shape.M; i0 += room.rows) {
    for (uint64_t j0 = 0; j0 < shape.N; j0 += room.columns) {
      const Area area{i0, smaller(shape.M, i0 + room.rows), j0, smaller(shape.N, j0 + room.columns)};
      const StripOutput sums{scratch, static_cast<int64_t>(room.columns), i0, j0};
      run_area(workers, g, area, shape.K, pack_a, pack_b, sums, false, {room.columns, 1}, scratch + uint64_t{room.rows} * room.columns);
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

// The depths [k0, k0 + ...) of another packer.
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

// C (+)= A B. `scratch` has gemm_scratch_bytes(N, K, how C is stored). K = 0 is not handled. K counts the tile's depths; where one
// holds several of the operands, as much scratch as for these is enough. K is a multiple of the tile's group. Here and below: without a
// tile, the machine's.
template <typename PackA, typename PackB, typename Output>
void gemm(const KernelContext& context, const GemmShape& shape, const PackA& pack_a, const PackB& pack_b,
          const Output& output, bool accumulate, void* scratch, const GemmTile* tile = nullptr) {
  const gemm_detail::TileGeometry g(context, tile);
  gemm_detail::BlockLimits limits = gemm_detail::limits_of(shape.N, g.blocking.columns, g.blocks);
  if constexpr (gemm_detail::kIsNarrow<Output>) {
    limits = {gemm_narrow_columns(shape.K * g.tile.depths_of_one, g.blocks), static_cast<uint32_t>(divide_up(shape.K, g.blocks.depth))};
  }
  gemm_detail::run_product(*context.workers, g, shape, pack_a, pack_b, output, accumulate, limits, static_cast<float*>(scratch));
}

// out[K] (+)= the sum of the rows of in[M,K]: kColumnSumBlocks blocks of rows, then the blocks in order. `scratch` has
// 4 * kColumnSumBlocks * K bytes.
template <typename Stored>
void column_sums(const KernelContext& context, float* out, const Stored* in, uint64_t M, uint64_t K, bool accumulate,
                 void* scratch);

// C[M,N] (+)= sums[0] + sums[1] + ... in that order; sums[s] is contiguous, `stride` floats after the last one.
void add_partials(const Workers& workers, float* c, uint64_t count, const float* sums, uint64_t stride, uint32_t parts,
                  bool accumulate);

// One of the gemm_splits() parts of a product: its depths, its own partial C, and scratch behind that.
struct SplitPart {
  uint64_t k0, depths;
  float *partial, *scratch;

  // Part s, of whole groups of the tile's depths; the first begins at `all`.
  SplitPart(const GemmShape& shape, uint32_t group, void* all, uint32_t s, CpuSize size) {
    const uint64_t groups = shape.K / group, splits = gemm_splits(shape.M, shape.N, shape.K, size);
    k0 = groups * s / splits * group;
    depths = groups * (s + 1) / splits * group - k0;
    partial = static_cast<float*>(all) + s * gemm_split_part_floats(shape.M, shape.N, shape.K, size);
    scratch = partial + (shape.M * shape.N + 15) / 16 * 16;  // rounded up, so that it is aligned
  }
};

// The same product where A lies by depths, as for weight gradients. Few outputs and a long K: parts along K, added in order. C is contiguous.
// `scratch` has gemm_split_scratch_bytes(M, N, K).
template <typename PackA, typename PackB>
void gemm_split(const KernelContext& context, const GemmShape& shape, const PackA& pack_a, const PackB& pack_b, float* c,
                bool accumulate, void* scratch, const GemmTile* tile = nullptr) {
  const gemm_detail::TileGeometry g(context, tile);
  const CpuSize size = cpu_machine(context).size;
  const uint32_t splits = gemm_splits(shape.M, shape.N, shape.K, size);
  if (splits == 1) {
    if (accumulate && shape.K > g.blocks.depth)
      return gemm_detail::add_product(*context.workers, g, shape, pack_a, pack_b, c, static_cast<float*>(scratch));
    const gemm_detail::BlockLimits limits = gemm_detail::limits_of(shape.N, g.blocking.depth_columns, g.blocks);
    const MatrixOutput output{c, static_cast<int64_t>(shape.N)};
    if (accumulate && g.tile.group() > 1) {
      return gemm_detail::run_product(*context.workers, g, shape, pack_a, pack_b, gemm_detail::AddedOutput{output}, true, limits, static_cast<float*>(scratch));
    }
    return gemm_detail::run_product(*context.workers, g, shape, pack_a, pack_b, output, accumulate, limits, static_cast<float*>(scratch));
  }
  parallel_for(*context.workers, splits, [&](uint32_t s) {
    const SplitPart part(shape, g.tile.group(), scratch, s, size);
    gemm_detail::run_product(Workers{}, g, GemmShape{shape.M, shape.N, part.depths}, gemm_detail::Deeper<PackA>{pack_a, part.k0},
                             gemm_detail::Deeper<PackB>{pack_b, part.k0}, MatrixOutput{part.partial, static_cast<int64_t>(shape.N)}, false,
                             {g.blocks.split_columns, 1}, part.scratch);
  });
  add_partials(*context.workers, c, shape.M * shape.N, static_cast<float*>(scratch),
               gemm_split_part_floats(shape.M, shape.N, shape.K, size), splits, accumulate);
}

// C[M,N] (+)= A[K,M]^T B[K,N], all row-major: the gradient of weights (gemm_depths.cpp). Both operands lie by depths: a wide tile reads them as they
// are where M is a multiple of its row step and N of its columns; else B is packed, as everywhere. `scratch` has gemm_split_scratch_bytes(M, N, K).
void multiply_columns(const KernelContext& context, const GemmShape& shape, const float* a, const float* b, float* c,
                      bool accumulate, void* scratch);

}  // namespace reprise
