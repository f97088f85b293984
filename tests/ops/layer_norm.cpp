// Layer-norm: cases, data, reference and slope.
#include "tests/ops/normalised_input.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

// Layer-norm reduces over the columns of [M,C]; its moments have shape [M].
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
NormGradients layer_norm_backward_magnitude(const Array& x, const Moments& moments, const Array& gamma, const Array& dy) {
  return layer_norm_backward_from(layer_norm_normal_magnitude(x, moments), moments.rstd, magnitudes(gamma), magnitudes(dy), 1.0);
}

// ---- cases ----

void add_layer_norm(CaseTable& table, uint32_t M, uint32_t C, DataKind data = DataKind::kPlain, const char* name = "") {
  const auto x = shaped({M, C}), m = shaped({M}), c = shaped({C});
  const std::string tag = "m" + str(M) + "_c" + str(C) + name;
  const NormAttribute norm{1e-5f, 0.1f, C};
  table.add(Op::kLayerNorm, Pass::kForward, tag, {x, m, m, x, c, c}, norm).data = data;
  table.add(Op::kLayerNorm, Pass::kBackward, tag, {x, c, c, x, m, m, c, x}, norm).data = data;
  table.again_accumulating(0b111);
  table.again_accumulating(0b001, "_dx_only");
  table.add(Op::kLayerNorm, Pass::kBackward, tag + "_frozen", {x, {}, {}, x, m, m, c, x}, norm).data = data;
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_layer_norm(table, 1024, 768);
  add_layer_norm(table, 1, 1);
  add_layer_norm(table, 1, 7);
  add_layer_norm(table, 5, 64);
  add_layer_norm(table, 67, 33);
  add_layer_norm(table, 700, 12);
  add_layer_norm(table, 3, 1030);
  add_layer_norm(table, 130, 129);
  add_layer_norm(table, 2, 15);
  add_layer_norm(table, 3, 16);
  add_layer_norm(table, 3, 17);
  add_layer_norm(table, 9, 48, DataKind::kOffset, "_offset");
  add_layer_norm(table, 4, 10, DataKind::kConstant, "_constant");
}

// ---- data ----

void fit_data(CaseDraft& draft) {
  shape_norm_input(draft, 3);
  if (draft.c.pass == Pass::kForward) return;
  const Moments moments = layer_norm_statistics(draft.value(3), draft.c.as<NormAttribute>().epsilon);
  draft.value(4) = as_f32(moments.mean);
  draft.value(5) = as_f32(moments.rstd);
}

// ---- results ----

void expect(Oracle& o) {
  const double M = o.dimension(3, 0), C = o.dimension(3, 1);
  const Array& x = o.value(3);
  if (o.c.pass == Pass::kForward) {
    const Moments moments = layer_norm_statistics(x, o.c.as<NormAttribute>().epsilon);
    const Array normal = layer_norm_normal(x, moments), size = layer_norm_normal_magnitude(x, moments);
    o.expect(0, {normal * o.value(4) + o.value(5), size * xt::abs(o.value(4)) + xt::abs(o.value(5)), C + 4});
    o.expect(1, {moments.mean, xt::mean(magnitudes(x), {1}), C});
    return o.expect(2, {moments.rstd, moments.rstd, C});
  }
  const Moments moments{o.value(4), o.value(5)};
  const NormGradients g = layer_norm_backward(x, moments, o.value(6), o.value(7));
  const NormGradients size = layer_norm_backward_magnitude(x, moments, o.value(6), o.value(7));
  o.expect(0, {g.dx, size.dx, C + 4});
  o.expect(1, {g.dgamma, size.dgamma, M});
  o.expect(2, {g.dbeta, size.dbeta, M});
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  std::vector<Array>& v = data.values;
  const double epsilon = c.as<NormAttribute>().epsilon;
  const Moments exact = layer_norm_statistics(v[3], epsilon);
  v[4] = exact.mean, v[5] = exact.rstd;
  return {{v[3], v[6], Array(v[6] + 0.25)}, {0, 1, 2}, [&v, epsilon](const auto& at) {
            return dot(v[7], layer_norm_normal(at[0], layer_norm_statistics(at[0], epsilon)) * at[1] + at[2]);
          }};
}

constexpr Op kFamilyOps[] = {Op::kLayerNorm};

}  // namespace

extern constinit const OpFamily kLayerNormFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable};

}  // namespace reprise::test
