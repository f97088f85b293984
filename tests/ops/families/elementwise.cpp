// Elementwise ops (relu, gelu, swiglu, geglu, add, copy and move): cases, data, reference, gradient
// check and wrong kernels.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

// Returns gelu(x) = x * Phi(x). If `tanh_form`, returns the approximation by tanh that GPT-2 calls
// gelu_new (Hendrycks & Gimpel 2016).
double gelu(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x, bool tanh_form) {
  if (!tanh_form)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double inner_slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  const double cosh = std::cosh(std::min(std::abs(inner), 300.0));
  return 0.5 * (1 + std::tanh(inner)) + 0.5 * x * inner_slope / (cosh * cosh);
}
// Returns the magnitude of the terms of gelu's derivative, which determines its rounding error.
// With t = tanh(inner), 1 + t cancels for negative x, and 1 - t^2 cancels for large |x|. Both sums
// are computed from terms of size 1.
double gelu_slope_magnitude(double x, bool tanh_form) {
  const double inner_slope = tanh_form ? 1 + 3 * 0.044715 * x * x : 1.0;
  return 1 + std::abs(x) * inner_slope;
}

// Returns x * sigmoid(x) (Shazeer 2020).
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 / (1 + std::exp(x)));
}

// Returns the gate of swiglu or geglu. gate_slope() returns the gate's derivative. gate_magnitude()
// and gate_slope_magnitude() return the magnitudes of the terms of the gate and of its derivative.
double gate_of(Op op, double x) { return op == Op::kGeglu ? gelu(x, true) : silu(x); }
double gate_slope(Op op, double x) { return op == Op::kGeglu ? gelu_slope(x, true) : silu_slope(x); }
double gate_magnitude(Op op, double x) { return op == Op::kGeglu ? std::abs(x) : std::abs(silu(x)); }
double gate_slope_magnitude(Op op, double x) {
  if (op == Op::kGeglu) return gelu_slope_magnitude(x, true);
  return (1 + std::abs(x)) / (1 + std::exp(-x));  // the derivative's two terms have opposite signs if x is negative
}

// ---- cases ----

void add_elementwise(CaseTable& table, uint32_t n) {
  const auto x = shaped({n});
  const std::string tag = "n" + str(n);
  using Relu = ReluForward;
  using ReluBack = ReluBackward;
  using Add = AddForward;
  using Copy = CopyForward;
  using Move = MoveForward;
  table.add<Relu>(tag, {{Relu::kY, x}, {Relu::kX, x}});
  table.add<ReluBack>(tag, {{ReluBack::kDx, x}, {ReluBack::kY, x}, {ReluBack::kDy, x}});
  table.add<Add>(tag, {{Add::kY, x}, {Add::kA, x}, {Add::kB, x}});
  table.add<Copy>(tag, {{Copy::kY, x}, {Copy::kX, x}});
  table.again_accumulating({Copy::kY});
  table.add<Move>(tag, {{Move::kY, x}, {Move::kX, x}});
  table.add<ReshapeForward>(tag, {{ReshapeForward::kY, shaped({1, n, 1})}, {ReshapeForward::kX, x}});
  table.add<CapForward>(tag, {{CapForward::kY, x}, {CapForward::kX, x}}, CapAttribute{2.5f});
  for (const uint32_t tanh_form : {0u, 1u}) {
    using Gelu = GeluForward;
    using GeluBack = GeluBackward;
    const std::string form = tag + (tanh_form != 0 ? "_tanh" : "_erf");
    table.add<Gelu>(form, {{Gelu::kY, x}, {Gelu::kX, x}}, GeluAttribute{tanh_form});
    table.add<GeluBack>(form, {{GeluBack::kDx, x}, {GeluBack::kX, x}, {GeluBack::kDy, x}}, GeluAttribute{tanh_form});
  }
}

template <typename Forward, typename Backward>
void add_gated(CaseTable& table, uint32_t M, uint32_t F) {
  const auto x = shaped({M, F});
  const std::string tag = "m" + str(M) + "_f" + str(F);
  table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kGate, x}, {Forward::kUp, x}});
  table.add<Backward>(
      tag, {{Backward::kDgate, x}, {Backward::kDup, x}, {Backward::kGate, x}, {Backward::kUp, x}, {Backward::kDy, x}});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_gated<SwigluForward, SwigluBackward>(table, 256, 2048);
  const struct { uint32_t M, F; } shapes[] = {{1, 1}, {1, 7}, {5, 64}, {67, 33}, {3, 1030}, {700, 12}, {2, 20001}};
  for (const auto& [M, F] : shapes) {
    add_gated<SwigluForward, SwigluBackward>(table, M, F);
    add_gated<GegluForward, GegluBackward>(table, M, F);
  }
  for (const uint32_t n : {1u, 3u, 8u, 67u, 1025u, 20001u, 70003u}) add_elementwise(table, n);
}

// ---- data ----

void keep_from_kink(Array& x) {
  for (double& element : x) element = away_from_zero(element);
}
void set_specials(Array& x) {
  const double special[] = {0.0, 1e-30, -1e-30, 30.0, -30.0, 8.5, -8.5, 1000.0, -1000.0, -5.2, 5.2, -3.1};
  for (double& element : x) element = as_f32(6 * element);
  for (size_t i = 0; i < std::size(special) && x.size() > std::size(special); ++i) x.flat(i) = as_f32(special[i]);
}
void fit_data(CaseDraft& draft) {
  const bool forward = draft.c.pass == Pass::kForward;
  if (draft.c.op == Op::kRelu && forward) return keep_from_kink(draft.value(ReluForward::kX));
  if (draft.c.op == Op::kRelu) {
    Array& y = draft.value(ReluBackward::kY);
    keep_from_kink(y);
    y = xt::maximum(y, 0.0);
  }
  if (draft.c.op == Op::kGelu) set_specials(forward ? draft.value(GeluForward::kX) : draft.value(GeluBackward::kX));
  if (draft.c.op == Op::kCap) set_specials(draft.value(CapForward::kX));
  if (draft.c.op == Op::kSwiglu || draft.c.op == Op::kGeglu)
    set_specials(forward ? draft.value(SwigluForward::kGate) : draft.value(SwigluBackward::kGate));
}

// ---- results ----

void expect_relu(Oracle& o) {
  using Forward = ReluForward;
  using Backward = ReluBackward;
  if (o.c.pass == Pass::kForward) return o.expect(Forward::kY, exact(xt::maximum(o.value(Forward::kX), 0.0)));
  o.expect(Backward::kDx, exact(xt::where(o.value(Backward::kY) > 0.0, o.value(Backward::kDy), 0.0)));
}

// Sets the expected result. The kernel's polynomial, exponential and division round about ten
// times.
void expect_gelu(Oracle& o) {
  using Forward = GeluForward;
  using Backward = GeluBackward;
  const bool tanh_form = o.c.as<GeluAttribute>().tanh_form != 0, backward = o.c.pass == Pass::kBackward;
  const Array& at = backward ? o.value(Backward::kX) : o.value(Forward::kX);
  Expected e{zeros_like(at), zeros_like(at), 10};
  for (size_t i = 0; i < e.value.size(); ++i) {
    const double x = at(i), dy = backward ? o.value(Backward::kDy)(i) : 0.0;
    e.value(i) = backward ? dy * gelu_slope(x, tanh_form) : gelu(x, tanh_form);
    e.magnitude(i) = backward ? std::abs(dy) * gelu_slope_magnitude(x, tanh_form) : std::abs(x);
  }
  backward ? o.expect(Backward::kDx, e) : o.expect(Forward::kY, e);
}

// Sets the expected y. The kernel uses an exponential, a division and three products.
void expect_gated(Oracle& o) {
  using A = SwigluForward;
  Array y = o.value(A::kUp), magnitude = magnitudes(y);
  for (size_t i = 0; i < y.size(); ++i) {
    y.flat(i) *= gate_of(o.c.op, o.value(A::kGate).flat(i));
    magnitude.flat(i) *= gate_magnitude(o.c.op, o.value(A::kGate).flat(i));
  }
  o.expect(A::kY, {y, magnitude, 10});
}
void expect_gated_backward(Oracle& o) {
  using A = SwigluBackward;
  const Array &gate = o.value(A::kGate), &up = o.value(A::kUp);
  Expected dgate{zeros_like(gate), zeros_like(gate), 10}, dup = dgate;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate.flat(i), u = up.flat(i), dy = o.value(A::kDy).flat(i);
    dgate.value.flat(i) = dy * u * gate_slope(o.c.op, x);
    dgate.magnitude.flat(i) = std::abs(dy * u) * gate_slope_magnitude(o.c.op, x);
    dup.value.flat(i) = dy * gate_of(o.c.op, x);
    dup.magnitude.flat(i) = std::abs(dy) * gate_magnitude(o.c.op, x);
  }
  o.expect(A::kDgate, dgate);
  o.expect(A::kDup, dup);
}

// Sets the expected result of a soft cap. The kernel uses a hyperbolic tangent with an error of up
// to two units in the last place, a division and a product.
void expect_cap(Oracle& o) {
  const double softcap = static_cast<double>(o.c.as<CapAttribute>().softcap);
  Array y = o.value(CapForward::kX);
  for (double& element : y) element = softcap * std::tanh(element / softcap);
  o.expect(CapForward::kY, {y, magnitudes(y), 10});
}

void expect(Oracle& o) {
  switch (o.c.op) {
    case Op::kSwiglu:
    case Op::kGeglu: return o.c.pass == Pass::kForward ? expect_gated(o) : expect_gated_backward(o);
    case Op::kCap: return expect_cap(o);
    case Op::kRelu: return expect_relu(o);
    case Op::kGelu: return expect_gelu(o);
    case Op::kAdd: return o.expect(AddForward::kY, rounded(o.value(AddForward::kA) + o.value(AddForward::kB)));
    case Op::kCopy: return o.expect(CopyForward::kY, exact(o.value(CopyForward::kX)));
    case Op::kReshape: return o.expect(ReshapeForward::kY, exact(o.value(ReshapeForward::kX)));
    default: return o.expect(MoveForward::kY, exact(o.value(MoveForward::kX)));
  }
}

// ---- gradient check ----

Differentiable relu_slope(const std::vector<Array>& v) {
  using A = ReluBackward;
  const Array x = xt::where(v[A::kY] > 0.0, v[A::kY], -0.5);
  return {{x}, {A::kDx}, [&](const auto& at) { return dot(v[A::kDy], xt::maximum(at[0], 0.0)); }};
}
Differentiable gated_slope(Op op, const std::vector<Array>& v) {
  using A = SwigluBackward;
  return {{v[A::kGate], v[A::kUp]}, {A::kDgate, A::kDup}, [&v, op](const auto& at) {
            double sum = 0;
            for (size_t i = 0; i < v[A::kDy].size(); ++i)
              sum += v[A::kDy].flat(i) * gate_of(op, at[0].flat(i)) * at[1].flat(i);
            return sum;
          }};
}
Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  if (c.op == Op::kRelu) return relu_slope(v);
  if (c.op == Op::kSwiglu || c.op == Op::kGeglu) return gated_slope(c.op, v);
  using A = GeluBackward;
  return {{v[A::kX]}, {A::kDx}, [&](const auto& at) {
            double sum = 0;
            for (size_t i = 0; i < at[0].size(); ++i)
              sum += v[A::kDy](i) * gelu(at[0](i), c.as<GeluAttribute>().tanh_form != 0);
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
    wrong_kernel<SwigluForward, [](const KernelContext&, const GatedArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.n; ++i) a.y[i] = a.up[i] / (1 + std::exp(-a.up[i])) * a.gate[i];
      return ok_status();
    }>("swiglu_gates_with_up"),
    wrong_kernel<CapForward, [](const KernelContext&, const CapArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.n; ++i) a.y[i] = std::clamp(a.x[i], -a.softcap, a.softcap);
      return ok_status();
    }>("cap_cuts_off"),
    wrong_kernel<GegluForward, [](const KernelContext& k, const GatedArgsOf<float>& a) {
      return cpu_swiglu_forward(k, a);
    }>("geglu_gates_with_silu"),
    wrong_kernel<GegluBackward, [](const KernelContext& k, const GatedBackwardArgsOf<float>& a) {
      return cpu_swiglu_backward(k, a);
    }>("geglu_takes_the_slope_of_silu"),
    wrong_kernel<GegluForward, [](const KernelContext& k, const GatedArgsOf<float>& a) {
      const std::vector<float> up(a.up, a.up + a.n);
      const Status status =
          cpu_gelu_forward<float>(k, {.y = a.y, .x = a.gate, .n = a.n, .accumulate_y = false, .tanh_form = false});
      for (uint64_t i = 0; i < a.n; ++i) a.y[i] *= up[i];
      return status;
    }>("geglu_by_the_error_function"),
    wrong_kernel<SwigluBackward, [](const KernelContext& k, const GatedBackwardArgsOf<float>& a) {
      GatedBackwardArgsOf<float> swapped = a;
      std::swap(swapped.dgate, swapped.dup);
      return cpu_swiglu_backward(k, swapped);
    }>("swiglu_swaps_its_gradients"),
    wrong_kernel<SwigluBackward, [](const KernelContext&, const GatedBackwardArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.n; ++i) {
        const float s = 1 / (1 + std::exp(-a.gate[i]));
        a.dgate[i] = a.dy[i] * a.up[i] * (s + a.gate[i] * s * (1 - s));
        a.dup[i] = a.dy[i] * a.gate[i] * s;
      }
      return ok_status();
    }>("swiglu_overwrites_what_it_still_reads"),
};

constexpr Op kFamilyOps[] = {Op::kRelu, Op::kGelu, Op::kSwiglu, Op::kGeglu,  Op::kCap,
                             Op::kAdd,  Op::kCopy, Op::kMove,   Op::kReshape};

}  // namespace

extern constinit const OpFamily kElementwiseFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
