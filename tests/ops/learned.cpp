// Parameters as activations: cases, reference, slope and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = LearnedForward;
using Backward = LearnedBackward;

void add_learned(CaseTable& table, const std::string& tag, const std::optional<Tensor>& w) {
  table.add<Forward>(tag, {{Forward::kY, w}, {Forward::kW, w}});
  table.add<Backward>(tag, {{Backward::kDw, w}, {Backward::kDy, w}});
  table.again_accumulating({Backward::kDw});
}
void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_learned(table, "n1", shaped({1}));
  add_learned(table, "n20001", shaped({20001}));
  add_learned(table, "cls_token", shaped({1, 1, 48}));
  add_learned(table, "pos_embed", shaped({1, 17, 36}));
  add_learned(table, "four", shaped({2, 3, 5, 7}));
}

void expect(Oracle& o) {
  if (o.c.pass == Pass::kForward) {
    // Its one rounding is that of bf16.
    return o.expect(Forward::kY, stores_bf16(o.c) ? rounded(o.value(Forward::kW)) : exact(o.value(Forward::kW)));
  }
  o.expect(Backward::kDw, exact(o.value(Backward::kDy)));
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{random_like(c.tensor(Backward::kDw), c.id)}, {Backward::kDw}, [&data](const auto& at) { return dot(data.values[Backward::kDy], at[0]); }};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Forward, [](const KernelContext& k, const LearnedForwardArgsOf<float>& a) {
      LearnedForwardArgsOf<float> other = a;
      other.n = 1 < a.n ? a.n - 1 : a.n;
      return cpu_learned_forward(k, other);
    }>("learned_leaves_the_last_out"),
    wrong_kernel<Backward, [](const KernelContext& k, const LearnedBackwardArgsOf<float>& a) {
      LearnedBackwardArgsOf<float> other = a;
      other.accumulate_dw = false;
      return cpu_learned_backward(k, other);
    }>("learned_backward_overwrites"),
};

constexpr Op kFamilyOps[] = {Op::kLearned};

}  // namespace

extern constinit const OpFamily kLearnedFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .expect = expect, .differentiable = differentiable, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
