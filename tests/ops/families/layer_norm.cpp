// Layer-norm and RMS-norm: cases, data, reference, gradient check and wrong kernels.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/normalised_input.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

// Returns `a` as a column. Layer-norm reduces the columns of [M,C], so its moments have the shape
// [M].
Array as_column(Array a) {
  a.reshape({a.size(), size_t{1}});
  return a;
}

Moments layer_norm_statistics(const Array& x, double epsilon) {
  const Array mean = xt::mean(x, {1});
  const Array centred = x - as_column(mean);
  const Array variance = xt::mean(xt::square(centred), {1});
  return {mean, 1.0 / xt::sqrt(variance + epsilon)};
}

Array layer_norm_normal(const Array& x, const Moments& moments) {
  const Array mean = as_column(moments.mean);
  const Array rstd = as_column(moments.rstd);
  return (x - mean) * rstd;
}
Array layer_norm_normal_magnitude(const Array& x, const Moments& moments) {
  const Array mean = as_column(moments.mean);
  const Array rstd = as_column(moments.rstd);
  return (xt::abs(x) + xt::abs(mean)) * rstd;
}

NormGradients layer_norm_backward_from(const Array& normal, const Array& rstd_in, const Array& gamma, const Array& dy,
                                              double sign) {
  const double C = static_cast<double>(dy.shape(1));
  const Array rstd = as_column(rstd_in);
  const Array g = dy * gamma;
  const Array sum_g = as_column(xt::sum(g, {1}));
  const Array sum_gn = as_column(xt::sum(g * normal, {1}));
  const Array dx = rstd * (g + sign * (sum_g / C + normal * sum_gn / C));
  return {dx, xt::sum(dy * normal, {0}), xt::sum(dy, {0})};
}
NormGradients layer_norm_backward(const Array& x, const Moments& moments, const Array& gamma, const Array& dy) {
  return layer_norm_backward_from(layer_norm_normal(x, moments), moments.rstd, gamma, dy, -1.0);
}
NormGradients layer_norm_backward_magnitude(const Array& x, const Moments& moments, const Array& gamma,
                                            const Array& dy) {
  return layer_norm_backward_from(layer_norm_normal_magnitude(x, moments), moments.rstd, magnitudes(gamma),
                                  magnitudes(dy), 1.0);
}

// Returns `a` as a matrix with rows of `columns` elements, the length of gamma. RMS-norm is
// layer-norm with a mean of zero and without beta.
Array by_gamma(Array a, size_t columns) {
  a.reshape({a.size() / columns, columns});
  return a;
}
Array rms_norm_rstd(const Array& x, double epsilon) { return 1.0 / xt::sqrt(xt::mean(xt::square(x), {1}) + epsilon); }
Array rms_norm_normal(const Array& x, const Array& rstd) { return x * as_column(rstd); }
NormGradients rms_norm_backward(const Array& x, const Array& rstd, const Array& gamma, const Array& dy, double sign) {
  const Array normal = rms_norm_normal(x, rstd), g = dy * gamma;
  const Array projection = as_column(xt::mean(g * normal, {1}));
  return {as_column(rstd) * (g + sign * normal * projection), xt::sum(dy * normal, {0}), {}};
}

// ---- cases ----

void add_layer_norm(CaseTable& table, uint32_t M, uint32_t C, CaseValues data = CaseValues::kPlain,
                    const char* name = "") {
  const auto x = shaped({M, C}), m = shaped({M}), c = shaped({C});
  const std::string tag = "m" + str(M) + "_c" + str(C) + name;
  const NormAttribute norm{1e-5f, 0.1f, C};
  using Forward = LayerNormForward;
  table
      .add<Forward>(tag,
                    {{Forward::kY, x},
                     {Forward::kMean, m},
                     {Forward::kRstd, m},
                     {Forward::kX, x},
                     {Forward::kGamma, c},
                     {Forward::kBeta, c}},
                    norm)
      .data = data;
  using A = LayerNormBackward;
  const auto add_backward = [&](const std::string& tag, const std::optional<Tensor>& gradient) {
    table
        .add<A>(tag,
                {{A::kDx, x},
                 {A::kDgamma, gradient},
                 {A::kDbeta, gradient},
                 {A::kX, x},
                 {A::kMean, m},
                 {A::kRstd, m},
                 {A::kGamma, c},
                 {A::kDy, x}},
                norm)
        .data = data;
  };
  add_backward(tag, c);
  table.again_accumulating({A::kDx, A::kDgamma, A::kDbeta});
  table.again_accumulating({A::kDx}, "_dx_only");
  add_backward(tag + "_frozen", {});
}

// Adds cases of RMS-norm. Each row of x has `heads` parts of C elements; each part is normalised
// separately.
void add_rms_norm(CaseTable& table, uint32_t M, uint32_t C, CaseValues data = CaseValues::kPlain, const char* name = "",
                  uint32_t heads = 1, float offset = 0) {
  const auto x = shaped({M, heads * C}), m = heads == 1 ? shaped({M}) : shaped({M, heads}), c = shaped({C});
  const std::string tag = "m" + str(M) + "_c" + str(C) + (heads == 1 ? "" : "_h" + str(heads)) +
                          (offset == 0 ? "" : "_added_to_one") + name;
  const NormAttribute norm{1e-5f, 0, 0, offset};
  using Forward = RmsNormForward;
  table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kRstd, m}, {Forward::kX, x}, {Forward::kGamma, c}}, norm).data =
      data;
  // Adds no backward for tiny values, because finite differences take steps larger than these
  // values. Also, tiny values test epsilon, which the backward does not use.
  if (data == CaseValues::kTiny) return;
  using A = RmsNormBackward;
  const auto add_backward = [&](const std::string& tag, const std::optional<Tensor>& dgamma) {
    table.add<A>(tag, {{A::kDx, x}, {A::kDgamma, dgamma}, {A::kX, x}, {A::kRstd, m}, {A::kGamma, c}, {A::kDy, x}}, norm)
        .data = data;
  };
  add_backward(tag, c);
  table.again_accumulating({A::kDx, A::kDgamma});
  table.again_accumulating({A::kDx}, "_dx_only");
  add_backward(tag + "_frozen", {});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_layer_norm(table, 1024, 768), add_rms_norm(table, 1024, 768);
  const struct {
    uint32_t M, C;
  } shapes[] = {{1, 1},     {1, 7},    {5, 64},  {67, 33}, {700, 12}, {3, 1030},
                {130, 129}, {129, 20}, {15, 24}, {2, 15},  {3, 16},   {3, 17}};
  for (const auto& [M, C] : shapes) add_rms_norm(table, M, C);
  add_rms_norm(table, 3, 7, CaseValues::kPlain, "", 2);
  add_rms_norm(table, 40, 64, CaseValues::kPlain, "", 9);
  add_rms_norm(table, 1, 16, CaseValues::kPlain, "", 33);
  add_rms_norm(table, 9, 48, CaseValues::kOffset, "_offset");
  add_rms_norm(table, 4, 70, CaseValues::kTiny, "_tiny");
  add_layer_norm(table, 1, 1);
  add_layer_norm(table, 1, 7);
  add_layer_norm(table, 5, 64);
  add_layer_norm(table, 67, 33);
  add_layer_norm(table, 700, 12);
  add_layer_norm(table, 3, 1030);
  add_layer_norm(table, 130, 129);
  add_layer_norm(table, 129, 20);  // one row more, and one row fewer, than whole CUDA blocks
  add_layer_norm(table, 15, 24);
  add_layer_norm(table, 2, 15);
  add_layer_norm(table, 3, 16);
  add_layer_norm(table, 3, 17);
  add_rms_norm(table, 67, 33, CaseValues::kPlain, "", 1, 1);
  add_rms_norm(table, 5, 256, CaseValues::kPlain, "", 1, 1);
  add_rms_norm(table, 9, 16, CaseValues::kPlain, "", 3, 1);
  add_layer_norm(table, 9, 48, CaseValues::kOffset, "_offset");
  add_layer_norm(table, 4, 10, CaseValues::kConstant, "_constant");
}

// ---- data ----

void shape_rms_norm_input(CaseDraft& draft, uint32_t x) {
  shape_norm_input(draft, x);
  // The mean square is then smaller than epsilon.
  if (draft.c.data == CaseValues::kTiny) draft.value(x) = as_f32(draft.value(x) * 1e-3);
}
void fit_rms_norm(CaseDraft& draft) {
  if (draft.c.pass == Pass::kForward) return shape_rms_norm_input(draft, RmsNormForward::kX);
  using A = RmsNormBackward;
  shape_rms_norm_input(draft, A::kX);
  Array& rstd = draft.value(A::kRstd);
  rstd = as_f32(like(rms_norm_rstd(by_gamma(draft.value(A::kX), draft.value(A::kGamma).size()), 1e-5), rstd));
}

void fit_data(CaseDraft& draft) {
  if (draft.c.op == Op::kRmsNorm) return fit_rms_norm(draft);
  if (draft.c.pass == Pass::kForward) return shape_norm_input(draft, LayerNormForward::kX);
  using A = LayerNormBackward;
  shape_norm_input(draft, A::kX);
  const Moments moments = layer_norm_statistics(draft.value(A::kX), draft.c.as<NormAttribute>().epsilon);
  draft.value(A::kMean) = as_f32(moments.mean);
  draft.value(A::kRstd) = as_f32(moments.rstd);
}

// ---- results ----

void expect_rms_norm(Oracle& o) {
  using A = RmsNormForward;
  const Array &gamma = o.value(A::kGamma), x = by_gamma(o.value(A::kX), gamma.size());
  const double offset = static_cast<double>(o.c.as<NormAttribute>().offset);
  const double C = static_cast<double>(x.shape(1));
  const Array rstd = rms_norm_rstd(x, o.c.as<NormAttribute>().epsilon),
              y = like(rms_norm_normal(x, rstd) * (gamma + offset), o.value(A::kX));
  o.expect(A::kY, {y, magnitudes(y), C + 4});
  o.expect(A::kRstd, {rstd, rstd, C});
}
void expect_rms_norm_backward(Oracle& o) {
  using A = RmsNormBackward;
  const Array gamma = o.value(A::kGamma) + static_cast<double>(o.c.as<NormAttribute>().offset),
              &rstd = o.value(A::kRstd);
  const Array x = by_gamma(o.value(A::kX), gamma.size()), dy = by_gamma(o.value(A::kDy), gamma.size());
  const double M = static_cast<double>(x.shape(0)), C = static_cast<double>(x.shape(1));
  const NormGradients g = rms_norm_backward(x, rstd, gamma, dy, -1);
  const NormGradients size = rms_norm_backward(magnitudes(x), rstd, magnitudes(gamma), magnitudes(dy), 1);
  o.expect(A::kDx, {like(g.dx, o.value(A::kX)), like(size.dx, o.value(A::kX)), C + 4});
  o.expect(A::kDgamma, {g.dgamma, size.dgamma, M});
}

void expect_layer_norm(Oracle& o) {
  using A = LayerNormForward;
  const Array &x = o.value(A::kX), &gamma = o.value(A::kGamma), &beta = o.value(A::kBeta);
  const double C = o.dimension(A::kX, 1);
  const Moments moments = layer_norm_statistics(x, o.c.as<NormAttribute>().epsilon);
  const Array normal = layer_norm_normal(x, moments), size = layer_norm_normal_magnitude(x, moments);
  o.expect(A::kY, {normal * gamma + beta, size * xt::abs(gamma) + xt::abs(beta), C + 4});
  o.expect(A::kMean, {moments.mean, xt::mean(magnitudes(x), {1}), C});
  o.expect(A::kRstd, {moments.rstd, moments.rstd, C});
}
void expect_layer_norm_backward(Oracle& o) {
  using A = LayerNormBackward;
  const Array &x = o.value(A::kX), &gamma = o.value(A::kGamma), &dy = o.value(A::kDy);
  const double M = o.dimension(A::kX, 0), C = o.dimension(A::kX, 1);
  const Moments moments{o.value(A::kMean), o.value(A::kRstd)};
  const NormGradients g = layer_norm_backward(x, moments, gamma, dy);
  const NormGradients size = layer_norm_backward_magnitude(x, moments, gamma, dy);
  o.expect(A::kDx, {g.dx, size.dx, C + 4});
  o.expect(A::kDgamma, {g.dgamma, size.dgamma, M});
  o.expect(A::kDbeta, {g.dbeta, size.dbeta, M});
}

void expect(Oracle& o) {
  const bool forward = o.c.pass == Pass::kForward;
  if (o.c.op == Op::kRmsNorm) return forward ? expect_rms_norm(o) : expect_rms_norm_backward(o);
  forward ? expect_layer_norm(o) : expect_layer_norm_backward(o);
}

// ---- gradient check ----

Differentiable rms_norm_slope(std::vector<Array>& v, double offset) {
  using A = RmsNormBackward;
  const size_t C = v[A::kGamma].size();
  v[A::kRstd] = like(rms_norm_rstd(by_gamma(v[A::kX], C), 1e-5), v[A::kRstd]);
  return {{v[A::kX], v[A::kGamma]}, {A::kDx, A::kDgamma}, [&v, C, offset](const auto& at) {
            const Array x = by_gamma(at[0], C);
            return dot(by_gamma(v[A::kDy], C), rms_norm_normal(x, rms_norm_rstd(x, 1e-5)) * (at[1] + offset));
          }};
}
Differentiable differentiable(const KernelCase& c, CaseData& data) {
  std::vector<Array>& v = data.values;
  if (c.op == Op::kRmsNorm) return rms_norm_slope(v, static_cast<double>(c.as<NormAttribute>().offset));
  using A = LayerNormBackward;
  const double epsilon = c.as<NormAttribute>().epsilon;
  const Moments exact = layer_norm_statistics(v[A::kX], epsilon);
  v[A::kMean] = exact.mean, v[A::kRstd] = exact.rstd;
  return {{v[A::kX], v[A::kGamma], Array(v[A::kGamma] + 0.25)},
          {A::kDx, A::kDgamma, A::kDbeta},
          [&v, epsilon](const auto& at) {
            return dot(v[A::kDy], layer_norm_normal(at[0], layer_norm_statistics(at[0], epsilon)) * at[1] + at[2]);
          }};
}

std::vector<KnownValue> known_values() {
  const Array x = {{3.0, 4.0}}, rstd = rms_norm_rstd(x, 12.5);  // the mean square is 12.5, so rstd is 1 / 5
  return {{"the rstd of 3 and 4", rstd, Array{0.2}, 1e-15},
          {"their RMS-norm", rms_norm_normal(x, rstd), Array{{0.6, 0.8}}, 1e-15}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<RmsNormForward, [](const KernelContext& k, const RmsNormForwardArgsOf<float>& a) {
      RmsNormForwardArgsOf<float> without = a;
      without.epsilon = 0;
      return cpu_rms_norm_forward(k, without);
    }>("rms_norm_without_epsilon"),
    wrong_kernel<RmsNormForward, [](const KernelContext& k, const RmsNormForwardArgsOf<float>& a) {
      RmsNormForwardArgsOf<float> without = a;
      without.offset = 0;
      return cpu_rms_norm_forward(k, without);
    }>("rms_norm_without_its_offset"),
    wrong_kernel<RmsNormBackward, [](const KernelContext& k, const RmsNormBackwardArgsOf<float>& a) {
      RmsNormBackwardArgsOf<float> without = a;
      without.offset = 0;
      return cpu_rms_norm_backward(k, without);
    }>("rms_norm_gradient_without_its_offset"),
    wrong_kernel<RmsNormForward, [](const KernelContext& k, const RmsNormForwardArgsOf<float>& a) {
      const Status status = cpu_rms_norm_forward(k, a);
      for (uint64_t i = 0; i < a.M; ++i) a.rstd[i] = 1 / a.rstd[i];
      return status;
    }>("rms_norm_saves_the_deviation"),
    wrong_kernel<RmsNormBackward, [](const KernelContext& k, const RmsNormBackwardArgsOf<float>& a) {
      const Status status = cpu_rms_norm_backward(k, a);
      for (uint64_t i = 0; !a.accumulate_dx && i < a.M * a.C; ++i)
        a.dx[i] = a.rstd[i / a.C] * (a.offset + a.gamma[i % a.C]) * a.dy[i];
      return status;
    }>("rms_norm_gradient_with_rstd_held_constant"),
    wrong_kernel<RmsNormForward, [](const KernelContext&, const RmsNormForwardArgsOf<float>& a) {
      const uint64_t together = a.M % 2 == 0 ? 2 : 1;  // wrong: two adjacent parts are normalised with one mean square
      for (uint64_t m = 0; m < a.M; m += together) {
        double squares = 0;
        for (uint64_t c = 0; c < together * a.C; ++c) squares += double{a.x[m * a.C + c]} * double{a.x[m * a.C + c]};
        const double rstd = 1 / std::sqrt(squares / static_cast<double>(together * a.C) + double{a.epsilon});
        for (uint64_t i = 0; i < together; ++i) a.rstd[m + i] = static_cast<float>(rstd);
        for (uint64_t c = 0; c < together * a.C; ++c)
          a.y[m * a.C + c] = static_cast<float>(a.x[m * a.C + c] * rstd) * (a.offset + a.gamma[c % a.C]);
      }
      return ok_status();
    }>("rms_norm_over_two_heads"),
    wrong_kernel<RmsNormBackward, [](const KernelContext& k, const RmsNormBackwardArgsOf<float>& a) {
      RmsNormBackwardArgsOf<float> forgets = a;
      forgets.accumulate_dgamma = false;
      return cpu_rms_norm_backward(k, forgets);
    }>("rms_norm_forgets_to_accumulate_dgamma"),
};

constexpr Op kFamilyOps[] = {Op::kLayerNorm, Op::kRmsNorm};

}  // namespace

extern constinit const OpFamily kLayerNormFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
