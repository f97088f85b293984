// Attention in tiles of queries by keys, so that no T x T matrix exists (Rabe & Staats 2021; Dao et
// al. 2022). A tile has 64 queries and 64 keys, fewer on small cores. The forward uses an online
// softmax and saves its log-sums, from which the backward starts. A tile is skipped if documents or
// windows hide all its keys from all its queries. The products are in attention_tiles.h; for bf16
// also in attention_pairs.h and attention_matrix.h.
#include <cstring>

#include "lib/cpu/attention/attention_matrix.h"
#include "lib/cpu/attention/attention_pairs.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/pointwise/random_mask.h"
#include "lib/cpu/vector_math.h"
#include "lib/portable_math.h"
#include "lib/rng.h"

namespace reprise {

using namespace attention_detail;

namespace {

// One query head of one sequence, with the keys and values that it reads.
template <typename Stored>
struct AttentionHead {
  uint32_t T, D;
  uint64_t row;  // distance, in elements, between the q, k or v of successive positions: W
  uint64_t out;  // distance, in elements, between the y or dy of successive positions: C
  const Stored *q, *k, *v;
  const int32_t* starts;  // [T]: first position of each position's document; null without documents
  const AttentionAttribute& attention;
  float scale;             // factor by which the scores q . k are multiplied
  uint64_t first_element;  // index of the head's first weight in the random mask: (b * heads + h) * T * T

  bool causal() const { return attention.causal != 0; }
  // True if documents or a window may hide earlier positions from a query.
  bool hides() const { return starts != nullptr || (attention.window != 0 && attention.window < T); }
  // Returns the first position that a query sees.
  uint32_t first_seen(uint32_t query) const {
    return attention.first_seen(query, starts == nullptr ? 0 : static_cast<uint32_t>(starts[query]));
  }
  // Returns the end of the document that contains `position`. Each document's positions must be
  // contiguous.
  uint32_t end_of_document(uint32_t position) const {
    uint32_t end = starts == nullptr ? T : position + 1;
    while (end < T && starts[end] == starts[position]) ++end;
    return end;
  }
};

template <typename Stored, typename Args>
AttentionHead<Stored> make_head(const Args& args, uint32_t b, uint32_t h) {
  const uint32_t heads = args.attention.heads, kv_heads = args.attention.kv_heads, D = args.C / heads;
  const uint64_t row = (heads + uint64_t{2} * kv_heads) * D, shared = h / (heads / kv_heads);
  const Stored* position = args.qkv + uint64_t{b} * args.T * row;
  return {.T = args.T,
          .D = D,
          .row = row,
          .out = args.C,
          .q = position + uint64_t{h} * D,
          .k = position + (heads + shared) * D,
          .v = position + (heads + kv_heads + shared) * D,
          .starts = args.document_start == nullptr ? nullptr : args.document_start + uint64_t{b} * args.T,
          .attention = args.attention,
          .scale = attention_scale(args.attention, D),
          .first_element = (uint64_t{b} * heads + h) * args.T * args.T};
}

// Dropout of the softmax weights. A weight is dropped with probability p; otherwise it is kept and
// multiplied by `scale`, 1 / (1 - p).
struct WeightMask {
  const StepScalars& scalars;
  uint32_t stream, threshold;
  float scale;

  // Draws random words for consecutive weights from index `element` of the mask on. Weight j is
  // kept if word j is at or above the threshold. `words` has space for 2 * kMaskWords words.
  // Returns the address of word 0, which is up to three words into `words`.
  template <int kLanes>
  REPRISE_INLINE const uint32_t* draw(uint32_t* words, uint64_t element) const {
    const uint32_t skip = static_cast<uint32_t>(element % 4);
    draw_mask_words<kLanes>(words, scalars, stream, element / 4);
    if (skip != 0) draw_mask_words<kLanes>(words + kMaskWords, scalars, stream, element / 4 + kMaskBlocks);
    return words + skip;
  }
};

template <typename Args>
WeightMask make_mask(const Args& args) {
  const float p = args.attention.dropout;
  return {*args.scalars, args.attention.stream, dropout_threshold(p), 1.0f / (1.0f - p)};
}

// Lanes of the vector level at which pairs of bf16 are multiplied by vectors, and of the level at
// which a matrix unit multiplies them. 0 if this build has no such level.
#if defined(REPRISE_BASELINE_ONLY)
constexpr int kVectorPairLanes = 0, kMatrixLanes = 0;
#elif defined(__aarch64__)
constexpr int kVectorPairLanes = 0, kMatrixLanes = 4;
#else
constexpr int kVectorPairLanes = 16, kMatrixLanes = 16;
#endif

// The memory in which a task sums, in f32, dq of a group: the query heads that share a head of keys
// and values.
struct QuerySums {
  float* data;
  uint64_t head, row;  // floats from one head to the next, and from one position to the next

  float* of(uint32_t h, uint32_t position) const { return data + h * head + position * row; }
  void clear(uint32_t heads, uint32_t T, uint32_t D) const {
    for (uint32_t h = 0; h < heads; ++h) {
      for (uint32_t t = 0; t < T; ++t) std::memset(of(h, t), 0, D * sizeof(float));
    }
  }
};
// A task of the backward: every `of`th tile of a group's keys, beginning with tile `index`
// (attention_rules.h).
struct GroupShare {
  uint32_t b, kv_head, index, of;
  QuerySums dq;
};

// Attention in tiles of kTile queries by kTile keys.
template <uint32_t kTile>
struct TiledAttention {
  static_assert(kTile <= kMaskWords);

  // Returns the first position of the earliest tile with a key that one of these queries sees.
  template <typename Stored>
  REPRISE_INLINE static uint32_t first_tile(const AttentionHead<Stored>& head, uint32_t first_query, uint32_t queries) {
    if (!head.hides()) return 0;
    uint32_t first = head.first_seen(first_query);
    for (uint32_t i = 1; i < queries && head.starts != nullptr; ++i)
      first = static_cast<uint32_t>(smaller(first, head.first_seen(first_query + i)));
    return first / kTile * kTile;
  }
  // A range of positions, processed tile by tile. Without causal attention, a query sees a key
  // exactly if the key's position sees the query's position. So keys_of() and queries_of() are then
  // equal.
  struct Walk {
    uint32_t begin, end;
  };
  // Returns a range that contains all keys that one of these queries sees.
  template <typename Stored>
  REPRISE_INLINE static Walk keys_of(const AttentionHead<Stored>& head, uint32_t first_query, uint32_t queries) {
    const uint32_t end = first_query + queries;
    return {first_tile(head, first_query, queries), head.causal() ? end : head.end_of_document(end - 1)};
  }
  // Returns a range that contains all queries that see one of these keys. With causal attention
  // only the window shortens the range; backward_by() then skips the tiles of other documents.
  // Otherwise the documents limit the range, as in keys_of().
  template <typename Stored>
  REPRISE_INLINE static Walk queries_of(const AttentionHead<Stored>& head, uint32_t first_key, uint32_t keys) {
    if (!head.causal()) return keys_of(head, first_key, keys);
    const uint32_t window = head.attention.window;
    return {first_key, window == 0 || window >= head.T
                           ? head.T
                           : static_cast<uint32_t>(smaller(head.T, uint64_t{first_key} + kTile + window))};
  }
  // Returns how many keys of the tile from `first_key` on are before the query's document, or
  // before the query's window.
  template <typename Stored>
  REPRISE_INLINE static uint32_t hidden_keys(const AttentionHead<Stored>& head, uint32_t query, uint32_t first_key) {
    const uint32_t start = head.first_seen(query);
    if (start <= first_key) return 0;
    return start - first_key < kTile ? start - first_key : kTile;
  }
  // Returns how many of the `keys` keys of the tile from `first_key` on are before the end of the
  // query's document.
  template <typename Stored>
  REPRISE_INLINE static uint32_t keys_before_end(const AttentionHead<Stored>& head, uint32_t query, uint32_t first_key,
                                                 uint32_t keys) {
    while (head.starts != nullptr && keys > 0 && static_cast<uint32_t>(head.starts[first_key + keys - 1]) > query)
      --keys;
    return keys;
  }

  // State of the online softmax, for each query of a tile: the largest score so far, and the sum of
  // exponentials relative to that score. `rescale` is the factor by which the current tile of keys
  // rescales the earlier sums.
  struct OnlineSoftmax {
    float largest[kTile], sum[kTile], rescale[kTile];
  };

  // Replaces scores [key][query] by exp(score - largest), with the largest score that the query has
  // seen so far. While a query has seen no key, its largest score is -infinity, and its weights are
  // 0.
  template <int kLanes>
  REPRISE_INLINE static void update_softmax(OnlineSoftmax& state, float* scores, uint32_t keys, bool diagonal) {
    float largest[kTile], shift[kTile], sum[kTile];
    for (uint32_t i = 0; i < kTile; ++i) largest[i] = state.largest[i];
    for (uint32_t s = 0; s < keys; ++s) {
      const float* row = scores + s * kTile;
      for (uint32_t i = diagonal ? first_seeing<kLanes>(s) : 0; i < kTile; ++i)
        largest[i] = row[i] > largest[i] ? row[i] : largest[i];
    }
    for (uint32_t i = 0; i < kTile; ++i) shift[i] = largest[i] == -__builtin_inff() ? 0.0f : largest[i];
    for (uint32_t i = 0; i < kTile; ++i) sum[i] = 0;
    for (uint32_t s = 0; s < keys; ++s) {
      float* row = scores + s * kTile;
      REPRISE_INDEPENDENT
      for (uint32_t i = diagonal ? first_seeing<kLanes>(s) : 0; i < kTile; ++i) {
        row[i] = vector_exp_at_most_88(row[i] - shift[i]);
        sum[i] += row[i];
      }
    }
    for (uint32_t i = 0; i < kTile; ++i) {
      state.rescale[i] = vector_exp_at_most_88(state.largest[i] - shift[i]);
      state.sum[i] = state.sum[i] * state.rescale[i] + sum[i];
      state.largest[i] = largest[i];
    }
  }

  // Applies dropout to weights [key][query]. Random words are drawn for one query and consecutive
  // keys, so the decisions are first stored as bits. Bit j % kBits of kept[j / kBits][query] is 1
  // if the weight of key j is kept.
  template <int kLanes>
  REPRISE_INLINE static void drop_weights(float* weights, const WeightMask& mask, uint64_t first_element, uint32_t T,
                                          uint32_t queries, uint32_t keys) {
    constexpr uint32_t kBits = kTile < 32 ? kTile : 32;
    const uint32_t threshold = mask.threshold;
    const float scale = mask.scale;
    uint32_t kept[kTile / kBits][kTile] = {};
    for (uint32_t i = 0; i < queries; ++i) {
      uint32_t words[2 * kMaskWords];
      const uint32_t* drawn = mask.draw<kLanes>(words, first_element + uint64_t{i} * T);
      for (uint32_t half = 0; half < kTile / kBits; ++half) {
        uint32_t bits = 0;
        for (uint32_t j = 0; j < kBits; ++j) bits |= drawn[half * kBits + j] >= threshold ? 1u << j : 0u;
        kept[half][i] = bits;
      }
    }
    for (uint32_t s = 0; s < keys; ++s) {
      float* row = weights + s * kTile;
      for (uint32_t i = 0; i < kTile; ++i) {
        const float weight = row[i] * scale;
        row[i] = kept[s / kBits][i] >> s % kBits & 1u ? weight : 0.0f;
      }
    }
  }

  // Computes sums[d][i] *= factors[i].
  REPRISE_INLINE static void scale_sums(float* sums, const float* factors, uint32_t D) {
    for (uint32_t d = 0; d < D; ++d, sums += kTile) {
      REPRISE_INDEPENDENT
      for (uint32_t i = 0; i < kTile; ++i) sums[i] *= factors[i];
    }
  }

  // Sets the scores [key][query] of keys in other documents to -infinity.
  template <typename Stored>
  REPRISE_INLINE static void hide_documents(float* scores, const AttentionHead<Stored>& head, uint32_t first_query,
                                            uint32_t queries, uint32_t first_key, uint32_t keys) {
    const int32_t* of_queries = head.starts + first_query;
    for (uint32_t s = 0; s < keys; ++s) {
      float* row = scores + s * kTile;
      const int32_t start = head.starts[first_key + s];
      REPRISE_INDEPENDENT
      for (uint32_t i = 0; i < queries; ++i) row[i] = of_queries[i] == start ? row[i] : -__builtin_inff();
    }
  }
  // Sets scores to -infinity if the query does not see the key: the key is after the query, or
  // before the query's document or window.
  template <typename Stored>
  REPRISE_INLINE static void hide_scores(float* scores, const AttentionHead<Stored>& head, uint32_t first_query,
                                         uint32_t queries, uint32_t first_key, uint32_t keys) {
    for (uint32_t s = 0; s < keys && first_key == first_query; ++s) {
      for (uint32_t i = 0; i < s; ++i) scores[s * kTile + i] = -__builtin_inff();
    }
    if (!head.hides()) return;
    uint32_t hidden[kTile] = {}, maximum = 0;
    for (uint32_t i = 0; i < queries; ++i) {
      hidden[i] = hidden_keys(head, first_query + i, first_key);
      maximum = hidden[i] > maximum ? hidden[i] : maximum;
    }
    for (uint32_t s = 0; s < maximum && s < keys; ++s) {
      float* row = scores + s * kTile;
      for (uint32_t i = 0; i < kTile; ++i) row[i] = s < hidden[i] ? -__builtin_inff() : row[i];
    }
  }

  // Replaces scores [key][query] by softcap tanh(score / softcap).
  REPRISE_INLINE static void cap_scores(float* scores, uint32_t keys, float softcap) {
    const float inverse = 1.0f / softcap;
    REPRISE_INDEPENDENT
    for (uint32_t i = 0; i < keys * kTile; ++i) scores[i] = softcap * vector_tanh(scores[i] * inverse);
  }

  template <int kLanes, typename Tiles, typename Stored>
  REPRISE_INLINE static void forward_by(const AttentionForwardArgsOf<Stored>& args, uint32_t b, uint32_t h,
                                        uint32_t tile, Tiles tiles) {
    OnlineSoftmax state;
    const AttentionHead<Stored> head = make_head<Stored>(args, b, h);
    const uint64_t head_floats = attention_head_floats(head.D, kTile);
    REPRISE_STACK_BUFFER(float, space, kForwardTiles<Stored> * head_floats + kTile * kTile);
    REPRISE_STACK_BUFFER(const float*, lines, head.D);
    tiles.take_buffers(space, lines, head_floats);
    const WeightMask mask = make_mask(args);
    const uint32_t first_query = tile * kTile;
    const uint32_t count = head.T - first_query < kTile ? head.T - first_query : kTile;

    tiles.open_queries({head.q + first_query * head.row, head.row, count}, head.D, head.scale);
    for (uint32_t i = 0; i < kTile; ++i) state.largest[i] = -__builtin_inff();
    for (uint32_t i = 0; i < kTile; ++i) state.sum[i] = 0;
    const Walk walk = keys_of(head, first_query, count);
    for (uint32_t first_key = walk.begin; first_key < walk.end; first_key += kTile) {
      const bool diagonal = head.causal() && first_key == first_query;
      const uint32_t keys = head.T - first_key < kTile ? head.T - first_key : kTile;
      tiles.open_keys({head.k + first_key * head.row, head.row, keys}, {head.v + first_key * head.row, head.row, keys},
                      head.D);
      tiles.multiply_keys(keys, diagonal, head.D, head.scale);
      if (args.attention.softcap > 0) cap_scores(tiles.scores, keys, args.attention.softcap);
      if (head.causal()) {
        hide_scores(tiles.scores, head, first_query, count, first_key, keys);
      } else if (head.starts != nullptr) {
        hide_documents(tiles.scores, head, first_query, count, first_key, keys);
      }
      update_softmax<kLanes>(state, tiles.scores, keys, diagonal);
      if (args.attention.dropout > 0) {
        drop_weights<kLanes>(tiles.scores, mask, head.first_element + uint64_t{first_query} * head.T + first_key,
                             head.T, count, keys);
      }
      if (first_key != walk.begin) scale_sums(tiles.sums, state.rescale, head.D);
      tiles.multiply_values(keys, diagonal, first_key != walk.begin, head.D);
    }
    transpose_sums<kTile, kLanes>(tiles.queries, tiles.sums, tiles.lines, count, head.D);
    Stored* y = args.y + (uint64_t{b} * args.T + first_query) * args.C + uint64_t{h} * head.D;
    float* lse = args.lse + (uint64_t{b} * args.attention.heads + h) * args.T + first_query;
    for (uint32_t i = 0; i < count; ++i)
      copy_scaled<kLanes>(y + i * head.out, tiles.queries + i * head.D, head.D, 1.0f / state.sum[i]);
    for (uint32_t i = 0; i < count; ++i)
      lse[i] = state.largest[i] + static_cast<float>(portable_log(static_cast<double>(state.sum[i])));
  }
  template <int kLanes, typename Stored>
  REPRISE_INLINE static void forward_body(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args,
                                          uint32_t b, uint32_t h, uint32_t tile, AttentionProduct product) {
    if constexpr (kLanes == kVectorPairLanes && kStoredAs<Stored> == DType::kBf16) {
      if (product == AttentionProduct::kVectors)
        return forward_by<kLanes>(args, b, h, tile, PairedForwardTiles<kTile, kLanes>{});
    }
    if constexpr (kLanes == kMatrixLanes && kStoredAs<Stored> == DType::kBf16) {
      if (product == AttentionProduct::kMatrix) {
        const gemm_detail::TileScope scope(*cpu_machine(context).pairs);
        return forward_by<kLanes>(args, b, h, tile, MatrixForwardTiles<kTile, kLanes>{.unit = MatrixUnit(context)});
      }
    }
    forward_by<kLanes>(args, b, h, tile, ForwardTiles<kTile, kLanes, Stored>{});
  }

  // One query head in the backward. `delta` is described at attention_delta_bytes().
  template <typename Stored>
  struct BackwardHead {
    AttentionHead<Stored> head;
    const Stored *y, *dy;
    const float* lse;
    float* delta;
  };
  // Draws the factors by which dropout multiplies the weights of a query: 0 or the mask's scale.
  template <int kLanes>
  REPRISE_INLINE static void draw_factors(float* factors, const WeightMask& mask, uint64_t element) {
    const uint32_t threshold = mask.threshold;
    const float scale = mask.scale;
    uint32_t words[2 * kMaskWords];
    const uint32_t* drawn = mask.draw<kLanes>(words, element);
    for (uint32_t j = 0; j < kTile; ++j) factors[j] = drawn[j] >= threshold ? scale : 0.0f;
  }

  // Caps scores as cap_scores() does. Writes the derivative of the cap at each score to `slopes`.
  REPRISE_INLINE static void cap_with_slopes(float* scores, float* slopes, uint32_t columns, float softcap) {
    const float inverse = 1.0f / softcap;
    REPRISE_INDEPENDENT
    for (uint32_t j = 0; j < columns; ++j) {
      const float bent = vector_tanh(scores[j] * inverse);
      scores[j] = softcap * bent;
      slopes[j] = 1.0f - bent * bent;
    }
  }

  // Replaces the scores in tiles.weights by weights: exp(score - lse) times dropout's factor.
  // tiles.dscores contains dweight, the gradients of the dropped weights. Replaces them by the
  // gradients of the scores: exp(score - lse) (dweight factor - delta) scale, times the cap's
  // derivative.
  template <int kLanes, typename Tiles, typename Stored>
  REPRISE_INLINE static void backward_softmax(const Tiles& tiles, const BackwardHead<Stored>& g, const BackwardTile& t,
                                              const WeightMask* mask) {
    float factors[kTile], slopes[kTile];
    const float softcap = g.head.attention.softcap;
    for (uint32_t j = 0; j < kTile; ++j) factors[j] = 1;
    for (uint32_t i = 0; i < t.queries; ++i) {
      const uint32_t query = t.first_query + i;
      if (mask != nullptr)
        draw_factors<kLanes>(factors, *mask, g.head.first_element + uint64_t{query} * g.head.T + t.first_key);
      const float lse = g.lse[query], delta = g.delta[query], scale = g.head.scale;
      const uint32_t hidden = hidden_keys(g.head, query, t.first_key);
      const uint32_t end = t.diagonal        ? i + 1
                           : g.head.causal() ? t.keys
                                             : keys_before_end(g.head, query, t.first_key, t.keys);
      // The query sees the keys [hidden, end). If j < hidden, the unsigned difference j - hidden
      // wraps to a large number. So `j - hidden < seen` checks both bounds.
      const uint32_t seen = end - hidden;
      const uint32_t columns = end_of_seen<kLanes>(t.diagonal ? i : t.keys - 1, kTile);
      float *weights = tiles.weights + i * kTile, *dscores = tiles.dscores + i * kTile;
      if (softcap > 0) cap_with_slopes(weights, slopes, columns, softcap);
      REPRISE_INDEPENDENT
      for (uint32_t j = 0; j < columns; ++j) {
        const float weight = j - hidden < seen ? vector_exp_at_most_88(weights[j] - lse) : 0.0f;
        dscores[j] = j - hidden < seen ? weight * (dscores[j] * factors[j] - delta) * scale : 0.0f;
        weights[j] = weight * factors[j];
      }
      for (uint32_t j = 0; softcap > 0 && j < columns; ++j) dscores[j] *= slopes[j];
    }
  }

  template <typename Stored>
  REPRISE_INLINE static BackwardHead<Stored> make_backward_head(const AttentionBackwardArgsOf<Stored>& args, uint32_t b,
                                                                uint32_t h) {
    const AttentionHead<Stored> head = make_head<Stored>(args, b, h);
    const uint64_t statistics = (uint64_t{b} * args.attention.heads + h) * args.T,
                   first = uint64_t{b} * args.T * args.C + uint64_t{h} * head.D;
    return {head, args.y + first, args.dy + first, args.lse + statistics,
            static_cast<float*>(args.scratch) + statistics};
  }

  // Computes delta[t] = dy . y over the head's channels. backward_softmax() subtracts it from the
  // weights' gradients.
  template <typename Stored>
  REPRISE_INLINE static void head_delta(const AttentionBackwardArgsOf<Stored>& args, uint32_t b, uint32_t h) {
    const BackwardHead<Stored> g = make_backward_head(args, b, h);
    for (uint32_t t = 0; t < g.head.T; ++t)
      g.delta[t] = sum_of_products(g.dy + t * g.head.out, g.y + t * g.head.out, g.head.D);
  }

  // Writes the gradients of a tile's keys or values, `sums` [d][key], to the rows from `to` on.
  template <int kLanes, typename Tiles, typename Stored>
  REPRISE_INLINE static void close_keys(Stored* to, const Tiles& tiles, const float* sums,
                                        const AttentionHead<Stored>& head, uint32_t keys) {
    transpose_sums<kTile, kLanes>(tiles.keys, sums, tiles.lines, keys, head.D);
    for (uint32_t i = 0; i < keys; ++i) copy_scaled<kLanes>(to + i * head.row, tiles.keys + i * head.D, head.D, 1.0f);
  }

  // Computes the backward of the tiles of keys in `share`. Gradients of a tile's keys and values
  // are summed over the group's heads, and over all tiles of queries that see these keys.
  template <int kLanes, typename Tiles, typename Stored>
  REPRISE_INLINE static void backward_by(const AttentionBackwardArgsOf<Stored>& args, const GroupShare& share,
                                         Tiles tiles) {
    const WeightMask mask = make_mask(args);
    const uint32_t b = share.b, group = args.attention.heads / args.attention.kv_heads,
                   first_head = share.kv_head * group;
    const AttentionHead<Stored> shared = make_head<Stored>(args, b, first_head);
    const uint64_t head_floats = attention_head_floats(shared.D, kTile);
    REPRISE_STACK_BUFFER(float, space, kBackwardTiles<Stored> * head_floats + 2 * kTile * kTile);
    REPRISE_STACK_BUFFER(const float*, lines, shared.D);
    tiles.take_buffers(space, lines, head_floats);

    share.dq.clear(group, shared.T, shared.D);
    for (uint32_t first_key = share.index * kTile; first_key < shared.T; first_key += share.of * kTile) {
      const uint32_t keys = shared.T - first_key < kTile ? shared.T - first_key : kTile;
      tiles.open_keys({shared.k + first_key * shared.row, shared.row, keys},
                      {shared.v + first_key * shared.row, shared.row, keys}, shared.D, shared.scale);
      const Walk walk = queries_of(shared, first_key, keys);
      bool starts_dk = true;
      for (uint32_t h = 0; h < group; ++h) {
        const BackwardHead<Stored> g = make_backward_head(args, b, first_head + h);
        const AttentionHead<Stored>& head = g.head;
        for (uint32_t first_query = walk.begin; first_query < walk.end; first_query += kTile) {
          const uint32_t queries = head.T - first_query < kTile ? head.T - first_query : kTile;
          if (first_tile(head, first_query, queries) > first_key) continue;
          const bool diagonal = head.causal() && first_query == first_key;
          const BackwardTile tile{first_query, queries, first_key, keys, diagonal, starts_dk};
          starts_dk = false;
          tiles.open_queries({head.q + first_query * head.row, head.row, queries},
                             {g.dy + first_query * head.out, head.out, queries}, head.D);
          tiles.multiply_keys(tile, head.D, head.scale);
          backward_softmax<kLanes>(tiles, g, tile, args.attention.dropout > 0 ? &mask : nullptr);
          tiles.close_scores(tile);
          tiles.add_query_gradients(share.dq.of(h, first_query), share.dq.row, tile, head.D);
          tiles.add_key_gradients(tile, head.D);
        }
      }
      close_keys<kLanes>(args.dqkv + (shared.k - args.qkv) + first_key * shared.row, tiles, tiles.dk, shared, keys);
      close_keys<kLanes>(args.dqkv + (shared.v - args.qkv) + first_key * shared.row, tiles, tiles.dv, shared, keys);
    }
  }
  template <int kLanes, typename Stored>
  REPRISE_INLINE static void backward_body(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args,
                                           const GroupShare& share, AttentionProduct product) {
    if constexpr (kLanes == kVectorPairLanes && kStoredAs<Stored> == DType::kBf16) {
      if (product == AttentionProduct::kVectors) {
        return backward_by<kLanes>(args, share, PairedBackwardTiles<kTile, kLanes>{});
      }
    }
    if constexpr (kLanes == kMatrixLanes && kStoredAs<Stored> == DType::kBf16) {
      if (product == AttentionProduct::kMatrix) {
        const gemm_detail::TileScope scope(*cpu_machine(context).pairs);
        return backward_by<kLanes>(args, share, MatrixBackwardTiles<kTile, kLanes>{.unit = MatrixUnit(context)});
      }
    }
    backward_by<kLanes>(args, share, BackwardTiles<kTile, kLanes, Stored>{});
  }
};

using LargeTiles = TiledAttention<kLargeBlocks.attention_tile>;
using SmallTiles = TiledAttention<kSmallBlocks.attention_tile>;
REPRISE_STORAGE_LEVELS(forward_tile, LargeTiles::forward_body<kLanes>,
                       (const KernelContext& context, const AttentionForwardArgsOf<Stored>& args, uint32_t b,
                        uint32_t h, uint32_t tile, AttentionProduct product),
                       (context, args, b, h, tile, product))
REPRISE_STORAGE_LEVELS(find_delta, LargeTiles::head_delta,
                       (const AttentionBackwardArgsOf<Stored>& args, uint32_t b, uint32_t h), (args, b, h))
REPRISE_STORAGE_LEVELS(backward_share, LargeTiles::backward_body<kLanes>,
                       (const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args,
                        const GroupShare& share, AttentionProduct product),
                       (context, args, share, product))

// Small cores have only the baseline level, and do not multiply pairs of bf16.
constexpr uint32_t kSmallTile = kSmallBlocks.attention_tile;
constexpr int kSmallLanes = 4;
template <typename Stored>
void small_forward_tile(const AttentionForwardArgsOf<Stored>& args, uint32_t b, uint32_t h, uint32_t tile) {
  SmallTiles::forward_by<kSmallLanes>(args, b, h, tile, ForwardTiles<kSmallTile, kSmallLanes, Stored>{});
}
template <typename Stored>
void small_backward_share(const AttentionBackwardArgsOf<Stored>& args, const GroupShare& share) {
  SmallTiles::backward_by<kSmallLanes>(args, share, BackwardTiles<kSmallTile, kSmallLanes, Stored>{});
}

// Combines dq of a group: provides the memory in which the group's tasks sum dq, and writes the
// total.
template <typename Stored>
class GroupQueries {
 public:
  // Borrows `buffers`, the scratch for attention_buffers() buffers.
  GroupQueries(const AttentionBackwardArgsOf<Stored>& args, uint32_t b, uint32_t kv_head, float* buffers)
      : head_(make_head<Stored>(args, b, kv_head * (args.attention.heads / args.attention.kv_heads))),
        heads_(args.attention.heads / args.attention.kv_heads),
        dq_(args.dqkv + (head_.q - args.qkv)),
        buffers_(buffers) {}

  QuerySums of_share(uint32_t share) const {
    if constexpr (kStoredAs<Stored> == DType::kF32) {
      if (share == 0) return {dq_, head_.D, head_.row};
      --share;
    }
    const uint64_t head_floats = uint64_t{head_.T} * head_.D;
    return {buffers_ + share * heads_ * head_floats, head_floats, head_.D};
  }

  // Writes dq of head h of the group, rounded to the type of dqkv: the sum of both tasks' sums, or
  // the sums of the only task.
  template <int kLanes>
  REPRISE_INLINE static void close(const GroupQueries& group, uint32_t h) {
    const AttentionHead<Stored>& head = group.head_;
    const bool both = attention_shares(group.heads_) == 2;
    const QuerySums first = group.of_share(0), second = group.of_share(both ? 1 : 0);
    for (uint32_t t = 0; t < head.T; ++t) {
      Stored* dq = group.dq_ + h * head.D + t * head.row;
      if (both) {
        add_rows<kLanes>(dq, first.of(h, t), second.of(h, t), head.D);
      } else {
        copy_scaled<kLanes>(dq, first.of(h, t), head.D, 1.0f);
      }
    }
  }

 private:
  template <int kLanes>
  REPRISE_INLINE static void add_rows(Stored* to, const float* a, const float* b, uint32_t D) {
    typename VectorOf<kLanes>::type x, y;
    uint32_t d = 0;
    for (; d + kLanes <= D; d += kLanes) {
      read_vector<kLanes>(x, a + d);
      read_vector<kLanes>(y, b + d);
      write_vector<kLanes>(to + d, x + y);
    }
    for (; d < D; ++d) to[d] = a[d] + b[d];
  }

  AttentionHead<Stored> head_;
  uint32_t heads_;
  Stored* dq_;
  float* buffers_;
};
REPRISE_STORAGE_LEVELS(close_queries, GroupQueries<Stored>::template close<kLanes>,
                       (const GroupQueries<Stored>& group, uint32_t h), (group, h))

Status check_head(uint32_t C, uint32_t heads) {
  if (heads != 0 && C % heads == 0 && C / heads <= kAttentionMaxHead) return ok_status();
  return {Code::kUnsupported, "attention on the CPU takes heads that divide C, of at most 256 channels each", heads};
}

// True if each position's document starts at or before that position. Without causal attention, the
// positions of a document must also be contiguous. Otherwise notes the first wrong position as a
// fault.
template <typename Args>
bool starts_are_right(const KernelContext& context, const Args& args) {
  if (args.document_start == nullptr) return true;
  for (uint64_t i = 0; i < uint64_t{args.B} * args.T; ++i) {
    const int32_t start = args.document_start[i];
    const uint32_t t = static_cast<uint32_t>(i % args.T);
    const bool is_before = start >= 0 && static_cast<uint32_t>(start) <= t;
    if (is_before &&
        (args.attention.causal != 0 || static_cast<uint32_t>(start) == t || start == args.document_start[i - 1]))
      continue;
    note_fault(context, DataFault::kDocument, i);
    return false;
  }
  return true;
}

}  // namespace

template <typename Stored>
Status cpu_attention_forward(const KernelContext& context, const AttentionForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t heads = args.attention.heads;
  REPRISE_RETURN_IF_ERROR(check_head(args.C, heads));
  if (!starts_are_right(context, args)) {
    std::memset(args.y, 0, uint64_t{args.B} * args.T * args.C * sizeof(Stored));
    std::memset(args.lse, 0, uint64_t{args.B} * heads * args.T * sizeof(float));
    return ok_status();
  }
  const CpuSize size = cpu_machine(context).size;
  const AttentionProduct product = attention_product(cpu_machine(context).pairs, args.C / heads);
  const uint32_t tiles = Partition{args.T, blocks_of(size).attention_tile}.count();
  // Tasks are ordered by head, so that keys and values stay in a cache. A head's last tile is
  // first, because with causal attention its queries see the most keys.
  parallel_for(*context.workers, args.B * heads * tiles, [&](uint32_t task) {
    const uint32_t head = task / tiles, tile = tiles - 1 - task % tiles;
    if (size == CpuSize::kSmall) return small_forward_tile(args, head / heads, head % heads, tile);
    forward_tile(level, context, args, head / heads, head % heads, tile, product);
  });
  return ok_status();
}

template <typename Stored>
Status cpu_attention_backward(const KernelContext& context, const AttentionBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t heads = args.attention.heads, kv_heads = args.attention.kv_heads, groups = args.B * kv_heads;
  REPRISE_RETURN_IF_ERROR(check_head(args.C, heads));
  if (!starts_are_right(context, args)) {
    const uint64_t row = (heads + uint64_t{2} * kv_heads) * (args.C / heads);
    std::memset(args.dqkv, 0, uint64_t{args.B} * args.T * row * sizeof(Stored));
    return ok_status();
  }
  const CpuSize size = cpu_machine(context).size;
  const AttentionProduct product = attention_product(cpu_machine(context).pairs, args.C / heads);
  const uint32_t heads_of_group = heads / kv_heads, shares = attention_shares(heads_of_group),
                 buffers = attention_buffers(heads_of_group, kStoredAs<Stored>);
  const uint32_t at_once = static_cast<uint32_t>(attention_groups_at_once(groups, heads_of_group, kStoredAs<Stored>));
  float* sums =
      static_cast<float*>(args.scratch) + attention_delta_bytes(uint64_t{args.B} * heads * args.T) / sizeof(float);
  const auto queries_of_group = [&](uint32_t first, uint32_t i) {
    const uint32_t group = first + i;
    return GroupQueries<Stored>(args, group / kv_heads, group % kv_heads,
                                sums + uint64_t{i} * buffers * args.T * (args.C / kv_heads));
  };
  // Not inlined, because inlining would enlarge the stack frame of the tiles, and a small core has
  // no stack left for that.
  const auto sums_of_task = [&](uint32_t first, uint32_t task) __attribute__((noinline)) {
    return queries_of_group(first, task / shares).of_share(task % shares);
  };
  parallel_for(*context.workers, args.B * heads,
               [&](uint32_t head) { find_delta(level, args, head / heads, head % heads); });
  for (uint32_t first = 0; first < groups; first += at_once) {
    const uint32_t count = groups - first < at_once ? groups - first : at_once;
    parallel_for(*context.workers, count * shares, [&](uint32_t task) {
      const uint32_t group = first + task / shares;
      const GroupShare share{group / kv_heads, group % kv_heads, task % shares, shares, sums_of_task(first, task)};
      if (size == CpuSize::kSmall) return small_backward_share(args, share);
      backward_share(level, context, args, share, product);
    });
    if (buffers == 0) continue;
    parallel_for(*context.workers, count * heads_of_group, [&](uint32_t head) {
      close_queries(level, queries_of_group(first, head / heads_of_group), head % heads_of_group);
    });
  }
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_attention_forward, AttentionForwardArgs)
REPRISE_INSTANTIATE(cpu_attention_backward, AttentionBackwardArgs)

}  // namespace reprise
