// Rotary positions: cases, data, reference, slope and wrong kernels.
#include <algorithm>
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference (Su et al. 2021, equation 34) ----

struct Turn {
  Array value, magnitude;
};

// x [B,T,(heads + 2 kv_heads) D], turned by `direction` times its positions.
Turn turned(const Array& x, const RopeAttribute& rope, const Array* starts, const Array* table, double direction) {
  const size_t T = x.shape(1), columns = x.shape(2), heads = rope.heads + rope.kv_heads, D = columns / (heads + rope.kv_heads);
  Turn out{x, Array(magnitudes(x))};
  for (size_t m = 0; m < x.shape(0) * T; ++m) {
    const double position = direction * (static_cast<double>(m % T) - (starts != nullptr ? starts->flat(m) : 0.0));
    for (size_t i = 0; i < rope.rotary / 2; ++i) {
      const double frequency = table != nullptr ? (*table)(i) : std::pow(rope.theta, -2.0 * static_cast<double>(i) / rope.rotary);
      const double c = std::cos(position * frequency), s = std::sin(position * frequency);
      for (size_t h = 0; h < heads; ++h) {
        const size_t head = m * columns + h * D;
        const size_t a = head + (rope.neighbours != 0 ? 2 * i : i), b = head + (rope.neighbours != 0 ? 2 * i + 1 : i + rope.rotary / 2);
        const double p = x.flat(a), q = x.flat(b);
        out.value.flat(a) = p * c - q * s, out.value.flat(b) = q * c + p * s;
        out.magnitude.flat(a) = std::abs(p * c) + std::abs(q * s), out.magnitude.flat(b) = std::abs(q * c) + std::abs(p * s);
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
  const auto x = shaped({r.B, r.T, (r.rope.heads + 2 * r.rope.kv_heads) * r.D});
  const auto starts = r.documents ? shaped({r.B, r.T}, DType::kI32) : std::nullopt;
  const auto frequencies = r.table ? shaped({r.rope.rotary / 2}) : std::nullopt;
  const std::string tag = "b" + str(r.B) + "_t" + str(r.T) + "_h" + str(r.rope.heads) + "_kv" + str(r.rope.kv_heads) + "_d" + str(r.D) + "_r" +
                          str(r.rope.rotary) + (r.rope.neighbours != 0 ? "_neighbours" : "_halves") + (r.documents ? "_documents" : "") +
                          (r.table ? "_table" : "") + r.name;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) table.add(Op::kRope, pass, tag, {x, x, starts, frequencies}, r.rope);
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_rope(table, {1, 256, 64, {16, 4, 64, 0, 10000}});
  for (const uint32_t neighbours : {0u, 1u}) {
    add_rope(table, {1, 1, 2, {1, 1, 2, neighbours, 10000}});
    add_rope(table, {2, 9, 16, {4, 2, 16, neighbours, 10000}});
    add_rope(table, {2, 9, 16, {4, 1, 10, neighbours, 500000}});
    add_rope(table, {3, 37, 6, {3, 3, 6, neighbours, 10000}, true});
    add_rope(table, {2, 33, 64, {2, 1, 64, neighbours, 10000}, true, true});
    add_rope(table, {1, 70, 130, {2, 2, 128, neighbours, 1000000}, false, true});
  }
  add_rope(table, {1, 131072, 4, {1, 1, 4, 0, 10000}, false, false, "_long"});  // positions at which an angle in f32 is off by 0.004
}

// ---- data ----

// Documents start at t = 0 and then at random; frequencies are positive and fall, as a scaled theta's do.
void fit_data(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  if (c.has(2)) {
    Array& starts = draft.value(2);
    starts = Array(Array::shape_type{c.tensor(2).shape[0], c.tensor(2).shape[1]}, 0.0);
    for (size_t m = 0; m < starts.size(); ++m) {
      const size_t t = m % starts.shape(1);
      starts.flat(m) = t == 0 || draft.random.below(4) == 0 ? static_cast<double>(t) : starts.flat(m - 1);
      if (t == 0) starts.flat(m) = 0;
    }
  }
  if (!c.has(3)) return;
  for (size_t i = 0; i < draft.value(3).size(); ++i) draft.value(3)(i) = as_f32(std::pow(0.8, static_cast<double>(i)) * draft.random.uniform(0.5, 1));
}

// ---- results and slope ----

void expect(Oracle& o) {
  const Turn turn = turned(o.value(1), o.c.as<RopeAttribute>(), o.optional(2), o.optional(3), o.c.pass == Pass::kForward ? 1 : -1);
  o.expect(0, {turn.value, turn.magnitude, 3});
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) {
            const Array* starts = c.has(2) ? &data.values[2] : nullptr;
            const Array* table = c.has(3) ? &data.values[3] : nullptr;
            return dot(data.values[1], turned(at[0], c.as<RopeAttribute>(), starts, table, 1).value);
          }};
}

// The second position of a head of two elements turns by one radian.
std::vector<KnownValue> known_values() {
  const Array x = {{{9.0, 9.0, 9.0, 9.0, 9.0, 9.0}, {1.0, 0.0, 0.0, 1.0, 5.0, 6.0}}};
  const Array want = {{{9.0, 9.0, 9.0, 9.0, 9.0, 9.0}, {std::cos(1.0), std::sin(1.0), -std::sin(1.0), std::cos(1.0), 5.0, 6.0}}};
  return {{"rope of two positions", turned(x, {1, 1, 2, 0, 10000}, nullptr, nullptr, 1).value, want, 1e-15}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<RopeForward, [](const KernelContext& k, const RopeArgsOf<float>& a) {
      RopeArgsOf<float> other = a;
      other.rope.neighbours ^= 1u;
      return cpu_rope(k, other);
    }>("rope_pairs_otherwise"),
    wrong_kernel<RopeForward, [](const KernelContext& k, const RopeArgsOf<float>& a) {
      RopeArgsOf<float> all = a;
      all.document_start = nullptr;
      return cpu_rope(k, all);
    }>("rope_forgets_the_documents"),
    wrong_kernel<RopeForward, [](const KernelContext& k, const RopeArgsOf<float>& a) {
      RopeArgsOf<float> computed = a;
      computed.frequencies = nullptr;
      return cpu_rope(k, computed);
    }>("rope_forgets_its_table"),
    wrong_kernel<RopeForward, [](const KernelContext& k, const RopeArgsOf<float>& a) {
      const Status status = cpu_rope(k, a);
      const uint64_t columns = uint64_t{a.D} * (a.rope.heads + 2 * a.rope.kv_heads), last = uint64_t{a.D} * (a.rope.heads + a.rope.kv_heads - 1);
      for (uint64_t m = 0; m < a.M; ++m) std::copy_n(a.x + m * columns + last, a.D, a.y + m * columns + last);
      return status;
    }>("rope_takes_the_last_key_head_for_values"),
    wrong_kernel<RopeForward, [](const KernelContext&, const RopeArgsOf<float>& a) {
      const uint32_t pairs = a.rope.rotary / 2, columns = a.D * (a.rope.heads + 2 * a.rope.kv_heads);
      for (uint64_t i = 0; i < a.M * columns; ++i) a.y[i] = a.x[i];
      for (uint64_t m = 0; m < a.M; ++m) {
        for (uint32_t i = 0; i < pairs; ++i) {
          const float theta = std::pow(a.rope.theta, -2.0f * static_cast<float>(i) / static_cast<float>(a.rope.rotary));
          const float start = a.document_start != nullptr ? static_cast<float>(a.document_start[m]) : 0.0f;
          const float angle = (static_cast<float>(m % a.T) - start) * (a.frequencies != nullptr ? a.frequencies[i] : theta);
          for (uint32_t h = 0; h < a.rope.heads + a.rope.kv_heads; ++h) {
            float* head = a.y + m * columns + h * a.D;
            float &p = head[a.rope.neighbours != 0 ? 2 * i : i], &q = head[a.rope.neighbours != 0 ? 2 * i + 1 : i + pairs];
            const float turned_p = p * std::cos(angle) - q * std::sin(angle);
            q = q * std::cos(angle) + p * std::sin(angle);
            p = turned_p;
          }
        }
      }
      return ok_status();
    }>("rope_with_angles_in_f32"),
    wrong_kernel<RopeBackward, [](const KernelContext& k, const RopeArgsOf<float>& a) {
      RopeArgsOf<float> forward = a;
      forward.inverse = false;
      return cpu_rope(k, forward);
    }>("rope_backward_turns_on"),
};

constexpr Op kFamilyOps[] = {Op::kRope};

}  // namespace

extern constinit const OpFamily kRopeFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
