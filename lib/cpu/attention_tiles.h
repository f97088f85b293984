// The products of attention's tiles of queries by keys, in f32: how their operands stand on the worker's stack, and what is multiplied.
// Here so that attention.cpp walks over tiles and knows softmax, whichever numbers are multiplied: attention_pairs.h and attention_matrix.h have the
// same for pairs of bf16.
#pragma once

#include "lib/cpu/attention_rules.h"
#include "lib/cpu/gemm.h"
#include "lib/cpu/tile_product.h"
#include "lib/cpu/transpose.h"
#include "lib/cpu/vector_of.h"

namespace reprise::attention_detail {

static_assert(kAttentionMaxHead <= kKc, "kZeroLine stands for a row of a head");

// to[d] = from[d] * factor, rounded as `to` is stored.
template <int kLanes, typename To, typename From>
REPRISE_INLINE void copy_scaled(To* to, const From* from, uint32_t D, float factor) {
  typename VectorOf<kLanes>::type x;
  uint32_t d = 0;
  for (; d + kLanes <= D; d += kLanes) {
    read_vector<kLanes>(x, from + d);
    write_vector<kLanes>(to + d, x * factor);
  }
  for (; d < D; ++d) to[d] = from[d] * factor;
}

// Lines in panels, their depths one behind another: out[p][d][c] = lines(p * kPanelColumns + c)[d], zero for those from `count` on.
template <uint32_t kTile, int kLanes, typename LineOf>
REPRISE_INLINE void transpose_panels(float* out, uint32_t count, uint32_t depth, const LineOf& line_of) {
  constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  for (uint32_t first = 0; first < kTile; first += kPanel) {
    const float* lines[kPanel];
    for (uint32_t c = 0; c < kPanel; ++c) lines[c] = first + c < count ? line_of(first + c) : kZeroLine;
    transpose_lines<kLanes>(out + uint64_t{first} * depth, kPanel, lines, depth);
  }
}
// out[i][d] = sums[d][i], for i < count; `out` is contiguous, `lines` has room for D.
template <uint32_t kTile, int kLanes>
REPRISE_INLINE void transpose_sums(float* out, const float* sums, const float** lines, uint32_t count, uint32_t D) {
  for (uint32_t d = 0; d < D; ++d) lines[d] = sums + d * kTile;
  transpose_lines<kLanes>(out, D, lines, count);
}

// On the diagonal of causal attention a panel of queries sees the keys before its end, and a key the panels from its own on: whole panels are
// worked, and the scores of keys behind a query count for nothing.
template <int kLanes>
constexpr uint32_t end_of_seen(uint32_t query, uint32_t keys) {
  const uint32_t end = (query / kPanelColumns<kLanes> + 1) * kPanelColumns<kLanes>;
  return end < keys ? end : keys;
}
template <int kLanes>
constexpr uint32_t first_seeing(uint32_t key) {
  return key / kPanelColumns<kLanes> * kPanelColumns<kLanes>;
}

// Rows of one head: q, k, v or dy of so many positions, `step` elements apart.
template <typename Stored>
struct HeadRows {
  const Stored* data;
  uint64_t step;
  uint32_t count;
};

// A tile's rows as f32: where they lie, or in a room on the worker's stack where they are stored as bf16.
template <typename Stored>
struct WideRows;
template <>
struct WideRows<float> {
  const float* data;
  uint64_t stride;

  void take_room(float*&, uint64_t) {}
  template <int>
  REPRISE_INLINE void read(const HeadRows<float>& rows, uint32_t) {
    data = rows.data, stride = rows.step;
  }
};
template <>
struct WideRows<Bf16> {
  float* data;
  uint64_t stride;

  void take_room(float*& room, uint64_t floats) { data = room, room += floats; }
  template <int kLanes>
  REPRISE_INLINE void read(const HeadRows<Bf16>& rows, uint32_t D) {
    stride = D;
    for (uint32_t i = 0; i < rows.count; ++i) copy_scaled<kLanes>(data + i * D, rows.data + i * rows.step, D, 1.0f);
  }
};
// Rows in panels, times a factor: out[p][d][c] = rows[p * kPanelColumns + c][d] * factor.
template <uint32_t kTile, int kLanes, typename Rows>
REPRISE_INLINE void pack_transposed(float* out, const Rows& rows, uint32_t count, uint32_t D, float factor) {
  transpose_panels<kTile, kLanes>(out, count, D, [&](uint32_t i) { return rows.data + i * rows.stride; });
  for (uint32_t i = 0; i < kTile * D; ++i) out[i] *= factor;
}

// Of the forward. On the worker's stack stand so many tiles of a head, and one of scores (attention_stack_bytes).
template <uint32_t kTile, int kLanes, typename Stored>
struct ForwardTiles {
  static constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  float* queries;       // panels of [d][query], times the scores' scale; at last y [query][d]
  float* sums;          // [d][query]
  float* scores;        // [key][query]: weights after the softmax
  const float** lines;  // [D]
  WideRows<Stored> k, v;

  void take_rooms(float* room, const float** pointers, uint64_t head_floats) {
    for (float** each : {&queries, &sums}) *each = room, room += head_floats;
    k.take_room(room, head_floats), v.take_room(room, head_floats);
    scores = room, lines = pointers;
  }

  REPRISE_INLINE void open_queries(const HeadRows<Stored>& q, uint32_t D, float scale) {
    k.template read<kLanes>(q, D);
    pack_transposed<kTile, kLanes>(queries, k, q.count, D, scale);
  }
  REPRISE_INLINE void open_keys(const HeadRows<Stored>& of_k, const HeadRows<Stored>& of_v, uint32_t D) {
    k.template read<kLanes>(of_k, D);
    v.template read<kLanes>(of_v, D);
  }
  // scores = k . q times their scale.
  REPRISE_INLINE void multiply_keys(uint32_t keys, bool diagonal, uint32_t D, float) {
    for (uint32_t i = 0; i < kTile; i += kPanel) {
      tile_product<kLanes>({scores + i, kTile, false}, {k.data, k.stride, 1}, {queries + i * D, 0, kPanel},
                           diagonal ? end_of_seen<kLanes>(i, keys) : keys, kPanel, D);
    }
  }
  // sums (+)= v . weights.
  REPRISE_INLINE void multiply_values(uint32_t keys, bool diagonal, bool accumulate, uint32_t D) {
    for (uint32_t i = 0; i < kTile; i += kPanel) {
      tile_product<kLanes>({sums + i, kTile, accumulate}, {v.data, 1, v.stride}, {scores + i, 0, kTile}, D, kPanel,
                           diagonal ? end_of_seen<kLanes>(i, keys) : keys);
    }
  }
};

// A tile of queries and keys in the backward.
struct BackwardTile {
  uint32_t first_query, queries, first_key, keys;
  bool diagonal;   // of causal attention
  bool starts_dk;  // it is the first tile of its keys
};

// Of the backward, two tiles of scores.
template <uint32_t kTile, int kLanes, typename Stored>
struct BackwardTiles {
  static constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  float* keys;          // panels of [d][key], times the scores' scale; at last dk, then dv, [key][d]
  float* values;        // panels of [d][key]
  float* key_rows;      // panels of [key][d]
  float* dk;            // [d][key]
  float* dv;            // [d][key]
  float* weights;       // [query][key]: scores, then weights after dropout
  float* dscores;       // [query][key]: gradients of the dropped weights, then of the scores
  const float** lines;  // [D]
  WideRows<Stored> q, dy;

  void take_rooms(float* room, const float** pointers, uint64_t head_floats) {
    for (float** each : {&keys, &values, &key_rows, &dk, &dv}) *each = room, room += head_floats;
    q.take_room(room, head_floats), dy.take_room(room, head_floats);
    weights = room, dscores = room + kTile * kTile, lines = pointers;
  }

  // A tile's keys and values, as the products read them.
  REPRISE_INLINE void open_keys(const HeadRows<Stored>& k, const HeadRows<Stored>& v, uint32_t D, float scale) {
    q.template read<kLanes>(k, D);
    pack_transposed<kTile, kLanes>(keys, q, k.count, D, scale);
    float* out = key_rows;
    for (uint32_t d = 0; d < D; d += kPanel, out += kTile * kPanel) {
      const uint32_t columns = D - d < kPanel ? D - d : kPanel;
      for (uint32_t i = 0; i < k.count; ++i) copy_scaled<kLanes>(out + i * kPanel, q.data + i * q.stride + d, columns, 1.0f);
    }
    q.template read<kLanes>(v, D);
    pack_transposed<kTile, kLanes>(values, q, v.count, D, 1.0f);
  }
  REPRISE_INLINE void open_queries(const HeadRows<Stored>& of_q, const HeadRows<Stored>& of_dy, uint32_t D) {
    q.template read<kLanes>(of_q, D);
    dy.template read<kLanes>(of_dy, D);
  }
  // Scores in `weights`, gradients of the dropped weights in `dscores`.
  REPRISE_INLINE void multiply_keys(const BackwardTile& t, uint32_t D, float) {
    for (uint32_t j = 0; j < t.keys; j += kPanel) {
      const uint32_t first = t.diagonal ? j : 0, at = first * kTile + j;
      tile_product<kLanes>({weights + at, kTile, false}, {q.data + first * q.stride, q.stride, 1}, {keys + j * D, 0, kPanel},
                           t.queries - first, kPanel, D);
      tile_product<kLanes>({dscores + at, kTile, false}, {dy.data + first * dy.stride, dy.stride, 1}, {values + j * D, 0, kPanel},
                           t.queries - first, kPanel, D);
    }
  }
  // Between the softmax and the gradients' products.
  REPRISE_INLINE void close_scores(const BackwardTile&) {}
  // dq += dscores k.
  REPRISE_INLINE void add_query_gradients(float* dq, uint64_t dq_row, const BackwardTile& t, uint32_t D) {
    const uint32_t strip = t.diagonal ? kPanel : kTile;  // on the diagonal each is as deep as its queries see
    for (uint32_t i = 0; i < t.queries; i += strip) {
      tile_product<kLanes>({dq + i * dq_row, dq_row, true}, {dscores + i * kTile, kTile, 1},
                           {key_rows, kTile * kPanel, kPanel}, t.queries - i < strip ? t.queries - i : strip, D,
                           t.diagonal ? end_of_seen<kLanes>(i, t.keys) : t.keys);
    }
  }
  // dk += dscores^T q and dv += weights^T dy, both transposed.
  REPRISE_INLINE void add_key_gradients(const BackwardTile& t, uint32_t D) {
    for (uint32_t j = 0; j < t.keys; j += kPanel) {
      const uint32_t first = t.diagonal ? j : 0, at = first * kTile + j;
      tile_product<kLanes>({dk + j, kTile, !t.starts_dk}, {q.data + first * q.stride, 1, q.stride}, {dscores + at, 0, kTile}, D,
                           kPanel, t.queries - first);
      tile_product<kLanes>({dv + j, kTile, !t.starts_dk}, {dy.data + first * dy.stride, 1, dy.stride}, {weights + at, 0, kTile},
                           D, kPanel, t.queries - first);
    }
  }
};

}  // namespace reprise::attention_detail
