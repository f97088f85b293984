// Batch-norm, and batch-norm folded into a ReLU's gradient or into an addition: cases, data, reference and slope.
#include "tests/ops/normalised_input.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- cases ----

using Given = std::optional<Tensor>;

// With the gradients of gamma and beta, and without.
void add_backward(CaseTable& table, const std::string& tag, const Given& x, const Given& c, const NormAttribute& norm, CaseValues data) {
  using A = BatchNormBackward;
  const auto add = [&](const std::string& tag, const Given& gradient) {
    table.add<A>(tag, {{A::kDx, x}, {A::kDgamma, gradient}, {A::kDbeta, gradient}, {A::kX, x}, {A::kMean, c}, {A::kRstd, c}, {A::kGamma, c},
                       {A::kDy, x}}, norm).data = data;
  };
  add(tag, c);
  table.again_accumulating({A::kDgamma, A::kDbeta});
  table.again_accumulating({A::kDgamma}, "_dgamma_only");
  add(tag + "_frozen", {});
}
void add_relu_backward(CaseTable& table, const std::string& tag, const Given& x, const Given& c, const NormAttribute& norm) {
  using A = NormReluBackward;
  const auto add = [&](const std::string& tag, const Given& gradient) {
    table.add<A>(tag, {{A::kDx, x}, {A::kDgamma, gradient}, {A::kDbeta, gradient}, {A::kX, x}, {A::kMean, c}, {A::kRstd, c}, {A::kGamma, c},
                       {A::kBeta, c}, {A::kDa, x}}, norm);
  };
  add(tag, c);
  table.again_accumulating({A::kDgamma, A::kDbeta});
  table.again_accumulating({A::kDgamma}, "_dgamma_only");
  add(tag + "_frozen", {});
}

void add_batch_norm(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, CaseValues data = CaseValues::kPlain,
                    const char* name = "") {
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
    table.add<Running>(tag, {{Running::kRunningMean, c}, {Running::kRunningVar, c}, {Running::kBatches, shaped({}, DType::kI64)},
                             {Running::kMean, c}, {Running::kRstd, c}}, norm).data = data;
  }
  table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kX, x}, {Forward::kMean, c}, {Forward::kRstd, c}, {Forward::kGamma, c},
                           {Forward::kBeta, c}}, norm).data = data;
  table.add<Inference>(tag, {{Inference::kY, x}, {Inference::kX, x}, {Inference::kRunningMean, c}, {Inference::kRunningVar, c},
                             {Inference::kGamma, c}, {Inference::kBeta, c}}, norm).data = data;
  add_backward(table, tag, x, c, norm, data);
  table.add<AddRelu>(tag, {{AddRelu::kY, x}, {AddRelu::kX, x}, {AddRelu::kB, x}, {AddRelu::kMean, c}, {AddRelu::kRstd, c},
                           {AddRelu::kGamma, c}, {AddRelu::kBeta, c}}, norm).data = data;
  // A gradient jumps at relu's kink, and from there offset data in bf16 has too few values to keep away, constant data too large an rstd.
  if (data == CaseValues::kPlain) add_relu_backward(table, tag, x, c, norm);
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return add_batch_norm(table, 32, 32, 32, 16);
  add_batch_norm(table, 1, 1, 1, 3);
  add_batch_norm(table, 2, 1, 1, 1);
  add_batch_norm(table, 2, 3, 5, 7);
  add_batch_norm(table, 3, 9, 11, 17);
  add_batch_norm(table, 5, 16, 17, 33);
  add_batch_norm(table, 2, 33, 65, 4);
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
    default: return fit_with_moments<BatchNormBackward>(draft);
  }
}

// norm(x) away from relu's kink, where a gradient jumps: what lies near moves out, two rows that are alike apart, and the moments
// follow. A single row is its mean: beta alone decides.
bool push_from_kink(CaseDraft& draft) {
  using A = NormReluBackward;
  constexpr double kLeast = 0.03, kPushed = 0.08;
  Array& x = draft.value(A::kX);
  const Array &mean = draft.value(A::kMean), &rstd = draft.value(A::kRstd), &gamma = draft.value(A::kGamma), &beta = draft.value(A::kBeta);
  const size_t C = mean.size();
  bool pushed = false;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % C;
    const double scale = rstd(c) * gamma(c), y = (x.flat(i) - mean(c)) * scale + beta(c);
    const double unit = std::max(1.0, std::abs(scale));  // near in x is near too, where rows that hardly differ make a large scale
    if (std::abs(y) >= kLeast * unit) continue;
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

void fit_data(CaseDraft& draft) {
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
  const double M = static_cast<double>(norm.count), epsilon = norm.epsilon, momentum = norm.momentum, unbiased = M / (M - 1);
  const Array &mean = o.value(A::kRunningMean), &var = o.value(A::kRunningVar), &new_mean = o.value(A::kMean);
  const Array variance = 1.0 / xt::square(o.value(A::kRstd));
  o.expect(A::kRunningMean, {(1 - momentum) * mean + momentum * new_mean, (1 - momentum) * xt::abs(mean) + momentum * xt::abs(new_mean), 3});
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
  o.expect(A::kY, {batch_norm_forward(x, moments, gamma, beta), batch_norm_forward_magnitude(x, moments, gamma, beta), 6});
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

void expect(Oracle& o) {
  if (o.c.op == Op::kNormRelu) return expect_norm_relu(o);
  if (o.c.op == Op::kNormAddRelu) return expect_norm_add_relu(o);
  using Forward = BatchNormForward;
  switch (o.c.pass) {
    case Pass::kStatistics: return expect_statistics(o);
    case Pass::kRunning: return expect_running(o);
    case Pass::kForward: return o.expect(Forward::kY, {normalised_input<Forward>(o), normalised_input_magnitude<Forward>(o), 4});
    case Pass::kInference: return expect_inference(o);
    default: return expect_backward<BatchNormBackward>(o, o.value(BatchNormBackward::kDy));
  }
}

// ---- slope ----

// `cuts`: the function is relu of the norm.
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

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using Plain = BatchNormBackward;
  using Relu = NormReluBackward;
  const std::vector<Array>& v = data.values;
  if (c.op == Op::kNormRelu) return slope_of<Relu>(c, data, v[Relu::kBeta], v[Relu::kDa], true);
  return slope_of<Plain>(c, data, v[Plain::kGamma] + 0.25, v[Plain::kDy], false);  // any beta: the slope does not hang on it
}

constexpr Op kFamilyOps[] = {Op::kBatchNorm, Op::kNormRelu, Op::kNormAddRelu};

}  // namespace

extern constinit const OpFamily kBatchNormFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable};

}  // namespace reprise::test
