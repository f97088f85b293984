// The products of attention's tiles by a matrix unit (AMX, BFMMLA): pairs of bf16 in the panels of the machine's GEMM tile (bf16_pairs.h).
// Here because such a unit takes whole tiles, which vectors do not (attention_pairs.h). What is rounded is the same.
//
// C (+)= A B: panels of B stand in rooms on the worker's stack. Lines of A serve as they lie where the unit can read them, or are packed, a panel at
// a time, and used at once. Zeros stand for lines and depths that a tile has and a head has not. One operand of each product must be turned, since
// sums over queries or keys meet rows of heads:
//
//              A, its lines               B, its columns            C
//   forward    k, rows as they lie        q, once for all keys      scores [key][query]
//              v, turned for each tile    weights                   sums [d][query]
//   backward   q and dy, as they lie      k and v, once             scores and their gradients [query][key]
//              scores' gradients          k, once                   dq [query][d]
//              q and dy, turned           gradients, weights        dk and dv [d][key]
#pragma once

#include "lib/cpu/attention_tiles.h"
#include "lib/cpu/bf16_pairs.h"

namespace reprise::attention_detail {

// The machine's matrix unit in a worker's task.
class MatrixUnit {
 public:
  explicit MatrixUnit(const KernelContext& context) : g_(context, cpu_machine(context).pairs) {}

  const GemmTile& tile() const { return g_.tile; }
  VectorLevel level() const { return g_.level; }

  // For one panel of A, as deep as a head or a tile, and a tile of C that is not whole.
  static constexpr uint64_t room_floats(uint64_t head_floats) { return head_floats / 2 + kMaxMr * kMaxNr; }
  void take_rooms(float*& room, uint64_t head_floats) {
    a_ = room, edge_ = room + head_floats / 2;
    room += room_floats(head_floats);
  }

  // Panels of B: `columns` of K elements each, of which the packer has the first `there`.
  template <typename PackB>
  void pack(float* to, uint32_t columns, uint32_t there, uint64_t K, const PackB& pack_b) const {
    const uint32_t depths = static_cast<uint32_t>(pair_depths(g_.tile, K));
    for (uint32_t j = 0; j < columns; j += g_.columns, to += uint64_t{g_.columns} * depths) {
      pack_b(to, g_.range(g_.columns, count_of(there, j, g_.columns), j, 0, depths));
    }
  }

  // C of so many rows and columns (+)= A B over K elements. `b` is what pack() wrote for as many columns and K.
  template <typename PackA>
  void multiply(const RowOutput& c, uint32_t rows, uint32_t columns, uint64_t K, const PackA& pack_a, const float* b) const {
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
  // A's lines as they lie, so many floats from one to the next; 0 where a panel was packed.
  struct Lines {
    const float* data;
    int64_t step;
  };
  // Where a panel and its groups are whole.
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

  // A whole tile of C lies in the first cache: nothing of it is fetched, as gemm.h does it for a C in memory.
  void run_tile(const RowOutput& c, const gemm_detail::TilePlace& place, uint32_t depths, const Lines& a, const float* b) const {
    const int64_t stride = static_cast<int64_t>(c.stride);
    if (place.rows == g_.rows && place.columns == g_.columns) {
      return run(a, depths, b, c.accumulate ? 1.0f : 0.0f, c.data + place.i0 * c.stride + place.j0, stride);
    }
    gemm_detail::put_tile(g_, g_.rows, c.accumulate, MatrixOutput{c.data, stride}, place,
                          [&](float beta, float* to, int64_t row_stride) { run(a, depths, b, beta, to, row_stride); });
  }
  // Of so many lines, those of a panel that begins at `first`.
  static uint32_t count_of(uint32_t lines, uint32_t first, uint32_t width) {
    return first >= lines ? 0 : static_cast<uint32_t>(smaller(width, lines - first));
  }

  gemm_detail::TileGeometry g_;
  float *a_ = nullptr, *edge_ = nullptr;
};

// f32 rows that are rounded to bf16 while they are packed: their columns as lines, so many rows deep.
inline PairedWeights rounded_columns(const float* rows, uint32_t stride, uint32_t depth, uint32_t group) {
  return {WeightPacker{rows, 1, stride}, depth, group};
}
// Rows of a head as lines, and its columns as lines.
inline PairedLines lines_of(const HeadRows<Bf16>& rows, uint32_t D, uint32_t group) { return {rows.data, D, rows.step, group}; }
inline PairedRows columns_of(const HeadRows<Bf16>& rows, uint32_t group) { return {rows.data, rows.count, rows.step, group}; }

// What a tile of a head takes at least.
template <uint32_t kTile>
inline constexpr uint64_t kLeastHeadFloats = attention_head_floats(1, kTile);

template <uint32_t kTile, int kLanes>
struct MatrixForwardTiles {
  static_assert(MatrixUnit::room_floats(kLeastHeadFloats<kTile>) + kTile * kTile / 2 <=
                    (kForwardTiles<Bf16> - 2) * kLeastHeadFloats<kTile>,
                "the rooms that widened keys and values take");
  MatrixUnit unit;
  float* queries = nullptr;       // B [d pair][query]; at last y [query][d] in f32
  float* sums = nullptr;          // [d][query]
  float* weights = nullptr;       // B [key pair][query]
  float* scores = nullptr;        // [key][query]: weights after the softmax
  const float** lines = nullptr;  // [D]
  HeadRows<Bf16> k = {}, v = {};

  void take_rooms(float* room, const float** pointers, uint64_t head_floats) {
    unit.take_rooms(room, head_floats);
    for (float** each : {&queries, &sums}) *each = room, room += head_floats;
    weights = room, scores = room + kTile * kTile / 2, lines = pointers;
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
    for (uint32_t s = 0; diagonal && s < keys; ++s) {  // what the softmax left out
      for (uint32_t i = 0; i < first_seeing<kLanes>(s); ++i) scores[s * kTile + i] = 0;
    }
    unit.pack(weights, kTile, kTile, keys, rounded_columns(scores, kTile, keys, unit.tile().group_of_b));
    unit.multiply({sums, kTile, accumulate}, D, kTile, keys, columns_of(v, unit.tile().group_of_a), weights);
  }
};

template <uint32_t kTile, int kLanes>
struct MatrixBackwardTiles {
  static_assert(MatrixUnit::room_floats(kLeastHeadFloats<kTile>) + kTile * kTile <=
                    (kBackwardTiles<Bf16> - 4) * kLeastHeadFloats<kTile>,
                "the rooms that widened rows take");
  MatrixUnit unit;
  float* keys = nullptr;          // B [d pair][key]; at last dk, then dv, [key][d] in f32
  float* values = nullptr;        // B [d pair][key]
  float* key_rows = nullptr;      // B [key pair][d]
  float* dk = nullptr;            // [d][key]
  float* dv = nullptr;            // [d][key]
  float* factors = nullptr;       // B [query pair][key]: of the scores' gradients, then of the weights
  Bf16* rounded = nullptr;        // [query][key]: the scores' gradients, which two products read
  float* weights = nullptr;       // [query][key]: scores, then weights after dropout
  float* dscores = nullptr;       // [query][key]: gradients of the dropped weights, then of the scores
  const float** lines = nullptr;  // [D]
  HeadRows<Bf16> q = {}, dy = {};

  void take_rooms(float* room, const float** pointers, uint64_t head_floats) {
    unit.take_rooms(room, head_floats);
    for (float** each : {&keys, &dk, &dv}) *each = room, room += head_floats;
    for (float** each : {&values, &key_rows}) *each = room, room += head_floats / 2;
    factors = room, rounded = reinterpret_cast<Bf16*>(room + kTile * kTile / 2), room += kTile * kTile;
    weights = room, dscores = room + kTile * kTile, lines = pointers;
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
    for (uint32_t i = 0; t.diagonal && i < t.queries; ++i) {  // what the softmax left out
      for (uint32_t j = end_of_seen<kLanes>(i, kTile); j < kTile; ++j) weights[i * kTile + j] = dscores[i * kTile + j] = 0;
    }
    narrow(unit.level(), rounded, dscores, t.queries * kTile, nullptr, false);
  }
  void add_query_gradients(float* dq, uint64_t dq_row, const BackwardTile& t, uint32_t D) {
    const HeadRows<Bf16> gradients{rounded, kTile, t.queries};
    unit.multiply({dq, dq_row, true}, t.queries, D, t.keys, lines_of(gradients, t.keys, unit.tile().group_of_a), key_rows);
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
