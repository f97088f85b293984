// Causal multi-head attention: cases, data, reference and slope.
#include <cmath>
#include <limits>

#include "tests/ops/op_family.h"
#include "tests/ref/random.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference: the whole T x T matrix, and the derivative of softmax written out ----

// One head of one sequence: [T,D] matrices, and the factors of its dropout mask [T,T].
struct Head {
  Array q, k, v, mask;
  size_t T() const { return q.shape(0); }
  size_t D() const { return q.shape(1); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(D())); }
};

Head head_of(const Array& qkv, const Array& mask, size_t heads, size_t b, size_t h) {
  const size_t T = qkv.shape(1), C = qkv.shape(2) / 3, D = C / heads;
  const auto part = [&](size_t which) -> Array {
    return xt::view(qkv, b, xt::all(), xt::range(which * C + h * D, which * C + (h + 1) * D));
  };
  Head head{part(0), part(1), part(2), Array({T, T}, 1.0)};
  if (mask.size() > 1) head.mask = xt::view(mask, b, h, xt::all(), xt::all());
  return head;
}

struct Weights {
  Array p;          // [T,T], softmax over s <= t, before dropout
  Array lse;        // [T]
  Array sharpness;  // [T]: 1 + the largest sum of |q||k| / sqrt(D) + |lse|: how much a rounding of the scores weighs in p
};

Weights attention_weights(const Head& head) {
  const size_t T = head.T(), D = head.D();
  Weights out{zeros({T, T}), zeros({T}), zeros({T})};
  const auto q = view<2>(head.q), k = view<2>(head.k);
  auto p = view<2>(out.p);
  for (size_t t = 0; t < T; ++t) {
    double largest = -std::numeric_limits<double>::infinity(), magnitude = 0;
    for (size_t s = 0; s <= t; ++s) {
      double score = 0, terms = 0;
      for (size_t d = 0; d < D; ++d) {
        score += q(t, d) * k(s, d);
        terms += std::abs(q(t, d) * k(s, d));
      }
      p(t, s) = score * head.scale();
      largest = std::max(largest, p(t, s));
      magnitude = std::max(magnitude, terms * head.scale());
    }
    double sum = 0;
    for (size_t s = 0; s <= t; ++s) sum += std::exp(p(t, s) - largest);
    out.lse(t) = largest + std::log(sum);
    for (size_t s = 0; s <= t; ++s) p(t, s) = std::exp(p(t, s) - out.lse(t));
    out.sharpness(t) = 1 + magnitude + std::abs(out.lse(t));
  }
  return out;
}

struct AttentionResult {
  Array y, lse;                       // [B,T,C], [B,heads,T]
  Array y_magnitude, lse_magnitude;
};

// mask: [B,heads,T,T] of dropout factors, or one element for none.
AttentionResult attention_forward(const Array& qkv, const Array& mask, size_t heads) {
  const size_t B = qkv.shape(0), T = qkv.shape(1), C = qkv.shape(2) / 3, D = C / heads;
  AttentionResult out{zeros({B, T, C}), zeros({B, heads, T}), zeros({B, T, C}), zeros({B, heads, T})};
  auto y = view<3>(out.y), y_magnitude = view<3>(out.y_magnitude);
  for (size_t b = 0; b < B; ++b)
    for (size_t h = 0; h < heads; ++h) {
      const Head head = head_of(qkv, mask, heads, b, h);
      const Weights weights = attention_weights(head);
      const auto p = view<2>(weights.p), factor = view<2>(head.mask), v = view<2>(head.v);
      for (size_t t = 0; t < T; ++t) {
        out.lse(b, h, t) = weights.lse(t);
        out.lse_magnitude(b, h, t) = weights.sharpness(t);
        for (size_t s = 0; s <= t; ++s)
          for (size_t d = 0; d < D; ++d) {
            y(b, t, h * D + d) += factor(t, s) * p(t, s) * v(s, d);
            y_magnitude(b, t, h * D + d) += factor(t, s) * p(t, s) * std::abs(v(s, d)) * weights.sharpness(t);
          }
      }
    }
  return out;
}

struct AttentionGradient {
  Array dqkv, magnitude;
};

// `stored_y`: the y that the softmax's derivative is to use, where it is not the exact one because it was rounded to bf16.
AttentionGradient attention_backward(const Array& qkv, const Array& mask, const Array& dy_in, size_t heads,
                                            const Array* stored_y = nullptr) {
  const size_t B = qkv.shape(0), T = qkv.shape(1), C = qkv.shape(2) / 3, D = C / heads;
  AttentionGradient out{zeros({B, T, 3 * C}), zeros({B, T, 3 * C})};
  auto dqkv = view<3>(out.dqkv), magnitude = view<3>(out.magnitude);
  const auto dy = view<3>(dy_in);
  for (size_t b = 0; b < B; ++b)
    for (size_t h = 0; h < heads; ++h) {
      const Head head = head_of(qkv, mask, heads, b, h);
      const Weights weights = attention_weights(head);
      const auto p = view<2>(weights.p), factor = view<2>(head.mask);
      const auto q = view<2>(head.q), k = view<2>(head.k), v = view<2>(head.v);
      const double scale = head.scale();
      std::vector<double> dp(T), dp_magnitude(T);
      for (size_t t = 0; t < T; ++t) {
        double dot = 0, dot_magnitude = 0;  // sum over s of p dp: the row's share of the softmax derivative
        for (size_t s = 0; s <= t; ++s) {
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
        for (size_t s = 0; s <= t; ++s) {
          const double ds = p(t, s) * (dp[s] - dot) * scale;
          const double ds_magnitude = p(t, s) * (dp_magnitude[s] + dot_magnitude) * weights.sharpness(t) * scale;
          for (size_t d = 0; d < D; ++d) {
            const size_t i = h * D + d;
            const double from_y = factor(t, s) * p(t, s) * dy(b, t, i);
            dqkv(b, t, i) += ds * k(s, d);
            dqkv(b, s, C + i) += ds * q(t, d);
            dqkv(b, s, 2 * C + i) += from_y;
            magnitude(b, t, i) += ds_magnitude * std::abs(k(s, d));
            magnitude(b, s, C + i) += ds_magnitude * std::abs(q(t, d));
            magnitude(b, s, 2 * C + i) += std::abs(from_y) * weights.sharpness(t);
          }
        }
      }
    }
  return out;
}

// [B,heads,T,T] dropout factors, or a single one.
Array attention_mask(const KernelCase& c, const StepScalars& scalars) {
  const AttentionAttribute& attention = c.as<AttentionAttribute>();
  if (attention.dropout == 0) return Array(Array::shape_type{1}, 1.0);
  const Tensor& qkv = c.tensor(c.pass == Pass::kForward ? 2 : 1);
  const size_t B = qkv.shape[0], T = qkv.shape[1], heads = attention.heads;
  Array mask = dropout_mask(scalars, attention.stream, B * heads * T * T, attention.dropout);
  mask.reshape({B, heads, T, T});
  return mask;
}

// ---- cases ----

void add_attention(CaseTable& table, uint32_t B, uint32_t T, uint32_t heads, uint32_t D, float dropout,
                   DataKind data = DataKind::kPlain, const char* name = "") {
  const uint32_t C = heads * D;
  const auto qkv = shaped({B, T, 3 * C}), y = shaped({B, T, C}), lse = shaped({B, heads, T});
  const std::string tag = "b" + str(B) + "_t" + str(T) + "_h" + str(heads) + "_d" + str(D) + "_p" +
                          str(static_cast<uint64_t>(100 * dropout + 0.5f)) + name;
  const auto add = [&](Pass pass, uint64_t work, CaseTable::Arguments arguments) {
    KernelCase& c = table.add(Op::kAttention, pass, tag, std::move(arguments), AttentionAttribute{heads, dropout, 9});
    c.data = data, c.multiply_adds = work;
  };
  const uint64_t work = uint64_t{B} * heads * T * (T + 1) / 2 * D * 2;
  add(Pass::kForward, work, {y, lse, qkv, scalars_tensor()});
  add(Pass::kBackward, work * 5 / 2, {qkv, qkv, y, lse, y, scalars_tensor()});
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
  add_attention(table, 1, 50, 2, 8, 0.0f, DataKind::kLarge, "_large");
  add_attention(table, 1, 63, 1, 32, 0.0f);          // around the sizes of tiles
  add_attention(table, 3, 64, 1, 16, 0.0f);
  add_attention(table, 1, 65, 2, 24, 0.0f);
  add_attention(table, 1, 128, 1, 7, 0.0f);
  add_attention(table, 1, 20, 1, 130, 0.0f);
  add_attention(table, 1, 70, 1, 256, 0.0f);
  add_attention(table, 1, 1, 2, 4, 0.5f);
  add_attention(table, 2, 35, 3, 6, 0.1f);
  add_attention(table, 1, 129, 2, 16, 0.5f);
  add_attention(table, 1, 64, 1, 1, 0.25f);
}

// ---- data ----

void fit_data(CaseDraft& draft) {
  const bool forward = draft.c.pass == Pass::kForward;
  if (draft.c.data == DataKind::kLarge) {
    for (double& element : draft.value(forward ? 2 : 1)) element *= 8;
  }
  if (forward) return;
  const Array mask = attention_mask(draft.c, draft.data.scalars);
  const AttentionResult saved = attention_forward(draft.value(1), mask, draft.c.as<AttentionAttribute>().heads);
  draft.value(2) = as_f32(saved.y);
  draft.value(3) = as_f32(saved.lse);
}

// ---- results ----

void expect(Oracle& o) {
  const size_t heads = o.c.as<AttentionAttribute>().heads;
  const Array mask = attention_mask(o.c, o.data.scalars);
  const bool forward = o.c.pass == Pass::kForward;
  const uint32_t y = forward ? 0 : 2;
  const double terms = o.dimension(y, 1) + o.dimension(y, 2) / static_cast<double>(heads);
  if (forward) {
    const AttentionResult r = attention_forward(o.value(2), mask, heads);
    o.expect(0, {r.y, r.y_magnitude, terms});
    return o.expect(1, {r.lse, r.lse_magnitude, terms});
  }
  const Array* stored_y = stores_bf16(o.c) ? &o.value(2) : nullptr;
  const AttentionGradient g = attention_backward(o.value(1), mask, o.value(4), heads, stored_y);
  o.expect(0, {g.dqkv, g.magnitude, terms});
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{data.values[1]}, {0}, [&](const auto& at) {
            const Array mask = attention_mask(c, data.scalars);
            return dot(data.values[4], attention_forward(at[0], mask, c.as<AttentionAttribute>().heads).y);
          }};
}

std::vector<KnownValue> known_values() {
  Array qkv = zeros({1, 3, 3});
  qkv(0, 0, 2) = 3, qkv(0, 1, 2) = 5, qkv(0, 2, 2) = 10;
  const AttentionResult r = attention_forward(qkv, Array(Array::shape_type{1}, 1.0), 1);
  return {{"attention over equal scores is the mean of the past", r.y, Array{3.0, 4.0, 6.0}, 1e-14},
          {"the log of the sum of their exponentials is that of their number", r.lse, Array{0.0, std::log(2.0), std::log(3.0)}, 1e-14}};
}

constexpr Op kFamilyOps[] = {Op::kAttention};

}  // namespace

extern constinit const OpFamily kAttentionFamily = {
    .ops = kFamilyOps, .multiplies = true, .add_cases = add_cases, .fit_data = fit_data, .expect = expect,
    .differentiable = differentiable, .known_values = known_values};

}  // namespace reprise::test
