// Rotary positions: cases, data, reference, gradient check and wrong kernels.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <xtensor/xbuilder.hpp>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference (Su et al. 2021, equation 34) ----

struct Turn {
  Array value, magnitude;
};

// Returns q, k and v, each [B,T,...], concatenated along the columns. columns_of() returns columns
// [first, end) of such an array.
Array joined(const Array& q, const Array& k, const Array& v) { return xt::concatenate(xt::xtuple(q, k, v), 2); }
Array columns_of(const Array& x, size_t first, size_t end) {
  return xt::view(x, xt::all(), xt::all(), xt::range(first, end));
}

// Returns x [B,T,(heads + 2 kv_heads) D] with the heads of q and k rotated by `direction` times
// their positions. `direction` is 1 in the forward and -1 in the backward.
Turn rotated(const Array& x, const RopeAttribute& rope, const Array* starts, const Array* table, double direction) {
  const size_t T = x.shape(1), columns = x.shape(2), heads = rope.heads + rope.kv_heads,
               D = columns / (heads + rope.kv_heads);
  const double scale = static_cast<double>(rope.scale);
  Turn out{x, Array(magnitudes(x))};
  for (size_t m = 0; m < x.shape(0) * T; ++m) {
    const double position = direction * (static_cast<double>(m % T) - (starts != nullptr ? starts->flat(m) : 0.0));
    for (size_t i = 0; i < rope.rotary / 2; ++i) {
      const double frequency =
          table != nullptr ? (*table)(i) : std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.rotary);
      const double c = scale * std::cos(position * frequency), s = scale * std::sin(position * frequency);
      for (size_t h = 0; h < heads; ++h) {
        const size_t head = m * columns + h * D;
        const size_t a = head + (rope.neighbours != 0 ? 2 * i : i),
                     b = head + (rope.neighbours != 0 ? 2 * i + 1 : i + rope.rotary / 2);
        const double p = x.flat(a), q = x.flat(b);
        out.value.flat(a) = p * c - q * s, out.value.flat(b) = q * c + p * s;
        out.magnitude.flat(a) = std::abs(p * c) + std::abs(q * s),
        out.magnitude.flat(b) = std::abs(q * c) + std::abs(p * s);
      }
    }
  }
  return out;
}

// ---- cases ----

struct RopeCase {
  uint32_t B, T, D;
  RopeAttribute rope;
  bool documents = false, table = false;
  const char* name = "";
};

void add_rope(CaseTable& table, const RopeCase& r) {
  const RopeAttribute& rope = r.rope;
  const auto all = shaped({r.B, r.T, (rope.heads + 2 * rope.kv_heads) * r.D});
  const auto q = shaped({r.B, r.T, rope.heads * r.D}), k = shaped({r.B, r.T, rope.kv_heads * r.D});
  const auto starts = r.documents ? shaped({r.B, r.T}, DType::kI32) : std::nullopt;
  const auto frequencies = r.table ? shaped({rope.rotary / 2}) : std::nullopt;
  const std::string tag = "b" + str(r.B) + "_t" + str(r.T) + "_h" + str(rope.heads) + "_kv" + str(rope.kv_heads) +
                          "_d" + str(r.D) + "_r" + str(rope.rotary) +
                          (rope.neighbours != 0 ? "_neighbours" : "_halves") + (r.documents ? "_documents" : "") +
                          (r.table ? "_table" : "") + (rope.scale != 1 ? "_scaled" : "") + r.name;
  using Forward = RopeForward;
  using Backward = RopeBackward;
  table.add<Forward>(tag,
                     {{Forward::kQkv, all},
                      {Forward::kQ, q},
                      {Forward::kK, k},
                      {Forward::kV, k},
                      {Forward::kDocumentStart, starts},
                      {Forward::kFrequencies, frequencies}},
                     rope);
  table.add<Backward>(tag, {{Backward::kDq, q}, {Backward::kDk, k}, {Backward::kDv, k}, {Backward::kDqkv, all},
                            {Backward::kDocumentStart, starts}, {Backward::kFrequencies, frequencies}}, rope);
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_rope(table, {1, 256, 64, {16, 4, 64, 0, 10000}});
  for (const uint32_t neighbours : {0u, 1u}) {
    add_rope(table, {1, 1, 2, {1, 1, 2, neighbours, 10000}});
    add_rope(table, {2, 9, 16, {4, 2, 16, neighbours, 10000}});
    add_rope(table, {2, 9, 16, {4, 1, 10, neighbours, 500000}});
    add_rope(table, {2, 9, 16, {4, 1, 10, neighbours, 10000, 1.25f}});
    add_rope(table, {3, 37, 6, {3, 3, 6, neighbours, 10000}, true});
    add_rope(table, {2, 33, 64, {2, 1, 64, neighbours, 10000, 0.875f}, true, true});
    add_rope(table, {1, 70, 130, {2, 2, 128, neighbours, 1000000}, false, true});
    add_rope(table, {2, 11, 5, {4, 2, 0, neighbours, 10000}});  // rotates no element
    add_rope(table, {1, 17, 64, {3, 1, 0, neighbours, 10000}, true});
  }
  // At positions near 131072, an angle in f32 would have an error of 0.004. So kernels must compute
  // angles more exactly.
  add_rope(table, {1, 131072, 4, {1, 1, 4, 0, 10000}, false, false, "_long"});
}

// ---- data ----

// Starts a document at t = 0 and at random later positions. If there is a table, its frequencies
// are positive and decrease on average, as scaled frequencies of a model do.
template <typename K>
void fit(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  if (c.has(K::kDocumentStart)) {
    Array& starts = draft.value(K::kDocumentStart);
    const uint32_t* shape = c.tensor(K::kDocumentStart).shape;
    starts = Array(Array::shape_type{shape[0], shape[1]}, 0.0);
    for (size_t m = 0; m < starts.size(); ++m) {
      const size_t t = m % starts.shape(1);
      starts.flat(m) = t == 0 || draft.random.below(4) == 0 ? static_cast<double>(t) : starts.flat(m - 1);
      if (t == 0) starts.flat(m) = 0;
    }
  }
  if (!c.has(K::kFrequencies)) return;
  Array& table = draft.value(K::kFrequencies);
  for (size_t i = 0; i < table.size(); ++i)
    table(i) = as_f32(std::pow(0.8, static_cast<double>(i)) * draft.random.uniform(0.5, 1));
}
void fit_data(CaseDraft& draft) { draft.c.pass == Pass::kForward ? fit<RopeForward>(draft) : fit<RopeBackward>(draft); }

// ---- results and gradient check ----

void expect_forward(Oracle& o) {
  using A = RopeForward;
  const Array qkv = joined(o.value(A::kQ), o.value(A::kK), o.value(A::kV));
  const Turn turn =
      rotated(qkv, o.c.as<RopeAttribute>(), o.optional(A::kDocumentStart), o.optional(A::kFrequencies), 1);
  o.expect(A::kQkv, {turn.value, turn.magnitude, 3});
}
void expect_backward(Oracle& o) {
  using A = RopeBackward;
  const Turn turn = rotated(o.value(A::kDqkv), o.c.as<RopeAttribute>(), o.optional(A::kDocumentStart),
                           o.optional(A::kFrequencies), -1);
  size_t first = 0;
  for (const uint32_t part : {A::kDq, A::kDk, A::kDv}) {
    const size_t end = first + o.c.tensor(part).shape[2];
    o.expect(part, {columns_of(turn.value, first, end), columns_of(turn.magnitude, first, end), 3});
    first = end;
  }
}
void expect(Oracle& o) { o.c.pass == Pass::kForward ? expect_forward(o) : expect_backward(o); }

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = RopeBackward;
  const std::vector<uint32_t> parts = {A::kDq, A::kDk, A::kDv};
  std::vector<Array> point;
  for (const uint32_t part : parts) point.push_back(random_like(c.tensor(part), c.id + str(part)));
  return {point, parts, [&](const auto& at) {
            const Array* starts = c.has(A::kDocumentStart) ? &data.values[A::kDocumentStart] : nullptr;
            const Array* table = c.has(A::kFrequencies) ? &data.values[A::kFrequencies] : nullptr;
            return dot(data.values[A::kDqkv],
                       rotated(joined(at[0], at[1], at[2]), c.as<RopeAttribute>(), starts, table, 1).value);
          }};
}

// Returns values computed by hand. A head of two elements rotates by one radian at position 1.
std::vector<KnownValue> known_values() {
  const Array x = {{{9.0, 9.0, 9.0, 9.0, 9.0, 9.0}, {1.0, 0.0, 0.0, 1.0, 5.0, 6.0}}};
  const Array want = {
      {{9.0, 9.0, 9.0, 9.0, 9.0, 9.0}, {std::cos(1.0), std::sin(1.0), -std::sin(1.0), std::cos(1.0), 5.0, 6.0}}};
  return {{"rope of two positions", rotated(x, {1, 1, 2, 0, 10000}, nullptr, nullptr, 1).value, want, 1e-15}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<RopeForward,
                 [](const KernelContext& k, const RopeForwardArgsOf<float>& a) {
                   RopeForwardArgsOf<float> other = a;
                   other.rope.neighbours ^= 1u;
                   return cpu_rope_forward(k, other);
                 }>("rope_pairs_otherwise"),
    wrong_kernel<RopeForward,
                 [](const KernelContext& k, const RopeForwardArgsOf<float>& a) {
                   RopeForwardArgsOf<float> all = a;
                   all.document_start = nullptr;
                   return cpu_rope_forward(k, all);
                 }>("rope_forgets_the_documents"),
    wrong_kernel<RopeForward,
                 [](const KernelContext& k, const RopeForwardArgsOf<float>& a) {
                   RopeForwardArgsOf<float> computed = a;
                   computed.frequencies = nullptr;
                   return cpu_rope_forward(k, computed);
                 }>("rope_forgets_its_table"),
    wrong_kernel<RopeForward,
                 [](const KernelContext& k, const RopeForwardArgsOf<float>& a) {
                   RopeForwardArgsOf<float> unscaled = a;
                   unscaled.rope.scale = 1;
                   return cpu_rope_forward(k, unscaled);
                 }>("rope_forgets_its_scale"),
    wrong_kernel<RopeForward,
                 [](const KernelContext& k, const RopeForwardArgsOf<float>& a) {
                   RopeForwardArgsOf<float> swapped = a;
                   std::swap(swapped.k, swapped.v);
                   return cpu_rope_forward(k, swapped);
                 }>("rope_takes_keys_for_values"),
    wrong_kernel<RopeForward,
                 [](const KernelContext&, const RopeForwardArgsOf<float>& a) {
                   const uint32_t pairs = a.rope.rotary / 2, of_q = a.D * a.rope.heads, of_k = a.D * a.rope.kv_heads,
                                  columns = of_q + 2 * of_k;
                   for (uint64_t m = 0; m < a.M; ++m) {
                     float* y = a.qkv + m * columns;
                     std::copy_n(a.q + m * of_q, of_q, y);
                     std::copy_n(a.k + m * of_k, of_k, y + of_q);
                     std::copy_n(a.v + m * of_k, of_k, y + of_q + of_k);
                     for (uint32_t i = 0; i < pairs; ++i) {
                       const float theta =
                           std::pow(a.rope.theta, -2.0f * static_cast<float>(i) / static_cast<float>(a.rope.rotary));
                       const float start = a.document_start != nullptr ? static_cast<float>(a.document_start[m]) : 0.0f;
                       const float angle = (static_cast<float>(m % a.T) - start) *
                                           (a.frequencies != nullptr ? a.frequencies[i] : theta);
                       for (uint32_t h = 0; h < a.rope.heads + a.rope.kv_heads; ++h) {
                         float* head = y + h * a.D;
                         float &p = head[a.rope.neighbours != 0 ? 2 * i : i],
                               &q = head[a.rope.neighbours != 0 ? 2 * i + 1 : i + pairs];
                         const float rotated_p = a.rope.scale * (p * std::cos(angle) - q * std::sin(angle));
                         q = a.rope.scale * (q * std::cos(angle) + p * std::sin(angle));
                         p = rotated_p;
                       }
                     }
                   }
                   return ok_status();
                 }>("rope_with_angles_in_f32"),
    wrong_kernel<RopeBackward,
                 [](const KernelContext& k, const RopeBackwardArgsOf<float>& a) {
                   RopeForwardArgsOf<float> forward = {a.dq,          nullptr, nullptr, nullptr, a.document_start,
                                                       a.frequencies, a.M,     a.T,     a.D,     a.rope};
                   const uint64_t of_q = uint64_t{a.D} * a.rope.heads, of_k = uint64_t{a.D} * a.rope.kv_heads,
                                  columns = of_q + 2 * of_k;
                   std::vector<float> q(a.M * of_q), key(a.M * of_k), v(a.M * of_k), all(a.M * columns);
                   for (uint64_t m = 0; m < a.M; ++m) {
                     const float* from = a.dqkv + m * columns;
                     std::copy_n(from, of_q, q.data() + m * of_q);
                     std::copy_n(from + of_q, of_k, key.data() + m * of_k);
                     std::copy_n(from + of_q + of_k, of_k, v.data() + m * of_k);
                   }
                   forward.qkv = all.data(), forward.q = q.data(), forward.k = key.data(), forward.v = v.data();
                   const Status status = cpu_rope_forward(k, forward);
                   for (uint64_t m = 0; m < a.M; ++m) {
                     const float* from = all.data() + m * columns;
                     std::copy_n(from, of_q, a.dq + m * of_q);
                     std::copy_n(from + of_q, of_k, a.dk + m * of_k);
                     std::copy_n(from + of_q + of_k, of_k, a.dv + m * of_k);
                   }
                   return status;
                 }>("rope_backward_turns_on"),
};

constexpr Op kFamilyOps[] = {Op::kRope};

}  // namespace

extern constinit const OpFamily kRopeFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
