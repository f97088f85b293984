// Batch-norm, and batch-norm folded into a ReLU's gradient or into an addition: cases, data, reference and slope.
#include "tests/ops/normalised_input.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- cases ----

void add_batch_norm(CaseTable& table, uint32_t N, uint32_t H, uint32_t W, uint32_t C, CaseValues data = CaseValues::kPlain,
                    const char* name = "") {
  const auto x = shaped({N, H, W, C}), c = shaped({C});
  const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + name;
  const uint64_t M = uint64_t{N} * H * W;
  const auto add = [&](Op op, Pass pass, const std::string& tag, CaseTable::Arguments arguments) {
    table.add(op, pass, tag, std::move(arguments), NormAttribute{1e-5f, 0.1f, M}).data = data;
  };
  add(Op::kBatchNorm, Pass::kStatistics, tag, {c, c, x});
  if (M > 1) add(Op::kBatchNorm, Pass::kRunning, tag, {c, c, shaped({}, DType::kI64), c, c});
  add(Op::kBatchNorm, Pass::kForward, tag, {x, x, c, c, c, c});
  add(Op::kBatchNorm, Pass::kInference, tag, {x, x, c, c, c, c});
  add(Op::kBatchNorm, Pass::kBackward, tag, {x, c, c, x, c, c, c, x});
  table.again_accumulating(0b110);
  table.again_accumulating(0b010, "_dgamma_only");
  add(Op::kBatchNorm, Pass::kBackward, tag + "_frozen", {x, {}, {}, x, c, c, c, x});
  add(Op::kNormAddRelu, Pass::kForward, tag, {x, x, x, c, c, c, c});
  // A gradient jumps at relu's kink, and from there offset data in bf16 has too few values to keep away, constant data too large an rstd.
  if (data != CaseValues::kPlain) return;
  add(Op::kNormRelu, Pass::kBackward, tag, {x, c, c, x, c, c, c, c, x});
  table.again_accumulating(0b110);
  table.again_accumulating(0b010, "_dgamma_only");
  add(Op::kNormRelu, Pass::kBackward, tag + "_frozen", {x, {}, {}, x, c, c, c, c, x});
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

void fit_batch_norm(CaseDraft& draft) {
  const auto positive = [&](uint32_t i) {
    for (double& element : draft.value(i)) element = as_f32(0.6 + 0.5 * element);
  };
  const Pass pass = draft.c.pass;
  if (pass == Pass::kRunning) {
    positive(1);
    draft.value(2).fill(7.0);
    for (double& rstd : draft.value(4)) rstd = as_f32(1 / std::sqrt(0.1 + std::abs(rstd)));
    return;
  }
  const uint32_t x = pass == Pass::kBackward ? 3 : pass == Pass::kStatistics ? 2 : 1;
  shape_norm_input(draft, x);
  if (pass == Pass::kStatistics) return;
  if (pass == Pass::kInference) return positive(3);
  set_moments(draft, x, x + 1, draft.c.as<NormAttribute>().epsilon);
}

// norm(x) away from relu's kink, where a gradient jumps: what lies near moves out, two rows that are alike apart, and the moments
// follow. A single row is its mean: beta alone decides.
bool push_from_kink(CaseDraft& draft) {
  constexpr double kLeast = 0.03, kPushed = 0.08;
  Array& x = draft.value(3);
  const Array &mean = draft.value(4), &rstd = draft.value(5), &gamma = draft.value(6), &beta = draft.value(7);
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
  draft.round_stored(3);
  return pushed;
}
void fit_norm_relu(CaseDraft& draft) {
  shape_norm_input(draft, 3);
  set_norm(draft, 3, 4);
  if (draft.c.as<NormAttribute>().count == 1) return;
  for (int round = 0; round < 100 && push_from_kink(draft); ++round) set_moments(draft, 3, 4);
}

void fit_data(CaseDraft& draft) {
  if (draft.c.op == Op::kBatchNorm) return fit_batch_norm(draft);
  if (draft.c.op == Op::kNormRelu) return fit_norm_relu(draft);
  shape_norm_input(draft, 1);
  set_norm(draft, 1, 3);
}

// ---- results ----

void expect_running(Oracle& o, const NormAttribute& norm) {
  const double M = static_cast<double>(norm.count), epsilon = norm.epsilon, momentum = norm.momentum, unbiased = M / (M - 1);
  const Array variance = 1.0 / xt::square(o.value(4));
  o.expect(0, {(1 - momentum) * o.value(0) + momentum * o.value(3),
               (1 - momentum) * xt::abs(o.value(0)) + momentum * xt::abs(o.value(3)), 3});
  o.expect(1, {(1 - momentum) * o.value(1) + momentum * unbiased * (variance - epsilon),
               (1 - momentum) * xt::abs(o.value(1)) + momentum * unbiased * (variance + epsilon), 6});
  o.expect(2, exact(o.value(2) + 1.0));
}

void expect_backward(Oracle& o, const Array& dy) {
  const double M = static_cast<double>(o.c.as<NormAttribute>().count);
  const Moments moments{o.value(4), o.value(5)};
  const NormGradients g = batch_norm_backward(o.value(3), moments, o.value(6), dy);
  const NormGradients size = batch_norm_backward_magnitude(o.value(3), moments, o.value(6), dy);
  o.expect(0, {g.dx, size.dx, M + 4});
  o.expect(1, {g.dgamma, size.dgamma, M});
  o.expect(2, {g.dbeta, size.dbeta, M});
}

void expect_normalised(Oracle& o, const Moments& moments, double terms) {
  o.expect(0, {batch_norm_forward(o.value(1), moments, o.value(4), o.value(5)),
               batch_norm_forward_magnitude(o.value(1), moments, o.value(4), o.value(5)), terms});
}

void expect_batch_norm(Oracle& o) {
  const NormAttribute& norm = o.c.as<NormAttribute>();
  const double epsilon = norm.epsilon;
  switch (o.c.pass) {
    case Pass::kStatistics: {
      const ExpectedStatistics statistics = expected_statistics(o.value(2), epsilon);
      o.expect(0, statistics.mean);
      return o.expect(1, statistics.rstd);
    }
    case Pass::kRunning: return expect_running(o, norm);
    case Pass::kForward: return expect_normalised(o, {o.value(2), o.value(3)}, 4);
    case Pass::kInference: return expect_normalised(o, {o.value(2), 1.0 / xt::sqrt(o.value(3) + epsilon)}, 6);
    default: return expect_backward(o, o.value(7));
  }
}

void expect(Oracle& o) {
  if (o.c.op == Op::kBatchNorm) return expect_batch_norm(o);
  if (o.c.op == Op::kNormRelu) return expect_backward(o, xt::where(normalised_input(o, 3, 4) > 0.0, o.value(8), 0.0));
  o.expect(0, {xt::maximum(normalised_input(o, 1, 3) + o.value(2), 0.0), normalised_input_magnitude(o, 1, 3) + xt::abs(o.value(2)), 5});
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  std::vector<Array>& v = data.values;
  const double epsilon = c.as<NormAttribute>().epsilon;
  const Moments exact = batch_norm_statistics(v[3], epsilon);
  v[4] = exact.mean, v[5] = exact.rstd;
  const bool cuts = c.op == Op::kNormRelu;
  const Array beta = cuts ? v[7] : Array(v[6] + 0.25);
  return {{v[3], v[6], beta}, {0, 1, 2}, [&v, epsilon, cuts](const auto& at) {
            const Array y = batch_norm_forward(at[0], batch_norm_statistics(at[0], epsilon), at[1], at[2]);
            return cuts ? dot(v[8], xt::maximum(y, 0.0)) : dot(v[7], y);
          }};
}

constexpr Op kFamilyOps[] = {Op::kBatchNorm, Op::kNormRelu, Op::kNormAddRelu};

}  // namespace

extern constinit const OpFamily kBatchNormFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable};

}  // namespace reprise::test
