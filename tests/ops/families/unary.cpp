// Functions of one number: cases, data, reference, gradient check and wrong kernels.
#include <algorithm>
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = UnaryForward;
using Backward = UnaryBackward;

// ---- the reference ----

// A value, and the magnitude of the terms from which the value is computed. The magnitude
// determines the rounding error of the value.
struct Sized {
  double value, magnitude;
};
Sized plain(double value) { return {value, std::abs(value)}; }

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double over_6(double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; }
// Returns the magnitude of over_6(x): between the clamps, rounding errors are relative to |x| + 3.
double over_6_magnitude(double x) { return std::abs(x) < 3 ? (std::abs(x) + 3) / 6 : over_6(x); }

// Returns x * sigmoid(k x). Rounding k x to f32 gives the argument a relative error, which the
// exponential enlarges.
Sized swish(double x, double k) {
  const double y = x * sigmoid(k * x), argument = k == 1 ? 0 : std::abs(k * x) * sigmoid(-k * x);
  return {y, std::abs(y) * (1 + argument)};
}
Sized swish_slope(double x, double k) {
  const double s = sigmoid(k * x), rest = sigmoid(-k * x), argument = k == 1 ? 0 : std::abs(k * x);
  return {s + k * x * s * rest, s * (1 + std::abs(k * x) * rest) * (1 + argument)};
}

constexpr double kQuick = 1.702f;

Sized function_of(const UnaryAttribute& unary, double x) {
  const double parameter = unary.parameter;
  switch (static_cast<UnaryFunction>(unary.function)) {
    case UnaryFunction::kSilu: return swish(x, 1);
    case UnaryFunction::kHardswish: return {x * over_6(x), std::abs(x) * over_6_magnitude(x)};
    case UnaryFunction::kHardsigmoid: return {over_6(x), over_6_magnitude(x)};
    case UnaryFunction::kSigmoid: return plain(sigmoid(x));
    case UnaryFunction::kRelu6: return plain(std::clamp(x, 0.0, 6.0));
    case UnaryFunction::kLeakyRelu: return plain(x > 0 ? x : parameter * x);
    case UnaryFunction::kElu: return plain(x > 0 ? x : parameter * std::expm1(x));
    case UnaryFunction::kTanh: return plain(std::tanh(x));
    case UnaryFunction::kSoftplus: return plain(softplus(x));
    case UnaryFunction::kMish: return plain(x * std::tanh(softplus(x)));
    case UnaryFunction::kQuickGelu: return swish(x, kQuick);
    case UnaryFunction::kExp: return plain(std::exp(x));
    case UnaryFunction::kScale: return plain(parameter * x);
    case UnaryFunction::kAtLeast: return plain(std::max(x, parameter));
    case UnaryFunction::kAtMost: return plain(std::min(x, parameter));
    case UnaryFunction::kSqrt: return plain(std::sqrt(x));
    case UnaryFunction::kReciprocal: return plain(1 / x);
  }
  return {};
}

Sized slope_of(const UnaryAttribute& unary, double x) {
  const double parameter = unary.parameter;
  switch (static_cast<UnaryFunction>(unary.function)) {
    case UnaryFunction::kSilu: return swish_slope(x, 1);
    case UnaryFunction::kHardswish:
      return x <= -3 ? plain(0) : x >= 3 ? plain(1) : Sized{x / 3 + 0.5, std::abs(x) / 3 + 0.5};
    case UnaryFunction::kHardsigmoid: return plain(std::abs(x) < 3 ? 1.0 / 6 : 0);
    case UnaryFunction::kSigmoid: return plain(sigmoid(x) * sigmoid(-x));
    case UnaryFunction::kRelu6: return plain(x > 0 && x < 6 ? 1 : 0);
    case UnaryFunction::kLeakyRelu: return plain(x > 0 ? 1 : parameter);
    case UnaryFunction::kElu: return plain(x > 0 ? 1 : parameter * std::exp(x));
    case UnaryFunction::kTanh: return plain(1 / std::pow(std::cosh(std::min(std::abs(x), 300.0)), 2));
    case UnaryFunction::kSoftplus: return plain(sigmoid(x));
    case UnaryFunction::kMish: {
      const double t = std::tanh(softplus(x)), c = std::cosh(std::min(softplus(x), 300.0)),
                   moved = sigmoid(x) / (c * c);
      return {t + x * moved, t + std::abs(x) * moved};
    }
    case UnaryFunction::kQuickGelu: return swish_slope(x, kQuick);
    case UnaryFunction::kExp: return plain(std::exp(x));
    case UnaryFunction::kScale: return plain(parameter);
    case UnaryFunction::kAtLeast: return plain(x >= parameter ? 1 : 0);
    case UnaryFunction::kAtMost: return plain(x <= parameter ? 1 : 0);
    case UnaryFunction::kSqrt: return plain(0.5 / std::sqrt(x));
    case UnaryFunction::kReciprocal: return plain(-1 / (x * x));
  }
  return {};
}

// Returns the points at which the derivative jumps.
std::vector<double> kinks_of(const UnaryAttribute& unary) {
  switch (static_cast<UnaryFunction>(unary.function)) {
    case UnaryFunction::kHardswish:
    case UnaryFunction::kHardsigmoid: return {-3, 3};
    case UnaryFunction::kRelu6: return {0, 6};
    case UnaryFunction::kLeakyRelu:
    case UnaryFunction::kElu:
    case UnaryFunction::kSqrt:
    case UnaryFunction::kReciprocal: return {0};
    case UnaryFunction::kAtLeast:
    case UnaryFunction::kAtMost: return {unary.parameter};
    default: return {};
  }
}

// ---- cases ----

void add_unary(CaseTable& table, UnaryFunction function, float parameter, uint32_t n) {
  const UnaryAttribute unary = {static_cast<uint32_t>(function), parameter};
  const auto x = shaped({n});
  const std::string given = parameter == 0 ? ""
                                           : "_p" + str(static_cast<uint64_t>(1000 * std::abs(parameter) + 0.5f)) +
                                                 (parameter < 0 ? "m" : "");
  const std::string tag = std::string(kUnaryFunctions[unary.function].word) + given + "_n" + str(n);
  table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kX, x}}, unary);
  table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kX, x}, {Backward::kDy, x}}, unary);
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_unary(table, UnaryFunction::kHardswish, 0, 1u << 22);
  for (uint32_t f = 0; f < kUnaryFunctionCount; ++f) {
    for (const uint32_t n : {1u, 3u, 67u, 2051u, 40003u})
      add_unary(table, static_cast<UnaryFunction>(f), kUnaryFunctions[f].absent, n);
  }
  add_unary(table, UnaryFunction::kLeakyRelu, 0.2f, 67);
  add_unary(table, UnaryFunction::kLeakyRelu, -0.5f, 67);
  add_unary(table, UnaryFunction::kElu, 1.7f, 67);
  add_unary(table, UnaryFunction::kScale, -0.3f, 67);
  add_unary(table, UnaryFunction::kAtLeast, -3.0f, 67);
  add_unary(table, UnaryFunction::kAtMost, 6.0f, 67);
}

// ---- data: large and small values, and values at and near kinks ----

void fit_data(CaseDraft& draft) {
  Array& x = draft.c.pass == Pass::kForward ? draft.value(Forward::kX) : draft.value(Backward::kX);
  const UnaryAttribute& unary = draft.c.as<UnaryAttribute>();
  const bool may_be_large = static_cast<UnaryFunction>(unary.function) != UnaryFunction::kExp;
  const double large = may_be_large ? 1000 : 80;
  const double special[] = {0.0, 1e-30, -1e-30, 30,     -30,   8.5,  -8.5,  large, -large, 3,   -3,
                            6,   -6,    2.998,  -2.998, 5.998, 1e-4, -1e-4, 0.3,   -0.35,  -0.7};
  for (double& element : x) element = as_f32(7 * element);
  for (size_t i = 0; i < std::size(special) && x.size() > std::size(special); ++i) x.flat(i) = as_f32(special[i]);
  for (double& element : x) {
    if (static_cast<UnaryFunction>(unary.function) == UnaryFunction::kSqrt)
      element = std::max(std::abs(element), as_f32(1e-30));
    const bool is_too_small = std::abs(element) < 1e-15;  // 1 / x^2 would exceed the range of f32
    if (static_cast<UnaryFunction>(unary.function) == UnaryFunction::kReciprocal && is_too_small)
      element = as_f32(1e-15);
  }
}

// ---- results of about a dozen roundings, with a division and an exponential ----

void expect(Oracle& o) {
  const UnaryAttribute& unary = o.c.as<UnaryAttribute>();
  const bool backward = o.c.pass == Pass::kBackward;
  const Array& x = backward ? o.value(Backward::kX) : o.value(Forward::kX);
  Expected e{zeros_like(x), zeros_like(x), 12};
  for (size_t i = 0; i < x.size(); ++i) {
    const double dy = backward ? o.value(Backward::kDy).flat(i) : 1;
    const Sized at = backward ? slope_of(unary, x.flat(i)) : function_of(unary, x.flat(i));
    e.value.flat(i) = dy * at.value;
    e.magnitude.flat(i) = std::abs(dy) * at.magnitude;
  }
  backward ? o.expect(Backward::kDx, e) : o.expect(Forward::kY, e);
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const UnaryAttribute unary = c.as<UnaryAttribute>();
  Array& x = data.values[Backward::kX];
  const auto function = static_cast<UnaryFunction>(unary.function);
  const bool has_pole = function == UnaryFunction::kSqrt || function == UnaryFunction::kReciprocal;
  for (double& element : x) {
    for (const double kink : kinks_of(unary)) element = as_f32(kink + away_from_zero(element - kink));
    // Near the pole at 0, finite differences do not approximate the derivative.
    if (has_pole && std::abs(element) < 0.25) element = std::copysign(0.25, element);
  }
  return {{x}, {Backward::kDx}, [&data, unary](const auto& at) {
            double sum = 0;
            for (size_t i = 0; i < at[0].size(); ++i)
              sum += data.values[Backward::kDy].flat(i) * function_of(unary, at[0].flat(i)).value;
            return sum;
          }};
}

// Returns values computed by hand, or by torch.nn.functional in double.
std::vector<KnownValue> known_values() {
  const auto known = [](const char* what, UnaryFunction function, float parameter, double x, double y) {
    return KnownValue{what, Array{function_of({static_cast<uint32_t>(function), parameter}, x).value}, Array{y}, 1e-12};
  };
  return {known("silu of 1", UnaryFunction::kSilu, 0, 1, 0.7310585786300049),
          known("hardswish of 1", UnaryFunction::kHardswish, 0, 1, 2.0 / 3),
          known("hardswish of -4", UnaryFunction::kHardswish, 0, -4, 0),
          known("hardsigmoid of -1", UnaryFunction::kHardsigmoid, 0, -1, 1.0 / 3),
          known("sigmoid of -1", UnaryFunction::kSigmoid, 0, -1, 0.2689414213699951),
          known("relu6 of 7", UnaryFunction::kRelu6, 0, 7, 6),
          known("leaky_relu of -4", UnaryFunction::kLeakyRelu, 0.25f, -4, -1),
          known("elu of -1", UnaryFunction::kElu, 2, -1, -1.2642411176571153),
          known("tanh of 1", UnaryFunction::kTanh, 0, 1, 0.7615941559557649),
          known("softplus of 0", UnaryFunction::kSoftplus, 0, 0, 0.6931471805599453),
          known("mish of 1", UnaryFunction::kMish, 0, 1, 0.8650983882673103),
          known("quick_gelu of 1, with 1.702 as f32", UnaryFunction::kQuickGelu, 0, 1, 0.8457957687936359),
          known("exp of 1", UnaryFunction::kExp, 0, 1, 2.718281828459045),
          known("at_least of -1", UnaryFunction::kAtLeast, 0.5f, -1, 0.5),
          known("at_most of 2", UnaryFunction::kAtMost, 0.5f, 2, 0.5),
          known("sqrt of 2", UnaryFunction::kSqrt, 0, 2, 1.4142135623730951),
          known("reciprocal of -4", UnaryFunction::kReciprocal, 0, -4, -0.25)};
}

// ---- wrong kernels ----

template <UnaryFunction kFrom, UnaryFunction kTo, typename Args>
Args replaced(Args args) {
  if (args.unary.function == static_cast<uint32_t>(kFrom)) args.unary.function = static_cast<uint32_t>(kTo);
  return args;
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Forward, [](const KernelContext& k, const UnaryForwardArgsOf<float>& a) {
      return cpu_unary_forward(k, replaced<UnaryFunction::kSilu, UnaryFunction::kQuickGelu>(a));
    }>("silu_is_quick_gelu"),
    wrong_kernel<Forward, [](const KernelContext& k, const UnaryForwardArgsOf<float>& a) {
      return cpu_unary_forward(k, replaced<UnaryFunction::kMish, UnaryFunction::kSilu>(a));
    }>("mish_is_silu"),
    wrong_kernel<Forward, [](const KernelContext& k, const UnaryForwardArgsOf<float>& a) {
      UnaryForwardArgsOf<float> other = a;
      other.unary.parameter = 0;
      return cpu_unary_forward(k, other);
    }>("the_parameter_is_lost"),
    wrong_kernel<Forward, [](const KernelContext& k, const UnaryForwardArgsOf<float>& a) {
      if (a.unary.function != static_cast<uint32_t>(UnaryFunction::kElu)) return cpu_unary_forward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.y[i] = 0 < a.x[i] ? a.x[i] : a.unary.parameter * (std::exp(a.x[i]) - 1.0f);
      return ok_status();
    }>("elu_cancels_near_0"),
    wrong_kernel<Forward, [](const KernelContext& k, const UnaryForwardArgsOf<float>& a) {
      if (a.unary.function != static_cast<uint32_t>(UnaryFunction::kSoftplus)) return cpu_unary_forward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.y[i] = std::log(1.0f + std::exp(a.x[i]));
      return ok_status();
    }>("softplus_overflows"),
    wrong_kernel<Backward, [](const KernelContext& k, const UnaryBackwardArgsOf<float>& a) {
      return cpu_unary_backward(k, replaced<UnaryFunction::kHardswish, UnaryFunction::kHardsigmoid>(a));
    }>("hardswish_takes_the_slope_of_hardsigmoid"),
    wrong_kernel<Backward, [](const KernelContext& k, const UnaryBackwardArgsOf<float>& a) {
      if (a.unary.function != static_cast<uint32_t>(UnaryFunction::kRelu6)) return cpu_unary_backward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = 0 <= a.x[i] && a.x[i] <= 6 ? a.dy[i] : 0;
      return ok_status();
    }>("relu6_passes_at_its_kinks"),
    wrong_kernel<Backward, [](const KernelContext& k, const UnaryBackwardArgsOf<float>& a) {
      if (a.unary.function != static_cast<uint32_t>(UnaryFunction::kAtMost)) return cpu_unary_backward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = a.x[i] < a.unary.parameter ? a.dy[i] : 0;
      return ok_status();
    }>("at_most_stops_at_its_bound"),
    wrong_kernel<Forward, [](const KernelContext& k, const UnaryForwardArgsOf<float>& a) {
      return cpu_unary_forward(k, replaced<UnaryFunction::kAtLeast, UnaryFunction::kAtMost>(a));
    }>("at_least_is_at_most"),
    wrong_kernel<Backward, [](const KernelContext& k, const UnaryBackwardArgsOf<float>& a) {
      if (a.unary.function != static_cast<uint32_t>(UnaryFunction::kTanh)) return cpu_unary_backward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = a.dy[i] * (1.0f - a.x[i] * a.x[i]);
      return ok_status();
    }>("tanh_takes_x_for_y"),
};

constexpr Op kFamilyOps[] = {Op::kUnary};

}  // namespace

extern constinit const OpFamily kUnaryFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
