// Batch-norm, alone and folded into a ReLU's gradient or into an addition, and group-norm: cases,
// data, reference, gradient check and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/normalised_input.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- group-norm's reference ----

// The groups of a group-norm of x [N,H,W,C]. of(i) is the group of element i, counted over all
// samples. Moments are arrays [N,G].
struct Groups {
  size_t N, HW, C, G;

  Groups(const Array& x, size_t groups) : N(x.shape(0)), HW(x.shape(1) * x.shape(2)), C(x.shape(3)), G(groups) {}
  size_t size() const { return N * HW * C; }
  size_t of(size_t i) const { return i / (HW * C) * G + i % C / (C / G); }
  double count() const { return static_cast<double>(HW * (C / G)); }
};

// Returns [N,G]: the mean of f(i) over the elements i of each group.
template <typename F>
Array group_means(const Groups& groups, const F& f) {
  Array means = zeros({groups.N, groups.G});
  for (size_t i = 0; i < groups.size(); ++i) means.flat(groups.of(i)) += f(i) / groups.count();
  return means;
}
Moments group_moments(const Array& x, const Groups& groups, double epsilon) {
  const Array mean = group_means(groups, [&](size_t i) { return x.flat(i); });
  const Array variance =
      group_means(groups, [&](size_t i) { return std::pow(x.flat(i) - mean.flat(groups.of(i)), 2); });
  return {mean, 1.0 / xt::sqrt(variance + epsilon)};
}
// Returns (x + sign * mean) * rstd, which is the normalised x if `sign` is -1. If `sign` is 1 and
// |x| is given in place of x, the result is the magnitude of the terms.
Array group_normal(Array x, const Groups& groups, const Moments& moments, double sign = -1) {
  for (size_t i = 0; i < groups.size(); ++i)
    x.flat(i) = (x.flat(i) + sign * moments.mean.flat(groups.of(i))) * moments.rstd.flat(groups.of(i));
  return x;
}
NormGradients group_gradients(const Array& normal, const Groups& groups, const Array& rstd, const Array& gamma,
                              const Array& dy, double sign) {
  const Array g = dy * gamma;
  const Array gradient = group_means(groups, [&](size_t i) { return g.flat(i); });
  const Array projection = group_means(groups, [&](size_t i) { return g.flat(i) * normal.flat(i); });
  Array dx = zeros_like(dy);
  for (size_t i = 0; i < groups.size(); ++i) {
    const size_t of = groups.of(i);
    dx.flat(i) = rstd.flat(of) * (g.flat(i) + sign * (gradient.flat(of) + normal.flat(i) * projection.flat(of)));
  }
  return {dx, xt::sum(rows(dy * normal), {0}), xt::sum(rows(dy), {0})};
}

// ---- cases ----

using Given = std::optional<Tensor>;

// Adds cases with and without the gradients of gamma and beta.
void add_backward(CaseTable& table, const std::string& tag, const Given& x, const Given& c, const NormAttribute& norm,
                  CaseValues data) {
  using A = BatchNormBackward;
  const auto add = [&](const std::string& tag, const Given& gradient) {
    table
        .add<A>(tag,
                {{A::kDx, x},
                 {A::kDgamma, gradient},
                 {A::kDbeta, gradient},
                 {A::kX, x},
                 {A::kMean, c},
                 {A::kRstd, c},
                 {A::kGamma, c},
                 {A::kDy, x}},
                norm)
        .data = data;
  };
  add(tag, c);
  table.again_accumulating({A::kDgamma, A::kDbeta});
  table.again_accumulating({A::kDgamma}, "_dgamma_only");
  add(tag + "_frozen", {});
}
void add_relu_backward(CaseTable& table, const std::string& tag, const Given& x, const Given& c,
                       const NormAttribute& norm) {
  using A = NormReluBackward;
  const auto add = [&](const std::string& tag, const Given& gradient) {
    table.add<A>(tag,
                 {{A::kDx, x},
                  {A::kDgamma, gradient},
                  {A::kDbeta, gradient},
                  {A::kX, x},
                  {A::kMean, c},
                  {A::kRstd, c},
                  {A::kGamma, c},
                  {A::kBeta, c},
                  {A::kDa, x}},
                 norm);
  };
  add(tag, c);
  table.again_accumulating({A::kDgamma, A::kDbeta});
  table.again_accumulating({A::kDgamma}, "_dgamma_only");
  add(tag + "_frozen", {});
}

void add_batch_norm(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C,
                    CaseValues data = CaseValues::kPlain, const char* name = "") {
  const auto x = shaped({N, H, W, C}), c = shaped({C});
  const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + name;
  const NormAttribute norm{1e-5f, 0.1f, uint64_t{N} * H * W};
  using Statistics = BatchNormStatistics;
  using Running = BatchNormRunning;
  using Forward = BatchNormForward;
  using Inference = BatchNormInference;
  using AddRelu = NormAddReluForward;
  table.add<Statistics>(tag, {{Statistics::kMean, c}, {Statistics::kRstd, c}, {Statistics::kX, x}}, norm).data = data;
  if (norm.count > 1) {
    table
        .add<Running>(tag,
                      {{Running::kRunningMean, c},
                       {Running::kRunningVar, c},
                       {Running::kBatches, shaped({}, DType::kI64)},
                       {Running::kMean, c},
                       {Running::kRstd, c}},
                      norm)
        .data = data;
  }
  table
      .add<Forward>(tag,
                    {{Forward::kY, x},
                     {Forward::kX, x},
                     {Forward::kMean, c},
                     {Forward::kRstd, c},
                     {Forward::kGamma, c},
                     {Forward::kBeta, c}},
                    norm)
      .data = data;
  table
      .add<Inference>(tag,
                      {{Inference::kY, x},
                       {Inference::kX, x},
                       {Inference::kRunningMean, c},
                       {Inference::kRunningVar, c},
                       {Inference::kGamma, c},
                       {Inference::kBeta, c}},
                      norm)
      .data = data;
  add_backward(table, tag, x, c, norm, data);
  using BackwardData = BatchNormBackwardData;
  table
      .add<BackwardData>(
          tag,
          {{BackwardData::kDx, x}, {BackwardData::kDy, x}, {BackwardData::kRunningVar, c}, {BackwardData::kGamma, c}},
          norm)
      .data = data;
  table
      .add<AddRelu>(tag,
                    {{AddRelu::kY, x},
                     {AddRelu::kX, x},
                     {AddRelu::kB, x},
                     {AddRelu::kMean, c},
                     {AddRelu::kRstd, c},
                     {AddRelu::kGamma, c},
                     {AddRelu::kBeta, c}},
                    norm)
      .data = data;
  // Only plain data get this case. The gradient jumps at the kink of the ReLU, so data must avoid
  // the kink. Offset data in bf16 have too few different values to avoid it, and constant data have
  // too large an rstd.
  if (data == CaseValues::kPlain) add_relu_backward(table, tag, x, c, norm);
}

void add_group_norm(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, uint32_t G,
                    CaseValues data = CaseValues::kPlain, const char* name = "") {
  const auto x = shaped({N, H, W, C}), m = shaped({N, G}), c = shaped({C});
  const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + "_g" + str(G) + name;
  using Forward = GroupNormForward;
  using Backward = GroupNormBackward;
  table
      .add<Forward>(tag,
                    {{Forward::kY, x},
                     {Forward::kMean, m},
                     {Forward::kRstd, m},
                     {Forward::kX, x},
                     {Forward::kGamma, c},
                     {Forward::kBeta, c}},
                    NormAttribute{1e-5f, 0, 0})
      .data = data;
  const auto add_backward = [&](const std::string& tag, const Given& dgamma, const Given& dbeta) {
    table
        .add<Backward>(tag, {{Backward::kDx, x},
                             {Backward::kDgamma, dgamma},
                             {Backward::kDbeta, dbeta},
                             {Backward::kX, x},
                             {Backward::kMean, m},
                             {Backward::kRstd, m},
                             {Backward::kGamma, c},
                             {Backward::kDy, x}})
        .data = data;
  };
  add_backward(tag, c, c);
  table.again_accumulating({Backward::kDgamma, Backward::kDbeta});
  table.again_accumulating({Backward::kDgamma}, "_dgamma_only");
  add_backward(tag + "_frozen", {}, {});
  add_backward(tag + "_frozen_gamma", {}, c);
}

// Adds shapes with one group, with as many groups as channels, and with groups whose ends are not
// the ends of packs and vectors. Some samples consist of one chunk, some of several.
void add_group_norms(CaseTable& table) {
  const struct { uint32_t N, H, W, C, G;
  } shapes[] = {{1, 1, 1, 1, 1},   {2, 1, 1, 6, 3},     {2, 3, 5, 12, 4},   {3, 9, 11, 17, 17},  {2, 3, 5, 7, 1},
                {5, 8, 17, 33, 3}, {1, 33, 65, 4, 2},   {2, 4, 3, 130, 10}, {1, 3, 2, 1027, 13}, {35, 2, 3, 16, 2},
                {3, 8, 8, 64, 8},  {2, 12, 6, 264, 33}, {1, 1, 2, 600, 5}};
  for (const auto& [N, H, W, C, G] : shapes) add_group_norm(table, N, H, W, C, G);
  add_group_norm(table, 3, 9, 11, 18, 6, CaseValues::kOffset, "_offset");
  add_group_norm(table, 2, 4, 4, 6, 3, CaseValues::kConstant, "_constant");
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_batch_norm(table, 32, 32, 32, 16), add_group_norm(table, 32, 32, 32, 64, 8);
  add_group_norms(table);
  add_batch_norm(table, 1, 1, 1, 3);
  add_batch_norm(table, 2, 1, 1, 1);
  add_batch_norm(table, 2, 3, 5, 7);
  add_batch_norm(table, 3, 9, 11, 17);
  add_batch_norm(table, 5, 16, 17, 33);
  add_batch_norm(table, 2, 33, 65, 4);
  add_batch_norm(table, 1, 3, 43, 7);  // 129 rows
  add_batch_norm(table, 1, 1, 127, 20);
  add_batch_norm(table, 1, 4, 3, 130);
  add_batch_norm(table, 2, 3, 2, 1027);
  add_batch_norm(table, 1, 1, 2, 600);
  add_batch_norm(table, 3, 9, 11, 18, CaseValues::kOffset, "_offset");
  add_batch_norm(table, 2, 4, 4, 5, CaseValues::kConstant, "_constant");
}

// ---- data ----

void make_positive(Array& variance) {
  for (double& element : variance) element = as_f32(0.6 + 0.5 * element);
}
void fit_running(CaseDraft& draft) {
  using A = BatchNormRunning;
  make_positive(draft.value(A::kRunningVar));
  draft.value(A::kBatches).fill(7.0);
  for (double& rstd : draft.value(A::kRstd)) rstd = as_f32(1 / std::sqrt(0.1 + std::abs(rstd)));
}
template <typename K>
void fit_with_moments(CaseDraft& draft) {
  shape_norm_input(draft, K::kX);
  set_moments<K>(draft, draft.c.as<NormAttribute>().epsilon);
}
void fit_batch_norm(CaseDraft& draft) {
  switch (draft.c.pass) {
    case Pass::kStatistics: return shape_norm_input(draft, BatchNormStatistics::kX);
    case Pass::kRunning: return fit_running(draft);
    case Pass::kForward: return fit_with_moments<BatchNormForward>(draft);
    case Pass::kInference:
      shape_norm_input(draft, BatchNormInference::kX);
      return make_positive(draft.value(BatchNormInference::kRunningVar));
    case Pass::kBackwardData: return make_positive(draft.value(BatchNormBackwardData::kRunningVar));
    default: return fit_with_moments<BatchNormBackward>(draft);
  }
}

// Moves norm(x) away from 0, where relu has a kink and the gradient jumps. Elements near 0 move by
// a fixed distance, even rows up and odd rows down, so that equal rows become different. Returns
// true if an element moved; the caller must then compute the moments again. (With a single row,
// norm(x) is beta, which does not depend on x.)
bool push_from_kink(CaseDraft& draft) {
  using A = NormReluBackward;
  constexpr double kMin = 0.03, kPushed = 0.08;
  Array& x = draft.value(A::kX);
  const Array &mean = draft.value(A::kMean), &rstd = draft.value(A::kRstd), &gamma = draft.value(A::kGamma),
              &beta = draft.value(A::kBeta);
  const size_t C = mean.size();
  bool pushed = false;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % C;
    const double scale = rstd(c) * gamma(c), y = (x.flat(i) - mean(c)) * scale + beta(c);
    // If the rows are nearly equal, rstd is large. Rounding x then moves norm(x) by more, so
    // distances must be larger.
    const double unit = std::max(1.0, std::abs(scale));
    if (std::abs(y) >= kMin * unit) continue;
    x.flat(i) = as_f32(x.flat(i) + (i / C % 2 == 0 ? kPushed : -kPushed) * unit / std::abs(scale));
    pushed = true;
  }
  draft.round_stored(A::kX);
  return pushed;
}
template <typename K>
void fit_norm(CaseDraft& draft) {
  shape_norm_input(draft, K::kX);
  set_norm<K>(draft);
}

// Sets some gammas to zero, to detect a kernel that divides by gamma.
template <typename K>
void shape_group_norm(CaseDraft& draft) {
  shape_norm_input(draft, K::kX);
  Array& gamma = draft.value(K::kGamma);
  for (size_t c = 1; c < gamma.size(); c += 4) gamma(c) = 0;
}
void fit_group_norm(CaseDraft& draft) {
  using A = GroupNormBackward;
  if (draft.c.pass == Pass::kForward) return shape_group_norm<GroupNormForward>(draft);
  shape_group_norm<A>(draft);
  const Moments moments =
      group_moments(draft.value(A::kX), {draft.value(A::kX), draft.c.tensor(A::kMean).shape[1]}, 1e-5);
  draft.value(A::kMean) = as_f32(moments.mean);
  draft.value(A::kRstd) = as_f32(moments.rstd);
}

void fit_data(CaseDraft& draft) {
  if (draft.c.op == Op::kGroupNorm) return fit_group_norm(draft);
  if (draft.c.op == Op::kBatchNorm) return fit_batch_norm(draft);
  if (draft.c.op == Op::kNormAddRelu) return fit_norm<NormAddReluForward>(draft);
  fit_norm<NormReluBackward>(draft);
  if (draft.c.as<NormAttribute>().count == 1) return;
  for (int round = 0; round < 100 && push_from_kink(draft); ++round) set_moments<NormReluBackward>(draft);
}

// ---- results ----

void expect_running(Oracle& o) {
  using A = BatchNormRunning;
  const NormAttribute& norm = o.c.as<NormAttribute>();
  const double M = static_cast<double>(norm.count), epsilon = norm.epsilon, momentum = norm.momentum,
               unbiased = M / (M - 1);
  const Array &mean = o.value(A::kRunningMean), &var = o.value(A::kRunningVar), &new_mean = o.value(A::kMean);
  const Array variance = 1.0 / xt::square(o.value(A::kRstd));
  o.expect(A::kRunningMean, {(1 - momentum) * mean + momentum * new_mean,
                             (1 - momentum) * xt::abs(mean) + momentum * xt::abs(new_mean), 3});
  o.expect(A::kRunningVar, {(1 - momentum) * var + momentum * unbiased * (variance - epsilon),
                            (1 - momentum) * xt::abs(var) + momentum * unbiased * (variance + epsilon), 6});
  o.expect(A::kBatches, exact(o.value(A::kBatches) + 1.0));
}

template <typename K>
void expect_backward(Oracle& o, const Array& dy) {
  const double M = static_cast<double>(o.c.as<NormAttribute>().count);
  const Array &x = o.value(K::kX), &gamma = o.value(K::kGamma);
  const Moments moments{o.value(K::kMean), o.value(K::kRstd)};
  const NormGradients g = batch_norm_backward(x, moments, gamma, dy);
  const NormGradients size = batch_norm_backward_magnitude(x, moments, gamma, dy);
  o.expect(K::kDx, {g.dx, size.dx, M + 4});
  o.expect(K::kDgamma, {g.dgamma, size.dgamma, M});
  o.expect(K::kDbeta, {g.dbeta, size.dbeta, M});
}

void expect_inference(Oracle& o) {
  using A = BatchNormInference;
  const double epsilon = o.c.as<NormAttribute>().epsilon;
  const Array &x = o.value(A::kX), &gamma = o.value(A::kGamma), &beta = o.value(A::kBeta);
  const Moments moments{o.value(A::kRunningMean), 1.0 / xt::sqrt(o.value(A::kRunningVar) + epsilon)};
  o.expect(A::kY,
           {batch_norm_forward(x, moments, gamma, beta), batch_norm_forward_magnitude(x, moments, gamma, beta), 6});
}

void expect_backward_data(Oracle& o) {
  using A = BatchNormBackwardData;
  const Array dx =
      o.value(A::kDy) * o.value(A::kGamma) / xt::sqrt(o.value(A::kRunningVar) + o.c.as<NormAttribute>().epsilon);
  o.expect(A::kDx, {dx, magnitudes(dx), 6});
}

void expect_statistics(Oracle& o) {
  using A = BatchNormStatistics;
  const ExpectedStatistics statistics = expected_statistics(o.value(A::kX), o.c.as<NormAttribute>().epsilon);
  o.expect(A::kMean, statistics.mean);
  o.expect(A::kRstd, statistics.rstd);
}

void expect_norm_relu(Oracle& o) {
  using A = NormReluBackward;
  expect_backward<A>(o, xt::where(normalised_input<A>(o) > 0.0, o.value(A::kDa), 0.0));
}
void expect_norm_add_relu(Oracle& o) {
  using A = NormAddReluForward;
  const Array& b = o.value(A::kB);
  o.expect(A::kY, {xt::maximum(normalised_input<A>(o) + b, 0.0), normalised_input_magnitude<A>(o) + xt::abs(b), 5});
}

void expect_group_norm(Oracle& o) {
  using A = GroupNormForward;
  const Array &x = o.value(A::kX), &gamma = o.value(A::kGamma), &beta = o.value(A::kBeta);
  const Groups groups(x, o.c.tensor(A::kMean).shape[1]);
  const Moments moments = group_moments(x, groups, o.c.as<NormAttribute>().epsilon);
  const Array size = group_normal(magnitudes(x), groups, {magnitudes(moments.mean), moments.rstd}, 1);
  o.expect(A::kY, {group_normal(x, groups, moments) * gamma + beta, size * xt::abs(gamma) + xt::abs(beta),
                   groups.count() + 4});
  o.expect(A::kMean,
           {moments.mean, group_means(groups, [&](size_t i) { return std::abs(x.flat(i)); }), groups.count()});
  o.expect(A::kRstd, {moments.rstd, moments.rstd, groups.count()});
}
void expect_group_gradients(Oracle& o) {
  using A = GroupNormBackward;
  const Array &x = o.value(A::kX), &gamma = o.value(A::kGamma), &dy = o.value(A::kDy);
  const Groups groups(x, o.c.tensor(A::kMean).shape[1]);
  const Moments moments{o.value(A::kMean), o.value(A::kRstd)};
  const NormGradients g = group_gradients(group_normal(x, groups, moments), groups, moments.rstd, gamma, dy, -1);
  const Array normal_size = group_normal(magnitudes(x), groups, {magnitudes(moments.mean), moments.rstd}, 1);
  const NormGradients size = group_gradients(normal_size, groups, moments.rstd, magnitudes(gamma), magnitudes(dy), 1);
  const double rows = static_cast<double>(groups.N * groups.HW);
  o.expect(A::kDx, {g.dx, size.dx, groups.count() + 4});
  o.expect(A::kDgamma, {g.dgamma, size.dgamma, rows});
  o.expect(A::kDbeta, {g.dbeta, size.dbeta, rows});
}

void expect(Oracle& o) {
  if (o.c.op == Op::kGroupNorm) return o.c.pass == Pass::kForward ? expect_group_norm(o) : expect_group_gradients(o);
  if (o.c.op == Op::kNormRelu) return expect_norm_relu(o);
  if (o.c.op == Op::kNormAddRelu) return expect_norm_add_relu(o);
  using Forward = BatchNormForward;
  switch (o.c.pass) {
    case Pass::kStatistics: return expect_statistics(o);
    case Pass::kRunning: return expect_running(o);
    case Pass::kForward:
      return o.expect(Forward::kY, {normalised_input<Forward>(o), normalised_input_magnitude<Forward>(o), 4});
    case Pass::kInference: return expect_inference(o);
    case Pass::kBackwardData: return expect_backward_data(o);
    default: return expect_backward<BatchNormBackward>(o, o.value(BatchNormBackward::kDy));
  }
}

// ---- gradient check ----

Differentiable group_norm_slope(std::vector<Array>& v) {
  using A = GroupNormBackward;
  const Groups groups(v[A::kX], v[A::kMean].shape(1));
  const Moments exact = group_moments(v[A::kX], groups, 1e-5);
  v[A::kMean] = exact.mean, v[A::kRstd] = exact.rstd;
  return {{v[A::kX], v[A::kGamma], Array(v[A::kGamma] + 0.25)},
          {A::kDx, A::kDgamma, A::kDbeta},
          [&v, groups](const auto& at) {
            return dot(v[A::kDy], group_normal(at[0], groups, group_moments(at[0], groups, 1e-5)) * at[1] + at[2]);
          }};
}

// Returns sum(dy * norm(x)), or sum(dy * relu(norm(x))) if `cuts`, as a function of x, gamma and
// beta.
template <typename K>
Differentiable slope_of(const KernelCase& c, CaseData& data, const Array& beta, const Array& dy, bool cuts) {
  std::vector<Array>& v = data.values;
  const double epsilon = c.as<NormAttribute>().epsilon;
  const Moments exact = batch_norm_statistics(v[K::kX], epsilon);
  v[K::kMean] = exact.mean, v[K::kRstd] = exact.rstd;
  return {{v[K::kX], v[K::kGamma], beta}, {K::kDx, K::kDgamma, K::kDbeta}, [&dy, epsilon, cuts](const auto& at) {
            const Array y = batch_norm_forward(at[0], batch_norm_statistics(at[0], epsilon), at[1], at[2]);
            return cuts ? dot(dy, xt::maximum(y, 0.0)) : dot(dy, y);
          }};
}

// Returns sum(dy * norm(x)) as a function of x, where norm() uses running statistics. Its gradient
// does not depend on mean and beta, so both have arbitrary values here.
Differentiable slope_by_running(const KernelCase& c, const std::vector<Array>& v) {
  using A = BatchNormBackwardData;
  const double epsilon = c.as<NormAttribute>().epsilon;
  return {{random_like(c.tensor(A::kDx), c.id)}, {A::kDx}, [&v, epsilon](const auto& at) {
            const Moments moments{v[A::kGamma] - 0.5, 1.0 / xt::sqrt(v[A::kRunningVar] + epsilon)};
            return dot(v[A::kDy], batch_norm_forward(at[0], moments, v[A::kGamma], Array(v[A::kGamma] + 0.25)));
          }};
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  if (c.op == Op::kGroupNorm) return group_norm_slope(data.values);
  if (c.pass == Pass::kBackwardData) return slope_by_running(c, data.values);
  using Plain = BatchNormBackward;
  using Relu = NormReluBackward;
  const std::vector<Array>& v = data.values;
  if (c.op == Op::kNormRelu) return slope_of<Relu>(c, data, v[Relu::kBeta], v[Relu::kDa], true);
  // The gradients do not depend on beta, so its value is arbitrary.
  return slope_of<Plain>(c, data, v[Plain::kGamma] + 0.25, v[Plain::kDy], false);
}

std::vector<KnownValue> known_values() {
  const Array x = {{{{1.0, 10.0}, {3.0, 30.0}}}};  // one row of two pixels, each with two channels
  // The variance is 131.5 in one group, and 1 and 100 in two groups.
  const Moments together = group_moments(x, {x, 1}, 12.5), apart = group_moments(x, {x, 2}, 0);
  return {{"the mean of one group", together.mean, zeros({1, 1}) + 11.0, 1e-15},
          {"its rstd", together.rstd, zeros({1, 1}) + 1.0 / 12, 1e-15},
          {"the means of two groups", apart.mean, Array{{2.0, 20.0}}, 1e-15},
          {"their rstd", apart.rstd, Array{{1.0, 0.1}}, 1e-15},
          {"what they normalise", group_normal(x, {x, 2}, apart), Array{{{{-1.0, -1.0}, {1.0, 1.0}}}}, 1e-15}};
}

// ---- wrong kernels ----

using GroupForward = GroupNormForwardArgsOf<float>;
using GroupBackward = GroupNormBackwardArgsOf<float>;

// Computes a group-norm, but normalises channel c with the moments of group of(c).
template <typename F>
Status normalise_by(const KernelContext& k, const GroupForward& a, const F& of) {
  const Status status = cpu_group_norm_forward(k, a);
  for (uint64_t i = 0; i < a.N * a.HW * a.C; ++i) {
    const uint64_t c = i % a.C, group = i / (a.HW * a.C) * a.G + of(c);
    a.y[i] = (a.x[i] - a.mean[group]) * a.rstd[group] * a.gamma[c] + a.beta[c];
  }
  return status;
}

// Computes dx as dy * scale(channel).
template <typename F>
Status scale_by(const BatchNormBackwardDataArgsOf<float>& a, const F& scale) {
  for (uint64_t i = 0; i < a.M * a.C; ++i) a.dx[i] = a.dy[i] * scale(i % a.C);
  return ok_status();
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<BatchNormBackwardData, [](const KernelContext&, const BatchNormBackwardDataArgsOf<float>& a) {
      return scale_by(a, [&](uint64_t c) { return a.gamma[c] / std::sqrt(a.running_var[c]); });
    }>("batch_norm_gradient_by_running_statistics_without_epsilon"),
    wrong_kernel<BatchNormBackwardData, [](const KernelContext&, const BatchNormBackwardDataArgsOf<float>& a) {
      return scale_by(a, [&](uint64_t c) { return 1 / std::sqrt(a.running_var[c] + a.epsilon); });
    }>("batch_norm_gradient_by_running_statistics_without_gamma"),
    wrong_kernel<BatchNormBackwardData, [](const KernelContext&, const BatchNormBackwardDataArgsOf<float>& a) {
      return scale_by(a, [&](uint64_t c) { return a.gamma[c] / (a.running_var[c] + a.epsilon); });
    }>("batch_norm_gradient_by_running_variance_without_its_root"),
    wrong_kernel<BatchNormBackwardData, [](const KernelContext&, const BatchNormBackwardDataArgsOf<float>& a) {
      return scale_by(a, [&](uint64_t c) { return a.gamma[(c + 1) % a.C] / std::sqrt(a.running_var[c] + a.epsilon); });
    }>("batch_norm_gradient_by_running_statistics_of_the_next_channel"),
    wrong_kernel<GroupNormForward, [](const KernelContext& k, const GroupForward& a) {
      GroupForward without = a;
      without.epsilon = 0;
      return cpu_group_norm_forward(k, without);
    }>("group_norm_without_epsilon"),
    wrong_kernel<GroupNormForward, [](const KernelContext& k, const GroupForward& a) {
      return normalise_by(k, a, [&](uint64_t c) { return c % a.G; });
    }>("group_norm_of_channels_that_are_no_neighbours"),
    wrong_kernel<GroupNormForward, [](const KernelContext& k, const GroupForward& a) {
      GroupForward batch = a;  // one sample of N * HW pixels: wrong, because all samples then get the same moments
      batch.N = 1, batch.HW = a.N * a.HW;
      const Status status = cpu_group_norm_forward(k, batch);
      for (uint64_t i = a.G; i < uint64_t{a.N} * a.G; ++i) a.mean[i] = a.mean[i % a.G], a.rstd[i] = a.rstd[i % a.G];
      return status;
    }>("group_norm_over_the_batch"),
    wrong_kernel<GroupNormForward, [](const KernelContext& k, const GroupForward& a) {
      const Status status = cpu_group_norm_forward(k, a);
      const double count = static_cast<double>(a.HW * (a.C / a.G));
      for (uint64_t i = 0; count != 1 && i < uint64_t{a.N} * a.G; ++i)
        a.rstd[i] *= static_cast<float>(std::sqrt((count - 1) / count));
      return status;
    }>("group_norm_with_an_unbiased_variance"),
    wrong_kernel<GroupNormBackward, [](const KernelContext& k, const GroupBackward& a) {
      const Status status = cpu_group_norm_backward(k, a);
      for (uint64_t i = 0; i < a.N * a.HW * a.C; ++i)
        a.dx[i] = a.rstd[i / (a.HW * a.C) * a.G + i % a.C / (a.C / a.G)] * a.gamma[i % a.C] * a.dy[i];
      return status;
    }>("group_norm_gradient_with_moments_held_constant"),
    wrong_kernel<GroupNormBackward, [](const KernelContext& k, const GroupBackward& a) {
      GroupBackward one = a;  // wrong: sums gradients over the last sample only
      one.N = 1;
      const uint64_t last = (a.N - uint64_t{1}) * a.HW * a.C, group = (a.N - uint64_t{1}) * a.G;
      const Status status = cpu_group_norm_backward(k, a);
      one.dx += last, one.x += last, one.dy += last, one.mean += group, one.rstd += group;
      return a.accumulate_dgamma || a.accumulate_dbeta ? status : cpu_group_norm_backward(k, one);
    }>("group_norm_parameters_of_one_sample"),
    wrong_kernel<GroupNormBackward, [](const KernelContext& k, const GroupBackward& a) {
      GroupBackward forgets = a;
      forgets.accumulate_dbeta = false;
      return cpu_group_norm_backward(k, forgets);
    }>("group_norm_forgets_to_accumulate_dbeta"),
};

constexpr Op kFamilyOps[] = {Op::kBatchNorm, Op::kNormRelu, Op::kNormAddRelu, Op::kGroupNorm};

}  // namespace

extern constinit const OpFamily kBatchNormFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .known_values = known_values, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
