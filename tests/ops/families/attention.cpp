// Attention of grouped heads over documents, causal and not causal, and for generation: cases,
// data, reference and gradient check.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/attention/attention_rules.h"
#include "lib/cpu/attention/attention_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/random.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference: computes the whole T x T matrix and the derivative of softmax ----

// The attributes and masks of a case's attention.
struct Setting {
  size_t heads, kv_heads;
  Array mask;    // [B,heads,T,T]: dropout factors; one element if there is no dropout
  Array starts;  // [B,T]: the first position to which each position attends
  double scale = 0, softcap = 0;  // as in AttentionAttribute
  bool causal = true;
  size_t D(const Array& qkv) const { return qkv.shape(2) / (heads + 2 * kv_heads); }
};

// One query head of one sequence, with the keys and values that it reads. q, k and v are [T,D];
// q_column, k_column and v_column are their first columns in qkv. `mask` contains dropout factors
// [T,T]. Position t attends to positions [first(t), end(t)).
struct QueryHead {
  size_t q_column, k_column, v_column;
  double own_scale, softcap;
  Array q, k, v, mask, starts, ends;
  size_t T() const { return q.shape(0); }
  size_t D() const { return q.shape(1); }
  size_t first(size_t t) const { return static_cast<size_t>(starts(t)); }
  size_t end(size_t t) const { return static_cast<size_t>(ends(t)); }
  double scale() const { return own_scale != 0 ? own_scale : 1.0 / std::sqrt(static_cast<double>(D())); }
  double capped(double score) const { return softcap == 0 ? score : softcap * std::tanh(score / softcap); }
  double slope(double capped) const { return softcap == 0 ? 1.0 : 1.0 - capped / softcap * (capped / softcap); }
};

// Returns head `h` of sequence `b`. The columns of qkv are the query heads, then the key heads,
// then the value heads. Consecutive query heads share a key head and a value head.
QueryHead head_of(const Array& qkv, const Setting& how, size_t b, size_t h) {
  const size_t T = qkv.shape(1), D = how.D(qkv), shared = h * how.kv_heads / how.heads;
  const size_t q = h * D, k = (how.heads + shared) * D, v = (how.heads + how.kv_heads + shared) * D;
  const auto part = [&](size_t column) -> Array { return xt::view(qkv, b, xt::all(), xt::range(column, column + D)); };
  QueryHead head{q,         k,       v,       how.scale,          how.softcap,
                 part(q),   part(k), part(v), Array({T, T}, 1.0), xt::view(how.starts, b, xt::all()),
                 zeros({T})};
  for (size_t t = 0; t < T; ++t) {
    size_t end = t + 1;
    while (!how.causal && end < T && head.starts(end) == head.starts(t)) ++end;
    head.ends(t) = static_cast<double>(end);
  }
  if (how.mask.size() > 1) head.mask = xt::view(how.mask, b, h, xt::all(), xt::all());
  return head;
}

struct Weights {
  Array p;          // [T,T]: softmax over first(t) <= s < end(t), before dropout
  Array scores;     // [T,T]: capped scores
  Array lse;        // log-sum-exp of the scores
  // [T]: the factor by which rounding errors of scores grow in p. It is 1 + |lse| + the largest
  // scaled sum of |q k| over a key.
  Array sharpness;
};

// Returns p plus a value that makes the tolerance 2^-126 larger, because a weight that is denormal
// in f32 may become 0.
double with_flushed(double p) { return p + 0x1p-126 / (kSafety * kRounding); }

Weights attention_weights(const QueryHead& head) {
  const size_t T = head.T(), D = head.D();
  Weights out{zeros({T, T}), zeros({T, T}), zeros({T}), zeros({T})};
  const auto q = view<2>(head.q), k = view<2>(head.k);
  auto p = view<2>(out.p);
  for (size_t t = 0; t < T; ++t) {
    double largest = -std::numeric_limits<double>::infinity(), magnitude = 0;
    for (size_t s = head.first(t); s < head.end(t); ++s) {
      double score = 0, terms = 0;
      for (size_t d = 0; d < D; ++d) {
        score += q(t, d) * k(s, d);
        terms += std::abs(q(t, d) * k(s, d));
      }
      p(t, s) = out.scores(t, s) = head.capped(score * head.scale());
      largest = std::max(largest, p(t, s));
      magnitude = std::max(magnitude, terms * head.scale());
    }
    double sum = 0;
    for (size_t s = head.first(t); s < head.end(t); ++s) sum += std::exp(p(t, s) - largest);
    out.lse(t) = largest + std::log(sum);
    for (size_t s = head.first(t); s < head.end(t); ++s) p(t, s) = std::exp(p(t, s) - out.lse(t));
    out.sharpness(t) = 1 + magnitude + std::abs(out.lse(t));
  }
  return out;
}

struct AttentionResult {
  Array y, lse;                       // [B,T,C], [B,heads,T]
  Array y_magnitude, lse_magnitude;
  Array y_rounded;                    // error if weights are rounded to bf16 before they multiply v (ref/array.h)
};

AttentionResult attention_forward(const Array& qkv, const Setting& how) {
  const size_t B = qkv.shape(0), T = qkv.shape(1), D = how.D(qkv), heads = how.heads, C = heads * D;
  AttentionResult out{zeros({B, T, C}), zeros({B, heads, T}), zeros({B, T, C}), zeros({B, heads, T}), zeros({B, T, C})};
  auto y = view<3>(out.y), y_magnitude = view<3>(out.y_magnitude), y_rounded = view<3>(out.y_rounded);
  for (size_t b = 0; b < B; ++b)
    for (size_t h = 0; h < heads; ++h) {
      const QueryHead head = head_of(qkv, how, b, h);
      const Weights weights = attention_weights(head);
      const auto p = view<2>(weights.p), factor = view<2>(head.mask), v = view<2>(head.v);
      for (size_t t = 0; t < T; ++t) {
        out.lse(b, h, t) = weights.lse(t);
        out.lse_magnitude(b, h, t) = weights.sharpness(t);
        for (size_t s = head.first(t); s < head.end(t); ++s)
          for (size_t d = 0; d < D; ++d) {
            const double term = factor(t, s) * p(t, s) * v(s, d);
            y(b, t, h * D + d) += term;
            y_rounded(b, t, h * D + d) += term * term;
            y_magnitude(b, t, h * D + d) +=
                factor(t, s) * with_flushed(p(t, s)) * std::abs(v(s, d)) * weights.sharpness(t);
          }
      }
    }
  out.y_rounded = xt::sqrt(out.y_rounded);
  return out;
}

struct AttentionGradient {
  Array dqkv, magnitude;
  // Error if weights and gradients of scores are rounded to bf16 before they multiply dy, k and q
  // (ref/array.h).
  Array rounded;
};

// Returns the gradient of qkv. The derivative of softmax uses `stored_y`, the y as stored in bf16,
// or the exact y if `stored_y` is null.
AttentionGradient attention_backward(const Array& qkv, const Setting& how, const Array& dy_in,
                                     const Array* stored_y = nullptr) {
  const size_t B = qkv.shape(0), T = qkv.shape(1), D = how.D(qkv), heads = how.heads;
  AttentionGradient out{zeros({B, T, qkv.shape(2)}), zeros({B, T, qkv.shape(2)}), zeros({B, T, qkv.shape(2)})};
  auto dqkv = view<3>(out.dqkv), magnitude = view<3>(out.magnitude), rounded = view<3>(out.rounded);
  const auto dy = view<3>(dy_in);
  for (size_t b = 0; b < B; ++b)
    for (size_t h = 0; h < heads; ++h) {
      const QueryHead head = head_of(qkv, how, b, h);
      const Weights weights = attention_weights(head);
      const auto p = view<2>(weights.p), factor = view<2>(head.mask);
      const auto q = view<2>(head.q), k = view<2>(head.k), v = view<2>(head.v);
      const double scale = head.scale();
      std::vector<double> dp(T), dp_magnitude(T);
      for (size_t t = 0; t < T; ++t) {
        double dot = 0, dot_magnitude = 0;  // sum of p dp over s, which the derivative of softmax subtracts
        for (size_t s = head.first(t); s < head.end(t); ++s) {
          dp[s] = dp_magnitude[s] = 0;
          for (size_t d = 0; d < D; ++d) {
            const double term = factor(t, s) * dy(b, t, h * D + d) * v(s, d);
            dp[s] += term;
            dp_magnitude[s] += std::abs(term);
          }
          dot += p(t, s) * dp[s];
          dot_magnitude += p(t, s) * dp_magnitude[s];
        }
        if (stored_y != nullptr) {
          dot = 0;
          for (size_t d = 0; d < D; ++d) dot += dy(b, t, h * D + d) * (*stored_y)(b, t, h * D + d);
        }
        for (size_t s = head.first(t); s < head.end(t); ++s) {
          const double slope = head.slope(weights.scores(t, s));
          const double ds = p(t, s) * (dp[s] - dot) * scale * slope;
          const double ds_magnitude =
              with_flushed(p(t, s)) * (dp_magnitude[s] + dot_magnitude) * weights.sharpness(t) * scale;
          for (size_t d = 0; d < D; ++d) {
            const double dy_kept = factor(t, s) * dy(b, t, h * D + d);
            const auto add = [&](size_t position, size_t column, double term) {
              dqkv(b, position, column + d) += term;
              rounded(b, position, column + d) += term * term;
            };
            add(t, head.q_column, ds * k(s, d));
            add(s, head.k_column, ds * q(t, d));
            add(s, head.v_column, p(t, s) * dy_kept);
            magnitude(b, t, head.q_column + d) += ds_magnitude * std::abs(k(s, d));
            magnitude(b, s, head.k_column + d) += ds_magnitude * std::abs(q(t, d));
            magnitude(b, s, head.v_column + d) += with_flushed(p(t, s)) * std::abs(dy_kept) * weights.sharpness(t);
          }
        }
      }
    }
  out.rounded = xt::sqrt(out.rounded);
  return out;
}

// ---- generation: the last rows of an attention over all positions ----

using Decode = AttentionDecode;

// Rows of a decode call: the number of rows that are not padding, and the position of the first row
// in the sequence.
struct NewRows {
  size_t count = 0, position = 0;
};
NewRows new_rows(const Array& starts) {
  NewRows rows;
  while (rows.count < starts.size() && starts.flat(rows.count) <= static_cast<double>(rows.count)) ++rows.count;
  if (rows.count > 0) rows.position = static_cast<size_t>(-starts.flat(0));
  return rows;
}

// Returns qkv of all positions up to the last new position. Keys and values of earlier positions
// are copied from the caches. The queries of earlier positions are zero, because their results are
// not read.
Array with_past(const Oracle& o, const NewRows& rows) {
  const Array &keys = o.value(Decode::kKeys), &values = o.value(Decode::kValues), &qkv = o.value(Decode::kQkv);
  const size_t W = qkv.shape(2), shared = keys.shape(1), C = W - 2 * shared;
  Array all = zeros({1, rows.position + rows.count, W});
  for (size_t p = 0; p < rows.position; ++p) {
    for (size_t c = 0; c < shared; ++c) all(0, p, C + c) = keys(p, c), all(0, p, C + shared + c) = values(p, c);
  }
  for (size_t t = 0; t < rows.count; ++t) {
    for (size_t c = 0; c < W; ++c) all(0, rows.position + t, c) = qkv(0, t, c);
  }
  return all;
}

// Returns the first position to which each position attends: its start, or a later position if the
// window requires it.
Array within_window(Array starts, uint32_t window) {
  const size_t T = starts.shape(1);
  for (size_t i = 0; window != 0 && i < starts.size(); ++i) {
    const double t = static_cast<double>(i % T), first = t + 1 - static_cast<double>(window);
    starts.flat(i) = std::max(starts.flat(i), first);
  }
  return starts;
}

void expect_decode(Oracle& o) {
  const AttentionAttribute& attention = o.c.as<AttentionAttribute>();
  const NewRows rows = new_rows(o.value(Decode::kDocumentStart));
  const Array all = with_past(o, rows);
  const size_t T = all.shape(1), P = o.c.tensor(Decode::kY).shape[1], C = o.c.tensor(Decode::kY).shape[2],
               shared = o.value(Decode::kKeys).shape(1);
  const AttentionResult r =
      attention_forward(all, {attention.heads, attention.kv_heads, Array(Array::shape_type{1}, 1.0),
                              within_window(zeros({1, T}), attention.window), static_cast<double>(attention.scale),
                              static_cast<double>(attention.softcap)});
  Array y = zeros({1, P, C}), magnitude = y, keys = o.value(Decode::kKeys), values = o.value(Decode::kValues);
  for (size_t t = 0; t < rows.count; ++t) {
    const size_t p = rows.position + t;
    for (size_t c = 0; c < C; ++c) y(0, t, c) = r.y(0, p, c), magnitude(0, t, c) = r.y_magnitude(0, p, c);
    for (size_t c = 0; c < shared; ++c) keys(p, c) = all(0, p, C + c), values(p, c) = all(0, p, C + shared + c);
  }
  o.expect(Decode::kY, {y, magnitude, static_cast<double>(T + C / attention.heads)});
  o.expect(Decode::kKeys, exact(keys));
  o.expect(Decode::kValues, exact(values));
}

// The differences of a case from plain causal attention.
struct Variant {
  uint32_t window = 0;
  float softcap = 0, scale = 0;
  bool causal = true;

  AttentionAttribute of(uint32_t heads, uint32_t kv_heads, float dropout) const {
    return {heads, kv_heads, dropout, 9, window, softcap, scale, causal};
  }
  std::string tag() const {
    return (window == 0 ? "" : "_w" + str(window)) + (softcap == 0 ? "" : "_capped") + (scale == 0 ? "" : "_scaled") +
           (causal ? "" : "_full");
  }
};

void add_decode(CaseTable& table, uint32_t P, uint32_t L, uint32_t heads, uint32_t kv_heads, uint32_t D,
                CaseValues data = CaseValues::kPlain, const char* name = "", const Variant& variant = {}) {
  const auto cache = shaped({L, kv_heads * D});
  const std::string tag =
      "p" + str(P) + "_l" + str(L) + "_h" + str(heads) + "_kv" + str(kv_heads) + "_d" + str(D) + variant.tag() + name;
  table
      .add<Decode>(tag,
                   {{Decode::kY, shaped({1, P, heads * D})},
                    {Decode::kKeys, cache},
                    {Decode::kValues, cache},
                    {Decode::kQkv, shaped({1, P, (heads + 2 * kv_heads) * D})},
                    {Decode::kDocumentStart, shaped({1, P}, DType::kI32)}},
                   variant.of(heads, kv_heads, 0))
      .data = data;
}

void add_decode_cases(CaseTable& table) {
  add_decode(table, 1, 1, 1, 1, 1);
  add_decode(table, 1, 40, 4, 2, 6);
  add_decode(table, 3, 3, 2, 1, 5);
  add_decode(table, 4, 64, 2, 2, 16);
  add_decode(table, 8, 65, 6, 2, 8);
  add_decode(table, 5, 200, 3, 1, 64);
  add_decode(table, 16, 300, 4, 4, 33);
  add_decode(table, 2, 70, 1, 1, 256);
  add_decode(table, 7, 130, 9, 3, 8, CaseValues::kLarge, "_large");
  add_decode(table, 5, 200, 3, 1, 16, CaseValues::kPlain, "", {.window = 1});
  add_decode(table, 9, 300, 4, 2, 8, CaseValues::kPlain, "", {.window = 7});
  add_decode(table, 5, 200, 2, 1, 24, CaseValues::kPlain, "", {.window = 100, .softcap = 2, .scale = 0.5f});
  add_decode(table, 3, 90, 2, 2, 8, CaseValues::kLarge, "_large", {.softcap = 20});
  add_decode(table, 4, 9, 2, 1, 4, CaseValues::kBadHigh, "_bad_high");
  add_decode(table, 4, 9, 2, 1, 4, CaseValues::kBadLow, "_bad_low");
}

// Sets starts so that the new rows begin at a random position of the caches, and the remaining rows
// are padding. With a bad index, either the rows end after the caches (kBadHigh), or they are not
// consecutive (kBadLow).
void fit_decode(CaseDraft& draft) {
  const uint64_t P = draft.c.tensor(Decode::kY).shape[1], L = draft.c.tensor(Decode::kKeys).shape[0];
  Array& starts = draft.value(Decode::kDocumentStart);
  const uint64_t rows = draft.c.expects_bad_index() ? P : 1 + draft.random.below(P);
  const uint64_t position = draft.c.data == CaseValues::kBadHigh ? L - rows + 1 : draft.random.below(L - rows + 1);
  for (uint64_t t = 0; t < P; ++t)
    starts.flat(t) = t < rows ? -static_cast<double>(position) : static_cast<double>(t + 1);
  if (!draft.c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kDocument;
  draft.data.bad_position = draft.c.data == CaseValues::kBadHigh ? P - 1 : 2;
  if (draft.c.data == CaseValues::kBadLow) starts.flat(2) += 1;
}

// ---- arguments of both passes of a training ----

uint32_t qkv_of(const KernelCase& c) {
  if (c.pass == Pass::kDecode) return Decode::kQkv;
  if (c.pass == Pass::kForward) return AttentionForward::kQkv;
  return AttentionBackward::kQkv;
}
uint32_t starts_of(const KernelCase& c) {
  if (c.pass == Pass::kForward) return AttentionForward::kDocumentStart;
  return AttentionBackward::kDocumentStart;
}

Setting setting_of(const KernelCase& c, const CaseData& data) {
  const AttentionAttribute& attention = c.as<AttentionAttribute>();
  const Tensor& qkv = c.tensor(qkv_of(c));
  const size_t B = qkv.shape[0], T = qkv.shape[1], heads = attention.heads;
  Setting how{heads, attention.kv_heads, Array(Array::shape_type{1}, 1.0), zeros({B, T})};
  if (attention.dropout != 0) {
    how.mask = dropout_mask(data.scalars, attention.stream, B * heads * T * T, attention.dropout);
    how.mask.reshape({B, heads, T, T});
  }
  if (c.has(starts_of(c))) how.starts = data.values[starts_of(c)];
  how.starts = within_window(how.starts, attention.window);
  how.scale = static_cast<double>(attention.scale), how.softcap = static_cast<double>(attention.softcap);
  how.causal = attention.causal != 0;
  return how;
}

// ---- cases ----

struct Shape {
  uint32_t B, T, heads, kv_heads, D;
};

void add_attention(CaseTable& table, const Shape& s, float dropout, bool documents,
                   CaseValues data = CaseValues::kPlain, const char* name = "", const Variant& variant = {}) {
  const uint32_t C = s.heads * s.D;
  const auto qkv = shaped({s.B, s.T, (s.heads + 2 * s.kv_heads) * s.D}), y = shaped({s.B, s.T, C}),
             lse = shaped({s.B, s.heads, s.T});
  const auto starts = documents ? shaped({s.B, s.T}, DType::kI32) : std::nullopt;
  const std::string groups = s.kv_heads == s.heads ? "" : "_kv" + str(s.kv_heads);
  const std::string tag = "b" + str(s.B) + "_t" + str(s.T) + "_h" + str(s.heads) + groups + "_d" + str(s.D) + "_p" +
                          str(static_cast<uint64_t>(100 * dropout + 0.5f)) + variant.tag() + name;
  const AttentionAttribute attention = variant.of(s.heads, s.kv_heads, dropout);
  const uint64_t pairs = variant.causal ? uint64_t{s.T} * (s.T + 1) / 2 : uint64_t{s.T} * s.T,
                 work = s.B * s.heads * pairs * s.D * 2;
  const auto set = [&](KernelCase& c, uint64_t multiply_adds) { c.data = data, c.multiply_adds = multiply_adds; };
  using Forward = AttentionForward;
  using Backward = AttentionBackward;
  set(table.add<Forward>(tag,
                         {{Forward::kY, y},
                          {Forward::kLse, lse},
                          {Forward::kQkv, qkv},
                          {Forward::kDocumentStart, starts},
                          {Forward::kScalars, scalars_tensor()}},
                         attention),
      work);
  set(table.add<Backward>(tag,
                          {{Backward::kDqkv, qkv},
                           {Backward::kQkv, qkv},
                           {Backward::kY, y},
                           {Backward::kLse, lse},
                           {Backward::kDy, y},
                           {Backward::kDocumentStart, starts},
                           {Backward::kScalars, scalars_tensor()}},
                          attention),
      work * 5 / 2);
}
void add_attention(CaseTable& table, uint32_t B, uint32_t T, uint32_t heads, uint32_t D, float dropout,
                   CaseValues data = CaseValues::kPlain, const char* name = "") {
  add_attention(table, {B, T, heads, heads, D}, dropout, false, data, name);
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_attention(table, 4, 256, 12, 64, 0.0f);
  add_attention(table, 1, 1, 1, 1, 0.0f);
  add_attention(table, 2, 5, 2, 3, 0.0f);
  add_attention(table, 1, 33, 3, 8, 0.0f);
  add_attention(table, 2, 67, 2, 16, 0.0f);
  add_attention(table, 1, 130, 3, 5, 0.0f);
  add_attention(table, 1, 200, 1, 64, 0.0f);
  add_attention(table, 1, 40, 2, 80, 0.0f);
  add_attention(table, 1, 50, 2, 8, 0.0f, CaseValues::kLarge, "_large");
  add_attention(table, 1, 63, 1, 32, 0.0f);          // sizes below, at and above a tile
  add_attention(table, 3, 64, 1, 16, 0.0f);
  add_attention(table, 1, 65, 2, 24, 0.0f);
  add_attention(table, 1, 128, 1, 7, 0.0f);
  add_attention(table, 1, 20, 1, 130, 0.0f);
  add_attention(table, 1, 70, 1, 256, 0.0f);
  add_attention(table, 1, 1, 2, 4, 0.5f);
  add_attention(table, 2, 35, 3, 6, 0.1f);
  add_attention(table, 1, 129, 2, 16, 0.5f);
  add_attention(table, 1, 64, 1, 1, 0.25f);
  add_attention(table, {2, 9, 4, 1, 3}, 0.0f, false);   // grouped queries
  add_attention(table, {1, 65, 6, 2, 8}, 0.0f, false);
  add_attention(table, {2, 70, 4, 2, 16}, 0.25f, false);
  // More heads share a key head than a backward in bf16 processes at once.
  add_attention(table, {1, 130, 20, 1, 4}, 0.0f, false);
  add_attention(table, {3, 64, 12, 6, 5}, 0.0f, false);
  add_attention(table, {2, 1, 2, 2, 4}, 0.0f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {2, 63, 2, 2, 8}, 0.0f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {2, 64, 1, 1, 8}, 0.1f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {2, 65, 2, 1, 8}, 0.0f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {2, 200, 2, 1, 16}, 0.0f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {1, 300, 4, 2, 8}, 0.25f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {1, 130, 2, 2, 8}, 0.0f, true, CaseValues::kLarge, "_documents_large");
  add_attention(table, {1, 135, 2, 2, 8}, 0.0f, true, CaseValues::kSingles, "_documents_of_one");
  add_attention(table, {1, 67, 2, 1, 6}, 0.5f, true, CaseValues::kSingles, "_documents_of_one");
  add_attention(table, {2, 200, 2, 2, 8}, 0.0f, true, CaseValues::kScattered, "_scattered_starts");
  add_attention(table, 1, 20, 1, 40, 0.0f);
  add_attention(table, {1, 140, 2, 1, 64}, 0.1f, true, CaseValues::kPlain, "_documents");   // wide heads, several tiles
  add_attention(table, {1, 140, 2, 1, 128}, 0.1f, false);
  add_attention(table, {1, 67, 1, 1, 128}, 0.0f, true, CaseValues::kPlain, "_documents");
  add_attention(table, {1, 100, 3, 1, 34}, 0.1f, true, CaseValues::kPlain, "_documents");   // 17 pairs: over one group
  add_attention(table, 2, 131, 1, 96, 0.0f);
  // One position fewer, and one more, than a card's tile of 128 queries and keys.
  add_attention(table, 1, 127, 1, 64, 0.0f);
  add_attention(table, 1, 129, 1, 64, 0.0f);
  const auto add_variant = [&table](const Shape& s, float dropout, bool documents, const Variant& variant,
                                    CaseValues data = CaseValues::kPlain) {
    add_attention(table, s, dropout, documents, data,
                  documents                    ? "_documents"
                  : data == CaseValues::kLarge ? "_large"
                                               : "",
                  variant);
  };
  add_variant({1, 70, 2, 1, 8}, 0.0f, false, {.window = 1});      // a position attends only to itself
  add_variant({2, 65, 2, 2, 8}, 0.0f, false, {.window = 5});
  add_variant({1, 200, 4, 2, 16}, 0.1f, false, {.window = 64});   // the window is a whole tile
  // For a tile of queries, some tiles of keys are entirely visible, some partly, some not at all.
  add_variant({1, 300, 2, 1, 8}, 0.0f, false, {.window = 130});
  add_variant({1, 66, 1, 1, 8}, 0.0f, false, {.window = 66});     // the window is as wide as the sequence
  add_variant({2, 200, 2, 1, 16}, 0.0f, true, {.window = 33});
  add_variant({1, 300, 4, 2, 8}, 0.25f, true, {.window = 70});
  add_variant({1, 330, 2, 1, 64}, 0.1f, true, {.window = 90});    // wide heads over several tiles of a card
  add_variant({1, 330, 2, 1, 128}, 0.0f, false, {.window = 100});
  add_variant({1, 67, 2, 1, 12}, 0.0f, false, {.scale = 0.7f});
  add_variant({2, 67, 2, 1, 16}, 0.0f, false, {.softcap = 1.5f});
  add_variant({1, 130, 2, 2, 8}, 0.2f, true, {.softcap = 3, .scale = 0.25f});
  add_variant({1, 70, 2, 1, 8}, 0.0f, false, {.softcap = 30}, CaseValues::kLarge);
  add_variant({1, 150, 2, 1, 72}, 0.0f, true, {.window = 40, .softcap = 2, .scale = 0.2f});
  add_variant({1, 90, 4, 2, 32}, 0.2f, false, {.window = 20, .softcap = 2});
  add_variant({1, 1, 1, 1, 1}, 0.0f, false, {.causal = false});
  add_variant({2, 7, 4, 2, 3}, 0.0f, false, {.causal = false});
  add_variant({1, 64, 2, 1, 8}, 0.0f, false, {.causal = false});    // sizes below, at and above a tile
  add_variant({2, 65, 3, 3, 16}, 0.0f, false, {.causal = false});
  add_variant({1, 130, 2, 1, 5}, 0.1f, false, {.causal = false});
  add_variant({1, 197, 2, 2, 64}, 0.0f, false, {.causal = false});  // a ViT's 14 x 14 patches and its class token
  add_variant({1, 140, 2, 1, 128}, 0.25f, false, {.causal = false});
  add_variant({1, 70, 1, 1, 256}, 0.0f, false, {.causal = false});
  add_variant({1, 130, 20, 1, 4}, 0.0f, false, {.causal = false});
  add_variant({1, 70, 2, 1, 8}, 0.0f, false, {.causal = false}, CaseValues::kLarge);
  add_variant({1, 69, 2, 1, 12}, 0.2f, false, {.softcap = 1.5f, .scale = 0.25f, .causal = false});
  add_variant({2, 63, 2, 2, 8}, 0.0f, true, {.causal = false});
  add_variant({3, 129, 2, 1, 16}, 0.0f, true, {.causal = false});
  add_variant({1, 300, 4, 2, 8}, 0.25f, true, {.causal = false});
  add_variant({1, 140, 2, 1, 64}, 0.1f, true, {.causal = false});   // wide heads over several tiles of a card
  add_variant({1, 140, 1, 1, 128}, 0.0f, true, {.causal = false});
  add_variant({1, 150, 2, 1, 72}, 0.0f, true, {.softcap = 2, .scale = 0.2f, .causal = false});
  add_attention(table, {1, 135, 2, 2, 8}, 0.0f, true, CaseValues::kSingles, "_documents_of_one", {.causal = false});
  add_attention(table, {1, 70, 2, 1, 4}, 0.0f, true, CaseValues::kBadLow, "_bad_low", {.causal = false});
  add_attention(table, {2, 33, 2, 2, 4}, 0.0f, true, CaseValues::kBadHigh, "_bad_high", {.causal = false});
  add_attention(table, {1, 70, 2, 1, 4}, 0.0f, true, CaseValues::kBadLow, "_bad_low");
  add_attention(table, {2, 33, 2, 2, 4}, 0.0f, true, CaseValues::kBadHigh, "_bad_high");
  add_decode_cases(table);
}

// ---- data ----

// Fills the sequences with documents of random length, from one position to several tiles, so that
// some documents start inside a tile.
void draw_documents(CaseDraft& draft, Array& starts) {
  const uint64_t B = starts.shape(0), T = starts.shape(1);
  const auto length = [&]() -> uint64_t {
    if (draft.c.data == CaseValues::kSingles) return 1;
    constexpr uint64_t kMax[] = {4, 40, 150};
    return 1 + draft.random.below(kMax[draft.random.below(3)]);
  };
  for (uint64_t b = 0; b < B; ++b) {
    uint64_t start = 0, end = length();
    for (uint64_t t = 0; t < T; ++t) {
      if (t == end) start = end, end += length();
      starts(b, t) = static_cast<double>(draft.c.data == CaseValues::kScattered ? draft.random.below(t + 1) : start);
    }
  }
  if (!draft.c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kDocument;
  draft.data.bad_position = B * T * 2 / 3;
  starts.flat(draft.data.bad_position) =
      draft.c.data == CaseValues::kBadLow ? -1.0 : static_cast<double>(draft.data.bad_position % T + 1);
}

void fit_data(CaseDraft& draft) {
  if (draft.c.data == CaseValues::kLarge) {
    for (double& element : draft.value(qkv_of(draft.c))) element *= 8;
  }
  if (draft.c.pass == Pass::kDecode) return fit_decode(draft);
  if (draft.c.has(starts_of(draft.c))) draw_documents(draft, draft.value(starts_of(draft.c)));
  if (draft.c.pass == Pass::kForward || draft.c.expects_bad_index()) return;
  using A = AttentionBackward;
  const AttentionResult saved = attention_forward(draft.value(A::kQkv), setting_of(draft.c, draft.data));
  draft.value(A::kY) = as_f32(saved.y);
  draft.value(A::kLse) = as_f32(saved.lse);
}

// ---- results ----

void expect(Oracle& o) {
  if (o.c.pass == Pass::kDecode) return expect_decode(o);
  const Setting how = setting_of(o.c, o.data);
  const Array& qkv = o.value(qkv_of(o.c));
  const double T = o.dimension(qkv_of(o.c), 1), D = static_cast<double>(how.D(qkv));
  // Tensor cores, and CPU tiles for pairs of bf16, round weights and gradients of scores to bf16
  // before the next product uses them.
  const Multiplier& multiplier = o.data.multiplier;
  const bool rounds = (multiplier.tensor_cores && attention_uses_mma(DType::kBf16, static_cast<uint32_t>(how.D(qkv)),
                                                                     o.c.as<AttentionAttribute>())) ||
                      (multiplier.pairs != nullptr &&
                       attention_product(multiplier.pairs->pairs, how.D(qkv)) != AttentionProduct::kWidened);
  const auto if_rounded = [&](const Array& rounded) { return rounds ? rounded : Array(Array::shape_type{0}); };
  if (o.c.pass == Pass::kForward) {
    const AttentionResult r = attention_forward(qkv, how);
    o.expect(AttentionForward::kY, {r.y, r.y_magnitude, T + D, if_rounded(r.y_rounded)});
    return o.expect(AttentionForward::kLse, {r.lse, r.lse_magnitude, T + D});
  }
  using A = AttentionBackward;
  const Array* stored_y = stores_bf16(o.c) ? &o.value(A::kY) : nullptr;
  const AttentionGradient g = attention_backward(qkv, how, o.value(A::kDy), stored_y);
  o.expect(A::kDqkv,
           {g.dqkv, g.magnitude, T * static_cast<double>(how.heads / how.kv_heads) + D, if_rounded(g.rounded)});
}

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = AttentionBackward;
  return {{data.values[A::kQkv]}, {A::kDqkv}, [&data, how = setting_of(c, data)](const auto& at) {
            return dot(data.values[A::kDy], attention_forward(at[0], how).y);
          }};
}

std::vector<KnownValue> known_values() {
  Array qkv = zeros({1, 3, 3});
  qkv(0, 0, 2) = 3, qkv(0, 1, 2) = 5, qkv(0, 2, 2) = 10;
  const Array no_mask(Array::shape_type{1}, 1.0);
  const AttentionResult r = attention_forward(qkv, {1, 1, no_mask, zeros({1, 3})});
  const AttentionResult full =
      attention_forward(qkv, {.heads = 1, .kv_heads = 1, .mask = no_mask, .starts = zeros({1, 3}), .causal = false});
  Array second_document = zeros({1, 3});
  second_document(0, 1) = 1, second_document(0, 2) = 1;
  const AttentionResult two = attention_forward(qkv, {1, 1, no_mask, second_document});
  const AttentionResult full_two =
      attention_forward(qkv, {.heads = 1, .kv_heads = 1, .mask = no_mask, .starts = second_document, .causal = false});
  // One position with columns q0 q1 q2 q3 k0 k1 v0 v1. The weight of the only position is 1, so
  // each head's y is the v that the head reads.
  Array grouped = zeros({1, 1, 8});
  grouped(0, 0, 6) = 3, grouped(0, 0, 7) = 5;
  const AttentionResult pairs = attention_forward(grouped, {4, 2, no_mask, zeros({1, 1})});
  return {{"attention over equal scores is the mean of the past", r.y, Array{3.0, 4.0, 6.0}, 1e-14},
          {"the log of the sum of their exponentials is that of their number", r.lse,
           Array{0.0, std::log(2.0), std::log(3.0)}, 1e-14},
          {"without causality it is the mean of all", full.y, Array{6.0, 6.0, 6.0}, 1e-14},
          {"and of the document, where it is one of several", full_two.y, Array{3.0, 7.5, 7.5}, 1e-14},
          {"the past begins with the document", two.y, Array{3.0, 5.0, 7.5}, 1e-14},
          {"neighbouring heads share keys and values", pairs.y, Array{3.0, 3.0, 5.0, 5.0}, 1e-14}};
}

// ---- wrong kernels: the correct kernel with changed arguments ----

// Returns the head of keys and values that query head `h` reads. in_groups() is the correct
// function.
using Sharing = uint32_t (*)(uint32_t h, const AttentionAttribute& attention);
uint32_t in_groups(uint32_t h, const AttentionAttribute& attention) {
  return h / (attention.heads / attention.kv_heads);
}
uint32_t in_turn(uint32_t h, const AttentionAttribute& attention) { return h % attention.kv_heads; }

// Calls f(column of the widened rows, column of qkv, head, true if it is a column of q) for each
// column of the widened rows. In them every query head has keys and values of its own, copied from
// the columns that shares() selects.
template <typename F>
void for_each_wide_column(const AttentionAttribute& attention, uint32_t D, Sharing shares, const F& f) {
  for (uint32_t part = 0; part < 3; ++part) {
    for (uint32_t h = 0; h < attention.heads; ++h) {
      const uint32_t narrow = part == 0 ? h : attention.heads + (part - 1) * attention.kv_heads + shares(h, attention);
      for (uint32_t d = 0; d < D; ++d) f((part * attention.heads + h) * D + d, narrow * D + d, h, part == 0);
    }
  }
}
template <typename Args>
std::vector<float> widened(const Args& a, Sharing shares) {
  const uint32_t D = a.C / a.attention.heads;
  const uint64_t rows = uint64_t{a.B} * a.T, narrow = (a.attention.heads + uint64_t{2} * a.attention.kv_heads) * D,
                 wide = uint64_t{3} * a.C;
  std::vector<float> qkv(rows * wide);
  for (uint64_t i = 0; i < rows; ++i) {
    for_each_wide_column(a.attention, D, shares, [&](uint32_t to, uint32_t from, uint32_t, bool) {
      qkv[i * wide + to] = a.qkv[i * narrow + from];
    });
  }
  return qkv;
}

Status forward_sharing(const KernelContext& k, const AttentionForwardArgsOf<float>& a, Sharing shares) {
  const std::vector<float> qkv = widened(a, shares);
  AttentionForwardArgsOf<float> wide = a;
  wide.qkv = qkv.data(), wide.attention.kv_heads = a.attention.heads;
  return cpu_attention_forward<float>(k, wide);
}
// Computes a wrong backward: in a group of query heads, only the heads for which counts(index in
// the group, size of the group) is true add to the gradients of their key and value head.
template <typename Counts>
Status backward_counting(const KernelContext& k, const AttentionBackwardArgsOf<float>& a, const Counts& counts) {
  const uint32_t heads = a.attention.heads, kv_heads = a.attention.kv_heads, D = a.C / heads, group = heads / kv_heads;
  const uint64_t rows = uint64_t{a.B} * a.T, narrow = (heads + uint64_t{2} * kv_heads) * D, wide = uint64_t{3} * a.C;
  const std::vector<float> qkv = widened(a, in_groups);
  std::vector<float> dqkv(rows * wide), delta(attention_delta_bytes(rows * heads) / sizeof(float));
  AttentionBackwardArgsOf<float> apart = a;
  apart.dqkv = dqkv.data(), apart.qkv = qkv.data(), apart.attention.kv_heads = heads;
  apart.scratch = delta.data(), apart.scratch_bytes = delta.size() * sizeof(float);
  const Status status = cpu_attention_backward<float>(k, apart);
  std::fill(a.dqkv, a.dqkv + rows * narrow, 0.0f);
  for (uint64_t i = 0; i < rows; ++i) {
    for_each_wide_column(a.attention, D, in_groups, [&](uint32_t from, uint32_t to, uint32_t h, bool is_q) {
      if (is_q || counts(h % group, group)) a.dqkv[i * narrow + to] += dqkv[i * wide + from];
    });
  }
  return status;
}

// Calls the kernel after replacing each document start by move(start, t), where t is the position.
template <typename Args, typename Kernel, typename Move>
Status with_starts(const KernelContext& k, const Args& a, const Kernel& kernel, const Move& move) {
  if (a.document_start == nullptr) return kernel(k, a);
  std::vector<int32_t> starts(a.document_start, a.document_start + uint64_t{a.B} * a.T);
  for (uint32_t i = 0; i < starts.size(); ++i) starts[i] = move(starts[i], static_cast<int32_t>(i % a.T));
  Args moved = a;
  moved.document_start = starts.data();
  return kernel(k, moved);
}
// Calls the kernel with a changed attribute.
template <typename Args, typename Kernel, typename Change>
Status with_attribute(const KernelContext& k, const Args& a, const Kernel& kernel, const Change& change) {
  Args changed = a;
  change(changed.attention);
  return kernel(k, changed);
}
void see_one_more(AttentionAttribute& a) { a.window += a.window != 0; }
void see_one_less(AttentionAttribute& a) { a.window -= a.window > 1; }
void see_everything(AttentionAttribute& a) { a.window = 0; }
void cap_nothing(AttentionAttribute& a) { a.softcap = 0; }
void scale_by_width(AttentionAttribute& a) { a.scale = 0; }
void see_the_past_alone(AttentionAttribute& a) { a.causal = 1; }
void see_what_follows(AttentionAttribute& a) { a.causal = a.window != 0; }
// Calls the kernel without starts of documents if the attention is not causal.
template <typename Args, typename Kernel>
Status without_documents(const KernelContext& k, const Args& a, const Kernel& kernel) {
  Args blind = a;
  if (a.attention.causal == 0) blind.document_start = nullptr;
  return kernel(k, blind);
}

int32_t earlier(int32_t start, int32_t) { return start - (start > 0); }
int32_t later(int32_t start, int32_t t) { return start + (start > 0 && start < t); }
int32_t start_of_tile(int32_t start, int32_t) { return start > 0 ? start / 64 * 64 : start; }

using Forward = AttentionForwardArgsOf<float>;
using Backward = AttentionBackwardArgsOf<float>;
constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) { return forward_sharing(k, a, in_turn); }>(
        "attention_deals_shared_heads_out_in_turn"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return forward_sharing(k, a, [](uint32_t, const AttentionAttribute&) { return 0u; });
                 }>("attention_reads_the_first_shared_head_alone"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_starts(k, a, cpu_attention_forward<float>, earlier);
                 }>("attention_sees_the_last_position_of_the_document_before"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_starts(k, a, cpu_attention_forward<float>, later);
                 }>("attention_misses_the_first_position_of_its_document"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_starts(k, a, cpu_attention_forward<float>, start_of_tile);
                 }>("attention_sees_all_of_the_tile_that_its_document_starts_in"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_starts(k, a, cpu_attention_forward<float>, [](int32_t start, int32_t t) {
                     return start < 0 ? 0 : start > t ? t : start;
                   });
                 }>("attention_takes_a_start_behind_its_position"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_attribute(k, a, cpu_attention_forward<float>, see_one_more);
                 }>("attention_sees_one_position_before_its_window"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_attribute(k, a, cpu_attention_forward<float>, see_one_less);
                 }>("attention_misses_the_first_position_of_its_window"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_attribute(k, a, cpu_attention_forward<float>, cap_nothing);
                 }>("attention_caps_nothing"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_attribute(k, a, cpu_attention_forward<float>, scale_by_width);
                 }>("attention_scales_by_the_width_of_a_head"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_attribute(k, a, cpu_attention_forward<float>, see_the_past_alone);
                 }>("attention_sees_the_past_alone"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return with_attribute(k, a, cpu_attention_forward<float>, see_what_follows);
                 }>("attention_sees_what_follows"),
    wrong_kernel<AttentionForward,
                 [](const KernelContext& k, const Forward& a) {
                   return without_documents(k, a, cpu_attention_forward<float>);
                 }>("attention_sees_all_documents"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_attribute(k, a, cpu_attention_backward<float>, see_the_past_alone);
                 }>("attention_backward_sees_the_past_alone"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_attribute(k, a, cpu_attention_backward<float>, see_what_follows);
                 }>("attention_backward_sees_what_follows"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return without_documents(k, a, cpu_attention_backward<float>);
                 }>("attention_backward_sees_all_documents"),
    wrong_kernel<AttentionDecode,
                 [](const KernelContext& k, const AttentionDecodeArgsOf<float>& a) {
                   return with_attribute(k, a, cpu_attention_decode<float>, see_one_more);
                 }>("attention_decode_sees_one_position_before_its_window"),
    wrong_kernel<AttentionDecode,
                 [](const KernelContext& k, const AttentionDecodeArgsOf<float>& a) {
                   return with_attribute(k, a, cpu_attention_decode<float>, cap_nothing);
                 }>("attention_decode_caps_nothing"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_attribute(k, a, cpu_attention_backward<float>, see_everything);
                 }>("attention_backward_sees_everything"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_attribute(k, a, cpu_attention_backward<float>, see_one_less);
                 }>("attention_backward_misses_the_first_position_of_its_window"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_attribute(k, a, cpu_attention_backward<float>, cap_nothing);
                 }>("attention_backward_caps_nothing"),
    wrong_kernel<AttentionDecode,
                 [](const KernelContext& k, const AttentionDecodeArgsOf<float>& a) {
                   AttentionDecodeArgsOf<float> swapped = a;
                   std::swap(swapped.keys, swapped.values);
                   return cpu_attention_decode<float>(k, swapped);
                 }>("attention_decode_exchanges_its_caches"),
    wrong_kernel<AttentionDecode,
                 [](const KernelContext& k, const AttentionDecodeArgsOf<float>& a) {
                   std::vector<int32_t> starts(a.document_start, a.document_start + a.P);
                   for (uint32_t t = 0; t < a.P; ++t) {
                     if (starts[t] <= static_cast<int32_t>(t) &&
                         static_cast<int32_t>(a.P) - starts[t] <= static_cast<int32_t>(a.L))
                       continue;
                     return cpu_attention_decode<float>(k, a);
                   }
                   for (int32_t& start : starts) start += start < 0;
                   AttentionDecodeArgsOf<float> earlier = a;
                   earlier.document_start = starts.data();
                   return cpu_attention_decode<float>(k, earlier);
                 }>("attention_decode_writes_over_the_last_position"),
    wrong_kernel<AttentionDecode,
                 [](const KernelContext& k, const AttentionDecodeArgsOf<float>& a) {
                   std::vector<int32_t> starts(a.document_start, a.document_start + a.P);
                   for (uint32_t t = 1; t < a.P; ++t) {
                     const int64_t row = t;
                     if (row < starts[t] && row - starts[0] < a.L) starts[t] = starts[0];
                   }
                   AttentionDecodeArgsOf<float> all = a;
                   all.document_start = starts.data();
                   return cpu_attention_decode<float>(k, all);
                 }>("attention_decode_takes_padding_for_rows"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return backward_counting(k, a, [](uint32_t member, uint32_t group) { return member == group - 1; });
                 }>("attention_backward_keeps_the_last_head_of_a_group"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_starts(k, a, cpu_attention_backward<float>, earlier);
                 }>("attention_backward_sees_the_last_position_of_the_document_before"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_starts(k, a, cpu_attention_backward<float>, later);
                 }>("attention_backward_misses_the_first_position_of_its_document"),
    wrong_kernel<AttentionBackward,
                 [](const KernelContext& k, const Backward& a) {
                   return with_starts(k, a, cpu_attention_backward<float>, start_of_tile);
                 }>("attention_backward_sees_all_of_the_tile_that_its_document_starts_in"),
};

constexpr Op kFamilyOps[] = {Op::kAttention};

}  // namespace

extern constinit const OpFamily kAttentionFamily = {
    .ops = kFamilyOps, .multiplies = true, .add_cases = add_cases, .fit_data = fit_data, .expect = expect,
    .differentiable = differentiable, .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
