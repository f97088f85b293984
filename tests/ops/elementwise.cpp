// Elementwise ops: relu, gelu, swiglu, add, copy and move: cases, data, reference, slope and wrong kernels.
#include <cmath>
#include <numbers>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

// Hendrycks & Gimpel 2016. x * Phi(x), or its tanh approximation (GPT-2's gelu_new).
double gelu(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double inner_slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  const double cosh = std::cosh(std::min(std::abs(inner), 300.0));
  return 0.5 * (1 + std::tanh(inner)) + 0.5 * x * inner_slope / (cosh * cosh);
}
// (1 + t) cancels for negative x, and (1 - t^2) for large |x|: both are rounded at the size of 1.
double gelu_slope_magnitude(double x, bool tanh_form) {
  const double inner_slope = tanh_form ? 1 + 3 * 0.044715 * x * x : 1.0;
  return 1 + std::abs(x) * inner_slope;
}

// Shazeer 2020.
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 / (1 + std::exp(x)));
}

// ---- cases ----

void add_elementwise(CaseTable& table, uint32_t n) {
  const auto x = shaped({n});
  const std::string tag = "n" + str(n);
  table.add(Op::kRelu, Pass::kForward, tag, {x, x});
  table.add(Op::kRelu, Pass::kBackward, tag, {x, x, x});
  table.add(Op::kAdd, Pass::kForward, tag, {x, x, x});
  table.add(Op::kCopy, Pass::kForward, tag, {x, x});
  table.again_accumulating(1);
  table.add(Op::kMove, Pass::kForward, tag, {x, x});
  for (const uint32_t tanh_form : {0u, 1u}) {
    const std::string form = tag + (tanh_form != 0 ? "_tanh" : "_erf");
    table.add(Op::kGelu, Pass::kForward, form, {x, x}, GeluAttribute{tanh_form});
    table.add(Op::kGelu, Pass::kBackward, form, {x, x, x}, GeluAttribute{tanh_form});
  }
}

void add_swiglu(CaseTable& table, uint32_t M, uint32_t F) {
  const auto x = shaped({M, F});
  const std::string tag = "m" + str(M) + "_f" + str(F);
  table.add(Op::kSwiglu, Pass::kForward, tag, {x, x, x});
  table.add(Op::kSwiglu, Pass::kBackward, tag, {x, x, x, x, x});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_swiglu(table, 256, 2048);
  const struct { uint32_t M, F; } shapes[] = {{1, 1}, {1, 7}, {5, 64}, {67, 33}, {3, 1030}, {700, 12}, {2, 20001}};
  for (const auto& [M, F] : shapes) add_swiglu(table, M, F);
  for (const uint32_t n : {1u, 3u, 8u, 67u, 1025u, 20001u, 70003u}) add_elementwise(table, n);
}

// ---- data ----

void fit_data(CaseDraft& draft) {
  const bool of_two = draft.c.op == Op::kSwiglu && draft.c.pass == Pass::kBackward;  // its outputs come first
  Array& x = draft.value(of_two ? 2 : 1);
  if (draft.c.op == Op::kRelu) {
    for (double& element : x) element = away_from_zero(element);
    if (draft.c.pass == Pass::kBackward) x = xt::maximum(x, 0.0);
  }
  if (draft.c.op == Op::kGelu || draft.c.op == Op::kSwiglu) {
    const double special[] = {0.0, 1e-30, -1e-30, 30.0, -30.0, 8.5, -8.5, 1000.0, -1000.0, -5.2, 5.2, -3.1};
    for (double& element : x) element = as_f32(6 * element);
    for (size_t i = 0; i < std::size(special) && x.size() > std::size(special); ++i) x.flat(i) = as_f32(special[i]);
  }
}

// ---- results ----

void expect_relu(Oracle& o) {
  if (o.c.pass == Pass::kForward) return o.expect(0, exact(xt::maximum(o.value(1), 0.0)));
  o.expect(0, exact(xt::where(o.value(1) > 0.0, o.value(2), 0.0)));
}

// A polynomial, an exponential and a division: about ten roundings.
void expect_gelu(Oracle& o) {
  const bool tanh_form = o.c.as<GeluAttribute>().tanh_form != 0, backward = o.c.pass == Pass::kBackward;
  Expected e{zeros_like(o.value(1)), zeros_like(o.value(1)), 10};
  for (size_t i = 0; i < e.value.size(); ++i) {
    const double x = o.value(1)(i);
    e.value(i) = backward ? o.value(2)(i) * gelu_slope(x, tanh_form) : gelu(x, tanh_form);
    e.magnitude(i) = backward ? std::abs(o.value(2)(i)) * gelu_slope_magnitude(x, tanh_form) : std::abs(x);
  }
  o.expect(0, e);
}

// An exponential, a division and three products.
void expect_swiglu(Oracle& o) {
  const bool backward = o.c.pass == Pass::kBackward;
  const Array &gate = o.value(backward ? 2 : 1), &up = o.value(backward ? 3 : 2);
  Expected first{zeros_like(gate), zeros_like(gate), 10}, second = first;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate.flat(i), u = up.flat(i);
    if (!backward) {
      first.value.flat(i) = silu(x) * u;
      first.magnitude.flat(i) = std::abs(silu(x) * u);
      continue;
    }
    const double dy = o.value(4).flat(i), s = 1 / (1 + std::exp(-x));
    first.value.flat(i) = dy * u * silu_slope(x);
    first.magnitude.flat(i) = std::abs(dy * u) * s * (1 + std::abs(x));  // the slope's two terms have opposite signs for a negative gate
    second.value.flat(i) = dy * silu(x);
    second.magnitude.flat(i) = std::abs(dy * silu(x));
  }
  o.expect(0, first);
  if (backward) o.expect(1, second);
}

void expect(Oracle& o) {
  switch (o.c.op) {
    case Op::kSwiglu: return expect_swiglu(o);
    case Op::kRelu: return expect_relu(o);
    case Op::kGelu: return expect_gelu(o);
    case Op::kAdd: return o.expect(0, rounded(o.value(1) + o.value(2)));
    default: return o.expect(0, exact(o.value(1)));  // copy and move
  }
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  if (c.op == Op::kRelu) {
    return {{Array(xt::where(v[1] > 0.0, v[1], -0.5))}, {0}, [&](const auto& at) { return dot(v[2], xt::maximum(at[0], 0.0)); }};
  }
  if (c.op == Op::kSwiglu) {
    return {{v[2], v[3]}, {0, 1}, [&](const auto& at) {
              double sum = 0;
              for (size_t i = 0; i < v[4].size(); ++i) sum += v[4].flat(i) * silu(at[0].flat(i)) * at[1].flat(i);
              return sum;
            }};
  }
  return {{v[1]}, {0}, [&](const auto& at) {
            double sum = 0;
            for (size_t i = 0; i < at[0].size(); ++i) sum += v[2](i) * gelu(at[0](i), c.as<GeluAttribute>().tanh_form != 0);
            return sum;
          }};
}

std::vector<KnownValue> known_values() {
  return {{"gelu of 1", Array{gelu(1, false)}, Array{0.8413447460685429}, 1e-15},
          {"silu of 1", Array{silu(1)}, Array{0.7310585786300049}, 1e-15},
          {"gelu of 1, by tanh", Array{gelu(1, true)}, Array{0.8411919906082768}, 1e-15}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<SwigluForward, [](const KernelContext&, const SwigluArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.n; ++i) a.y[i] = a.up[i] / (1 + std::exp(-a.up[i])) * a.gate[i];
      return ok_status();
    }>("swiglu_gates_with_up"),
    wrong_kernel<SwigluBackward, [](const KernelContext& k, const SwigluBackwardArgsOf<float>& a) {
      SwigluBackwardArgsOf<float> swapped = a;
      std::swap(swapped.dgate, swapped.dup);
      return cpu_swiglu_backward(k, swapped);
    }>("swiglu_swaps_its_gradients"),
    wrong_kernel<SwigluBackward, [](const KernelContext&, const SwigluBackwardArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.n; ++i) {
        const float s = 1 / (1 + std::exp(-a.gate[i]));
        a.dgate[i] = a.dy[i] * a.up[i] * (s + a.gate[i] * s * (1 - s));
        a.dup[i] = a.dy[i] * a.gate[i] * s;
      }
      return ok_status();
    }>("swiglu_overwrites_what_it_still_reads"),
};

constexpr Op kFamilyOps[] = {Op::kRelu, Op::kGelu, Op::kSwiglu, Op::kAdd, Op::kCopy, Op::kMove};

}  // namespace

extern constinit const OpFamily kElementwiseFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
