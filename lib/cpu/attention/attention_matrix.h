// The products of attention's tiles on a matrix unit (AMX, BFMMLA): pairs of bf16 in panels of the
// machine's GEMM tile (bf16_pairs.h). A matrix unit computes whole tiles only; the vectors of
// attention_pairs.h also compute parts of a tile. Both files round the same values.
//
// In a product C (+)= A B, panels of B are in buffers on the worker's stack. Lines of A are read in
// place if the tile can read them; otherwise each panel of A is packed and used at once. If a head
// has fewer lines or depths than a tile, zeros are added. A sum over queries or keys needs its
// operand transposed, because a head is stored as one row for each position:
//
//              A, its lines               B, its columns            C
//   forward    k, rows in place           q, once for all keys      scores [key][query]
//              v, transposed per tile     weights                   sums [d][query]
//   backward   q and dy, in place         k and v, once             scores, gradients [query][key]
//              scores' gradients          k, once                   dq [query][d]
//              q and dy, transposed       gradients, weights        dk and dv [d][key]
#pragma once

#include "lib/cpu/attention/attention_tiles.h"
#include "lib/cpu/gemm/bf16_pairs.h"

namespace reprise::attention_detail {

// The machine's matrix unit, with the buffers of one worker's task.
class MatrixUnit {
 public:
  explicit MatrixUnit(const KernelContext& context) : g_(context, cpu_machine(context).pairs) {}

  const GemmTile& tile() const { return g_.tile; }
  VectorLevel level() const { return g_.level; }

  // Returns the floats that take_buffers() takes. The first buffer is a panel of A, as deep as a
  // head or a tile. The second is one tile of C, for tiles at the edge of C.
  static constexpr uint64_t buffer_floats(uint64_t head_floats) { return head_floats / 2 + kMaxMr * kMaxNr; }
  void take_buffers(float*& space, uint64_t head_floats) {
    a_ = space, edge_ = space + head_floats / 2;
    space += buffer_floats(head_floats);
  }

  // Packs B, `columns` columns of K elements each, in panels. `pack_b` provides the first `there`
  // columns; the others become zeros.
  template <typename PackB>
  void pack(float* to, uint32_t columns, uint32_t there, uint64_t K, const PackB& pack_b) const {
    const uint32_t depths = static_cast<uint32_t>(pair_depths(g_.tile, K));
    for (uint32_t j = 0; j < columns; j += g_.columns, to += uint64_t{g_.columns} * depths) {
      pack_b(to, g_.range(g_.columns, count_of(there, j, g_.columns), j, 0, depths));
    }
  }

  // Computes C (+)= A B over K elements; C has `rows` rows and `columns` columns. `b` is the result
  // of pack() for the same columns and K.
  template <typename PackA>
  void multiply(const RowOutput& c, uint32_t rows, uint32_t columns, uint64_t K, const PackA& pack_a,
                const float* b) const {
    const uint32_t depths = static_cast<uint32_t>(pair_depths(g_.tile, K));
    for (uint32_t i = 0; i < rows; i += g_.rows) {
      const PanelRange range = g_.range(g_.rows, count_of(rows, i, g_.rows), i, 0, depths);
      const Lines a = find_lines(pack_a, range);
      if (a.step == 0) pack_a(a_, range);
      for (uint32_t j = 0; j < columns; j += g_.columns) {
        run_tile(c, {i, j, range.count, count_of(columns, j, g_.columns), edge_}, depths, a, b + uint64_t{j} * depths);
      }
    }
  }

 private:
  // Lines of A, `step` floats apart, if they are read in place. If they were packed, `step` is 0.
  struct Lines {
    const float* data;
    int64_t step;
  };
  // Returns the lines in place if the tile can read them, the panel is complete, and K is a
  // multiple of the group. Otherwise returns a step of 0.
  Lines find_lines(const PairedLines& a, const PanelRange& range) const {
    if (g_.tile.run_lines == nullptr || range.count < range.width || a.K < 2 * uint64_t{range.kc}) return {nullptr, 0};
    return {reinterpret_cast<const float*>(a.data + range.first * a.pitch), static_cast<int64_t>(a.pitch / 2)};
  }
  template <typename PackA>
  Lines find_lines(const PackA&, const PanelRange&) const {
    return {nullptr, 0};
  }

  void run(const Lines& a, uint32_t depths, const float* b, float beta, float* c, int64_t row_stride) const {
    if (a.step != 0) return g_.tile.run_lines(depths, a.data, a.step, b, beta, c, row_stride);
    g_.run(depths, a_, b, beta, c, row_stride);
  }

  // Computes a tile of C. The tile is in the first-level cache, so unlike gemm.h this prefetches
  // nothing.
  void run_tile(const RowOutput& c, const gemm_detail::TilePlace& place, uint32_t depths, const Lines& a,
                const float* b) const {
    const int64_t stride = static_cast<int64_t>(c.stride);
    if (place.rows == g_.rows && place.columns == g_.columns) {
      return run(a, depths, b, c.accumulate ? 1.0f : 0.0f, c.data + place.i0 * c.stride + place.j0, stride);
    }
    gemm_detail::put_tile(g_, g_.rows, c.accumulate, MatrixOutput{c.data, stride}, place,
                          [&](float beta, float* to, int64_t row_stride) { run(a, depths, b, beta, to, row_stride); });
  }
  // Returns how many of the `lines` lines are in the panel that begins at line `first` and has
  // `width` lines.
  static uint32_t count_of(uint32_t lines, uint32_t first, uint32_t width) {
    return first >= lines ? 0 : static_cast<uint32_t>(smaller(width, lines - first));
  }

  gemm_detail::TileGeometry g_;
  float *a_ = nullptr, *edge_ = nullptr;
};

// Returns an operand whose lines are the columns of `depth` rows of f32. The elements are rounded
// to bf16 when the operand is packed.
inline PairedWeights rounded_columns(const float* rows, uint32_t stride, uint32_t depth, uint32_t group) {
  return {WeightPacker{rows, 1, stride}, depth, group};
}
// Returns an operand whose lines are the rows of a head. columns_of() returns one whose lines are
// the head's columns.
inline PairedLines lines_of(const HeadRows<Bf16>& rows, uint32_t D, uint32_t group) {
  return {rows.data, D, rows.step, group};
}
inline PairedRows columns_of(const HeadRows<Bf16>& rows, uint32_t group) {
  return {rows.data, rows.count, rows.step, group};
}

// Floats of one tile of a head with one channel: the minimum of attention_head_floats().
template <uint32_t kTile>
inline constexpr uint64_t kMinHeadFloats = attention_head_floats(1, kTile);

template <uint32_t kTile, int kLanes>
struct MatrixForwardTiles {
  static_assert(MatrixUnit::buffer_floats(kMinHeadFloats<kTile>) + kTile * kTile / 2 <=
                    (kForwardTiles<Bf16> - 2) * kMinHeadFloats<kTile>,
                "the rooms that widened keys and values take");
  MatrixUnit unit;
  float* queries = nullptr;       // operand B [d pair][query]; finally y [query][d] in f32
  float* sums = nullptr;          // [d][query]
  float* weights = nullptr;       // operand B [key pair][query]
  float* scores = nullptr;        // [key][query]: weights after the softmax
  const float** lines = nullptr;  // D pointers, for transpose_sums()
  HeadRows<Bf16> k = {}, v = {};

  void take_buffers(float* space, const float** pointers, uint64_t head_floats) {
    unit.take_buffers(space, head_floats);
    for (float** each : {&queries, &sums}) *each = space, space += head_floats;
    weights = space, scores = space + kTile * kTile / 2, lines = pointers;
  }

  void open_queries(const HeadRows<Bf16>& q, uint32_t D, float) {
    unit.pack(queries, kTile, q.count, D, lines_of(q, D, unit.tile().group_of_b));
  }
  void open_keys(const HeadRows<Bf16>& of_k, const HeadRows<Bf16>& of_v, uint32_t) { k = of_k, v = of_v; }
  REPRISE_INLINE void multiply_keys(uint32_t keys, bool, uint32_t D, float scale) {
    unit.multiply({scores, kTile, false}, keys, kTile, D, lines_of(k, D, unit.tile().group_of_a), queries);
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < keys * kTile; ++i) scores[i] *= scale;
  }
  REPRISE_INLINE void multiply_values(uint32_t keys, bool diagonal, bool accumulate, uint32_t D) {
    for (uint32_t s = 0; diagonal && s < keys; ++s) {  // cleared, because the softmax does not write these scores
      for (uint32_t i = 0; i < first_seeing<kLanes>(s); ++i) scores[s * kTile + i] = 0;
    }
    unit.pack(weights, kTile, kTile, keys, rounded_columns(scores, kTile, keys, unit.tile().group_of_b));
    unit.multiply({sums, kTile, accumulate}, D, kTile, keys, columns_of(v, unit.tile().group_of_a), weights);
  }
};

template <uint32_t kTile, int kLanes>
struct MatrixBackwardTiles {
  static_assert(MatrixUnit::buffer_floats(kMinHeadFloats<kTile>) + kTile * kTile <=
                    (kBackwardTiles<Bf16> - 4) * kMinHeadFloats<kTile>,
                "the rooms that widened rows take");
  MatrixUnit unit;
  float* keys = nullptr;          // operand B [d pair][key]; finally dk, then dv, [key][d] in f32
  float* values = nullptr;        // operand B [d pair][key]
  float* key_rows = nullptr;      // operand B [key pair][d]
  float* dk = nullptr;            // [d][key]
  float* dv = nullptr;            // [d][key]
  float* factors = nullptr;       // operand B [query pair][key]: the scores' gradients, then the weights
  Bf16* rounded = nullptr;        // [query][key]: the scores' gradients in bf16, read by two products
  float* weights = nullptr;       // [query][key]: scores, then weights after dropout
  float* dscores = nullptr;       // [query][key]: gradients of the dropped weights, then of the scores
  const float** lines = nullptr;  // D pointers, for transpose_sums()
  HeadRows<Bf16> q = {}, dy = {};

  void take_buffers(float* space, const float** pointers, uint64_t head_floats) {
    unit.take_buffers(space, head_floats);
    for (float** each : {&keys, &dk, &dv}) *each = space, space += head_floats;
    for (float** each : {&values, &key_rows}) *each = space, space += head_floats / 2;
    factors = space, rounded = reinterpret_cast<Bf16*>(space + kTile * kTile / 2), space += kTile * kTile;
    weights = space, dscores = space + kTile * kTile, lines = pointers;
  }

  void open_keys(const HeadRows<Bf16>& k, const HeadRows<Bf16>& v, uint32_t D, float) {
    const uint32_t group = unit.tile().group_of_b;
    unit.pack(keys, kTile, k.count, D, lines_of(k, D, group));
    unit.pack(values, kTile, v.count, D, lines_of(v, D, group));
    unit.pack(key_rows, D, D, k.count, columns_of(k, group));
  }
  void open_queries(const HeadRows<Bf16>& of_q, const HeadRows<Bf16>& of_dy, uint32_t) { q = of_q, dy = of_dy; }
  REPRISE_INLINE void multiply_keys(const BackwardTile& t, uint32_t D, float scale) {
    const uint32_t group = unit.tile().group_of_a;
    unit.multiply({weights, kTile, false}, t.queries, kTile, D, lines_of(q, D, group), keys);
    unit.multiply({dscores, kTile, false}, t.queries, kTile, D, lines_of(dy, D, group), values);
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < t.queries * kTile; ++i) weights[i] *= scale;
  }
  REPRISE_INLINE void close_scores(const BackwardTile& t) {
    for (uint32_t i = 0; t.diagonal && i < t.queries; ++i) {  // the softmax did not write these weights and gradients
      for (uint32_t j = end_of_seen<kLanes>(i, kTile); j < kTile; ++j)
        weights[i * kTile + j] = dscores[i * kTile + j] = 0;
    }
    narrow(unit.level(), rounded, dscores, t.queries * kTile, nullptr, false);
  }
  void add_query_gradients(float* dq, uint64_t dq_row, const BackwardTile& t, uint32_t D) {
    const HeadRows<Bf16> gradients{rounded, kTile, t.queries};
    unit.multiply({dq, dq_row, true}, t.queries, D, t.keys, lines_of(gradients, t.keys, unit.tile().group_of_a),
                  key_rows);
  }
  void add_key_gradients(const BackwardTile& t, uint32_t D) {
    const uint32_t of_a = unit.tile().group_of_a, of_b = unit.tile().group_of_b;
    unit.pack(factors, kTile, kTile, t.queries, columns_of({rounded, kTile, t.queries}, of_b));
    unit.multiply({dk, kTile, !t.starts_dk}, D, kTile, t.queries, columns_of(q, of_a), factors);
    unit.pack(factors, kTile, kTile, t.queries, rounded_columns(weights, kTile, t.queries, of_b));
    unit.multiply({dv, kTile, !t.starts_dk}, D, kTile, t.queries, columns_of(dy, of_a), factors);
  }
};

}  // namespace reprise::attention_detail
