// The products of attention's tiles of queries by keys, in f32. This file defines the layout of
// their operands on the worker's stack, and what is multiplied; attention.cpp has the loops over
// tiles and the softmax. attention_pairs.h and attention_matrix.h have the same interface for pairs
// of bf16.
#pragma once

#include "lib/cpu/attention/attention_rules.h"
#include "lib/cpu/gemm/gemm.h"
#include "lib/cpu/gemm/tile_product.h"
#include "lib/cpu/gemm/transpose.h"
#include "lib/cpu/vector_of.h"

namespace reprise::attention_detail {

static_assert(kAttentionMaxHead <= kKc, "kZeroLine stands for a row of a head");

// Computes to[d] = from[d] * factor, rounded to the type of `to`.
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

// Transposes kTile lines into panels: out[p][d][c] = line_of(p * kPanelColumns + c)[d]. Lines from
// `count` on count as zeros.
template <uint32_t kTile, int kLanes, typename LineOf>
REPRISE_INLINE void transpose_panels(float* out, uint32_t count, uint32_t depth, const LineOf& line_of) {
  constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  for (uint32_t first = 0; first < kTile; first += kPanel) {
    const float* lines[kPanel];
    for (uint32_t c = 0; c < kPanel; ++c) lines[c] = first + c < count ? line_of(first + c) : kZeroLine;
    transpose_lines<kLanes>(out + uint64_t{first} * depth, kPanel, lines, depth);
  }
}
// Writes out[i][d] = sums[d][i] for i < count. `out` is contiguous; `lines` is scratch for D
// pointers.
template <uint32_t kTile, int kLanes>
REPRISE_INLINE void transpose_sums(float* out, const float* sums, const float** lines, uint32_t count, uint32_t D) {
  for (uint32_t d = 0; d < D; ++d) lines[d] = sums + d * kTile;
  transpose_lines<kLanes>(out, D, lines, count);
}

// Returns the number of keys by which the panel that contains `query` is multiplied, in a tile on
// the diagonal of causal attention. All queries of a panel are multiplied by the same keys; the
// softmax ignores the scores of keys after the query.
template <int kLanes>
constexpr uint32_t end_of_seen(uint32_t query, uint32_t keys) {
  const uint32_t end = (query / kPanelColumns<kLanes> + 1) * kPanelColumns<kLanes>;
  return end < keys ? end : keys;
}
// Returns the first query of the earliest panel for which end_of_seen() includes `key`.
template <int kLanes>
constexpr uint32_t first_seeing(uint32_t key) {
  return key / kPanelColumns<kLanes> * kPanelColumns<kLanes>;
}

// Rows of one head: q, k, v or dy of `count` positions, `step` elements apart.
template <typename Stored>
struct HeadRows {
  const Stored* data;
  uint64_t step;
  uint32_t count;
};

// The rows of a tile as f32: in place, or in a buffer on the worker's stack if they are stored as
// bf16.
template <typename Stored>
struct WideRows;
template <>
struct WideRows<float> {
  const float* data;
  uint64_t stride;

  void take_buffer(float*&, uint64_t) {}
  template <int>
  REPRISE_INLINE void read(const HeadRows<float>& rows, uint32_t) {
    data = rows.data, stride = rows.step;
  }
};
template <>
struct WideRows<Bf16> {
  float* data;
  uint64_t stride;

  void take_buffer(float*& space, uint64_t floats) { data = space, space += floats; }
  template <int kLanes>
  REPRISE_INLINE void read(const HeadRows<Bf16>& rows, uint32_t D) {
    stride = D;
    for (uint32_t i = 0; i < rows.count; ++i) copy_scaled<kLanes>(data + i * D, rows.data + i * rows.step, D, 1.0f);
  }
};
// Transposes rows into panels and multiplies them: out[p][d][c] = rows[p * kPanelColumns + c][d] *
// factor.
template <uint32_t kTile, int kLanes, typename Rows>
REPRISE_INLINE void pack_transposed(float* out, const Rows& rows, uint32_t count, uint32_t D, float factor) {
  transpose_panels<kTile, kLanes>(out, count, D, [&](uint32_t i) { return rows.data + i * rows.stride; });
  for (uint32_t i = 0; i < kTile * D; ++i) out[i] *= factor;
}

// Operands of the forward's products: kForwardTiles tiles of a head and one tile of scores, on the
// worker's stack (attention_stack_bytes).
template <uint32_t kTile, int kLanes, typename Stored>
struct ForwardTiles {
  static constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  float* queries;       // panels of [d][query], times the factor of the scores; finally y [query][d]
  float* sums;          // [d][query]
  float* scores;        // [key][query]: weights after the softmax
  const float** lines;  // D pointers, for transpose_sums()
  WideRows<Stored> k, v;

  void take_buffers(float* space, const float** pointers, uint64_t head_floats) {
    for (float** each : {&queries, &sums}) *each = space, space += head_floats;
    k.take_buffer(space, head_floats), v.take_buffer(space, head_floats);
    scores = space, lines = pointers;
  }

  REPRISE_INLINE void open_queries(const HeadRows<Stored>& q, uint32_t D, float scale) {
    k.template read<kLanes>(q, D);
    pack_transposed<kTile, kLanes>(queries, k, q.count, D, scale);
  }
  REPRISE_INLINE void open_keys(const HeadRows<Stored>& of_k, const HeadRows<Stored>& of_v, uint32_t D) {
    k.template read<kLanes>(of_k, D);
    v.template read<kLanes>(of_v, D);
  }
  // Computes scores = k . q; `queries` have been multiplied by the factor of the scores.
  REPRISE_INLINE void multiply_keys(uint32_t keys, bool diagonal, uint32_t D, float) {
    for (uint32_t i = 0; i < kTile; i += kPanel) {
      tile_product<kLanes>({scores + i, kTile, false}, {k.data, k.stride, 1}, {queries + i * D, 0, kPanel},
                           diagonal ? end_of_seen<kLanes>(i, keys) : keys, kPanel, D);
    }
  }
  // Computes sums (+)= v . weights.
  REPRISE_INLINE void multiply_values(uint32_t keys, bool diagonal, bool accumulate, uint32_t D) {
    for (uint32_t i = 0; i < kTile; i += kPanel) {
      tile_product<kLanes>({sums + i, kTile, accumulate}, {v.data, 1, v.stride}, {scores + i, 0, kTile}, D, kPanel,
                           diagonal ? end_of_seen<kLanes>(i, keys) : keys);
    }
  }
};

// One tile of queries and keys in the backward.
struct BackwardTile {
  uint32_t first_query, queries, first_key, keys;
  bool diagonal;   // causal attention, and first_query == first_key
  bool starts_dk;  // this is the first tile that adds to dk and dv of its keys
};

// Operands of the backward's products: kBackwardTiles tiles of a head and two tiles of scores, on
// the worker's stack.
template <uint32_t kTile, int kLanes, typename Stored>
struct BackwardTiles {
  static constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  float* keys;          // panels of [d][key], times the factor of the scores; finally dk, then dv, [key][d]
  float* values;        // panels of [d][key]
  float* key_rows;      // panels of [key][d]
  float* dk;            // [d][key]
  float* dv;            // [d][key]
  float* weights;       // [query][key]: scores, then weights after dropout
  float* dscores;       // [query][key]: gradients of the dropped weights, then of the scores
  const float** lines;  // D pointers, for transpose_sums()
  WideRows<Stored> q, dy;

  void take_buffers(float* space, const float** pointers, uint64_t head_floats) {
    for (float** each : {&keys, &values, &key_rows, &dk, &dv}) *each = space, space += head_floats;
    q.take_buffer(space, head_floats), dy.take_buffer(space, head_floats);
    weights = space, dscores = space + kTile * kTile, lines = pointers;
  }

  // Packs a tile's keys and values; `q` is scratch for the rows as f32.
  REPRISE_INLINE void open_keys(const HeadRows<Stored>& k, const HeadRows<Stored>& v, uint32_t D, float scale) {
    q.template read<kLanes>(k, D);
    pack_transposed<kTile, kLanes>(keys, q, k.count, D, scale);
    float* out = key_rows;
    for (uint32_t d = 0; d < D; d += kPanel, out += kTile * kPanel) {
      const uint32_t columns = D - d < kPanel ? D - d : kPanel;
      for (uint32_t i = 0; i < k.count; ++i)
        copy_scaled<kLanes>(out + i * kPanel, q.data + i * q.stride + d, columns, 1.0f);
    }
    q.template read<kLanes>(v, D);
    pack_transposed<kTile, kLanes>(values, q, v.count, D, 1.0f);
  }
  REPRISE_INLINE void open_queries(const HeadRows<Stored>& of_q, const HeadRows<Stored>& of_dy, uint32_t D) {
    q.template read<kLanes>(of_q, D);
    dy.template read<kLanes>(of_dy, D);
  }
  // Computes scores into `weights`, and the gradients of the dropped weights into `dscores`.
  REPRISE_INLINE void multiply_keys(const BackwardTile& t, uint32_t D, float) {
    for (uint32_t j = 0; j < t.keys; j += kPanel) {
      const uint32_t first = t.diagonal ? j : 0, at = first * kTile + j;
      tile_product<kLanes>({weights + at, kTile, false}, {q.data + first * q.stride, q.stride, 1},
                           {keys + j * D, 0, kPanel}, t.queries - first, kPanel, D);
      tile_product<kLanes>({dscores + at, kTile, false}, {dy.data + first * dy.stride, dy.stride, 1},
                           {values + j * D, 0, kPanel}, t.queries - first, kPanel, D);
    }
  }
  // Prepares the softmax's results for the products of the gradients. Does nothing in f32.
  REPRISE_INLINE void close_scores(const BackwardTile&) {}
  // Computes dq += dscores k.
  REPRISE_INLINE void add_query_gradients(float* dq, uint64_t dq_row, const BackwardTile& t, uint32_t D) {
    // On the diagonal, each panel of queries has its own number of keys.
    const uint32_t strip = t.diagonal ? kPanel : kTile;
    for (uint32_t i = 0; i < t.queries; i += strip) {
      tile_product<kLanes>({dq + i * dq_row, dq_row, true}, {dscores + i * kTile, kTile, 1},
                           {key_rows, kTile * kPanel, kPanel}, t.queries - i < strip ? t.queries - i : strip, D,
                           t.diagonal ? end_of_seen<kLanes>(i, t.keys) : t.keys);
    }
  }
  // Computes dk += dscores^T q and dv += weights^T dy, both transposed.
  REPRISE_INLINE void add_key_gradients(const BackwardTile& t, uint32_t D) {
    for (uint32_t j = 0; j < t.keys; j += kPanel) {
      const uint32_t first = t.diagonal ? j : 0, at = first * kTile + j;
      tile_product<kLanes>({dk + j, kTile, !t.starts_dk}, {q.data + first * q.stride, 1, q.stride},
                           {dscores + at, 0, kTile}, D, kPanel, t.queries - first);
      tile_product<kLanes>({dv + j, kTile, !t.starts_dk}, {dy.data + first * dy.stride, 1, dy.stride},
                           {weights + at, 0, kTile}, D, kPanel, t.queries - first);
    }
  }
};

}  // namespace reprise::attention_detail
