// The products of attention's tiles by vector instructions for pairs of bf16 (AVX512-BF16). The
// products are those of attention_tiles.h; an element is a pair, so that the depth is halved.
// Softmax weights and the scores' gradients are rounded to bf16 before they are multiplied, as
// tensor cores need them (cuda/attention/attention_mma.h). Scores, softmax and all sums stay f32.
// Rows of q, k and dy are read in place.
//
// The backward replaces two f32 rows of `weights` or `dscores` by pairs along the rows. The rounded
// rows themselves follow the pairs; only those of `dscores` are read:
//
//   row 2i      | pairs, columns 0 to 31  | row 2i, rounded     |      words of 32 bits
//   row 2i + 1  | pairs, columns 32 to 63 | row 2i + 1, rounded |
#pragma once

#include "lib/cpu/attention/attention_tiles.h"
#include "lib/cpu/gemm/interleave.h"

namespace reprise::attention_detail {

inline const float* words(const Bf16* pairs) { return reinterpret_cast<const float*>(pairs); }

// Writes one pair for each of the `columns` columns of two rows. A null second row counts as zeros.
template <int kLanes, typename Stored>
REPRISE_INLINE void interleave_rows(float* to, const Stored* first, const Stored* second, uint32_t columns) {
  uint32_t* pairs = reinterpret_cast<uint32_t*>(to);
  if (second == nullptr) second = reinterpret_cast<const Stored*>(kZeroLine);
  uint32_t d = 0;
  for (; d + kLanes <= columns; d += kLanes) interleave_vector<kLanes>(pairs + d, first + d, second + d);
  for (; d < columns; ++d) pairs[d] = pair_of(first[d], second[d]);
}
// Writes pairs of the rows of a head: [row pair][d].
template <int kLanes>
REPRISE_INLINE void interleave_head(float* to, const HeadRows<Bf16>& rows, uint32_t D) {
  for (uint32_t i = 0; i < rows.count; i += 2, to += D) {
    const Bf16* first = rows.data + i * rows.step;
    interleave_rows<kLanes>(to, first, i + 1 < rows.count ? first + rows.step : nullptr, D);
  }
}
constexpr uint32_t pairs_of(uint32_t elements) { return (elements + 1) / 2; }

template <uint32_t kTile, int kLanes>
struct PairedForwardTiles {
  static constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  static constexpr TileElement kPair = TileElement::kPair;
  float* queries;       // panels of [d pair][query]; finally y [query][d] in f32
  float* sums;          // [d][query]
  float* scores;        // scores [key][query]; after the softmax pairs of weights [key pair][query]
  float* values;        // [key pair][d]
  const float** lines;  // D pointers, for transpose_sums()
  HeadRows<Bf16> k;

  void take_buffers(float* space, const float** pointers, uint64_t head_floats) {
    for (float** each : {&queries, &sums, &values}) *each = space, space += head_floats;
    scores = space, lines = pointers;
  }

  REPRISE_INLINE void open_queries(const HeadRows<Bf16>& q, uint32_t D, float) {
    transpose_panels<kTile, kLanes>(queries, q.count, D / 2, [&](uint32_t i) { return words(q.data + i * q.step); });
  }
  REPRISE_INLINE void open_keys(const HeadRows<Bf16>& of_k, const HeadRows<Bf16>& of_v, uint32_t D) {
    k = of_k;
    interleave_head<kLanes>(values, of_v, D);
  }
  REPRISE_INLINE void multiply_keys(uint32_t keys, bool diagonal, uint32_t D, float scale) {
    for (uint32_t i = 0; i < kTile; i += kPanel) {
      tile_product<kLanes, kPair>({scores + i, kTile, false}, {words(k.data), k.step / 2, 1},
                                  {queries + i * (D / 2), 0, kPanel}, diagonal ? end_of_seen<kLanes>(i, keys) : keys,
                                  kPanel, D / 2);
    }
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < keys * kTile; ++i) scores[i] *= scale;
  }
  REPRISE_INLINE void multiply_values(uint32_t keys, bool diagonal, bool accumulate, uint32_t D) {
    for (uint32_t s = 0; s < keys; s += 2) {
      const float* first = scores + s * kTile;
      interleave_rows<kLanes>(scores + s / 2 * kTile, first, s + 1 < keys ? first + kTile : nullptr, kTile);
    }
    for (uint32_t i = 0; i < kTile; i += kPanel) {
      tile_product<kLanes, kPair>({sums + i, kTile, accumulate}, {values, 1, D}, {scores + i, 0, kTile}, D, kPanel,
                                  pairs_of(diagonal ? end_of_seen<kLanes>(i, keys) : keys));
    }
  }
};

template <uint32_t kTile, int kLanes>
struct PairedBackwardTiles {
  static constexpr uint32_t kPanel = kPanelColumns<kLanes>;
  static constexpr TileElement kPair = TileElement::kPair;
  static_assert(kTile == 2 * kPanel, "the rows of a tile hold pairs and what is rounded");
  float* keys;          // panels of [d pair][key]; finally dk, then dv, [key][d] in f32
  float* values;        // panels of [d pair][key]
  float* key_rows;      // panels of [key pair][d]
  float* dk;            // [d][key]
  float* dv;            // [d][key]
  float* query_pairs;   // [query pair][d]
  float* dy_pairs;      // [query pair][d]
  float* weights;       // [query][key]: scores, then weights after dropout, finally pairs (layout at the top)
  // [query][key]: gradients of the dropped weights, then of the scores, finally pairs (layout at
  // the top).
  float* dscores;
  const float** lines;  // D pointers, for transpose_sums()
  HeadRows<Bf16> q, dy;

  void take_buffers(float* space, const float** pointers, uint64_t head_floats) {
    for (float** each : {&keys, &values, &key_rows, &dk, &dv, &query_pairs, &dy_pairs})
      *each = space, space += head_floats;
    weights = space, dscores = space + kTile * kTile, lines = pointers;
  }

  REPRISE_INLINE void open_keys(const HeadRows<Bf16>& k, const HeadRows<Bf16>& v, uint32_t D, float) {
    transpose_panels<kTile, kLanes>(keys, k.count, D / 2, [&](uint32_t i) { return words(k.data + i * k.step); });
    transpose_panels<kTile, kLanes>(values, v.count, D / 2, [&](uint32_t i) { return words(v.data + i * v.step); });
    float* out = key_rows;
    for (uint32_t d = 0; d < D; d += kPanel, out += kTile / 2 * kPanel) {
      for (uint32_t i = 0; i < k.count; i += 2) {
        const Bf16* first = k.data + i * k.step + d;
        interleave_rows<kLanes>(out + i / 2 * kPanel, first, i + 1 < k.count ? first + k.step : nullptr,
                                D - d < kPanel ? D - d : kPanel);
      }
    }
  }
  REPRISE_INLINE void open_queries(const HeadRows<Bf16>& of_q, const HeadRows<Bf16>& of_dy, uint32_t D) {
    q = of_q, dy = of_dy;
    interleave_head<kLanes>(query_pairs, q, D);
    interleave_head<kLanes>(dy_pairs, dy, D);
  }
  REPRISE_INLINE void multiply_keys(const BackwardTile& t, uint32_t D, float scale) {
    for (uint32_t j = 0; j < t.keys; j += kPanel) {
      const uint32_t first = t.diagonal ? j : 0, at = first * kTile + j;
      tile_product<kLanes, kPair>({weights + at, kTile, false}, {words(q.data + first * q.step), q.step / 2, 1},
                                  {keys + j * (D / 2), 0, kPanel}, t.queries - first, kPanel, D / 2);
      tile_product<kLanes, kPair>({dscores + at, kTile, false}, {words(dy.data + first * dy.step), dy.step / 2, 1},
                                  {values + j * (D / 2), 0, kPanel}, t.queries - first, kPanel, D / 2);
    }
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < t.queries * kTile; ++i) weights[i] *= scale;
  }
  REPRISE_INLINE void close_scores(const BackwardTile& t) {
    for (uint32_t i = 0; i < t.queries; i += 2) {
      close_rows(weights + i * kTile, i + 1 < t.queries);
      close_rows(dscores + i * kTile, i + 1 < t.queries);
    }
  }
  REPRISE_INLINE void add_query_gradients(float* dq, uint64_t dq_row, const BackwardTile& t, uint32_t D) {
    const uint32_t strip = t.diagonal ? kPanel : kTile;
    for (uint32_t i = 0; i < t.queries; i += strip) {
      tile_product<kLanes, kPair>({dq + i * dq_row, dq_row, true}, {dscores + i * kTile + kPanel, kTile, 1},
                                  {key_rows, kTile / 2 * kPanel, kPanel}, t.queries - i < strip ? t.queries - i : strip,
                                  D, pairs_of(t.diagonal ? end_of_seen<kLanes>(i, t.keys) : t.keys));
    }
  }
  REPRISE_INLINE void add_key_gradients(const BackwardTile& t, uint32_t D) {
    for (uint32_t j = 0; j < t.keys; j += kPanel) {
      const uint32_t first = t.diagonal ? j : 0, at = first * kTile + j / kPanel * kTile, skipped = first / 2 * D;
      const uint32_t depth = pairs_of(t.queries - first);
      tile_product<kLanes, kPair>({dk + j, kTile, !t.starts_dk}, {query_pairs + skipped, 1, D},
                                  {dscores + at, 0, 2 * kTile}, D, kPanel, depth);
      tile_product<kLanes, kPair>({dv + j, kTile, !t.starts_dk}, {dy_pairs + skipped, 1, D},
                                  {weights + at, 0, 2 * kTile}, D, kPanel, depth);
    }
  }

 private:
  // Converts two rows, or the last one alone, to the layout drawn at the top of this file.
  REPRISE_INLINE static void close_rows(float* rows, bool both) {
    float first[kTile], second[kTile];
    std::memcpy(first, rows, sizeof first);
    for (uint32_t j = 0; j < kTile; ++j) second[j] = 0;
    if (both) std::memcpy(second, rows + kTile, sizeof second);
    for (uint32_t p = 0; p < 2; ++p)
      interleave_rows<kLanes>(rows + p * kTile, first + p * kPanel, second + p * kPanel, kPanel);
    copy_scaled<kLanes>(reinterpret_cast<Bf16*>(rows + kPanel), first, kTile, 1.0f);
    if (both) copy_scaled<kLanes>(reinterpret_cast<Bf16*>(rows + kTile + kPanel), second, kTile, 1.0f);
  }
};

}  // namespace reprise::attention_detail
