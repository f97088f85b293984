// Runs of columns: cases, reference, slope and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

Array columns_of(const Array& x, size_t first, size_t count) { return xt::view(x, xt::all(), xt::range(first, first + count)); }

void add_columns(CaseTable& table, uint32_t M, uint32_t K, uint32_t first, uint32_t C) {
  const auto part = shaped({M, C}), whole = shaped({M, K});
  const std::string tag = "m" + str(M) + "_k" + str(K) + "_f" + str(first) + "_c" + str(C);
  using Forward = ColumnsForward;
  using Backward = ColumnsBackward;
  table.add<Forward>(tag, {{Forward::kY, part}, {Forward::kX, whole}}, ColumnsAttribute{first});
  table.add<Backward>(tag, {{Backward::kDx, whole}, {Backward::kDy, part}}, ColumnsAttribute{first});
  table.again_accumulating({Backward::kDx});
}
void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  const struct { uint32_t M, K, first, C; } shapes[] = {{1, 1, 0, 1},   {5, 7, 0, 3},     {5, 7, 3, 4},     {67, 96, 32, 32},
                                                        {67, 96, 64, 32}, {3, 2000, 9, 1025}, {700, 24, 8, 8}, {2, 48, 0, 48}};
  for (const auto& [M, K, first, C] : shapes) add_columns(table, M, K, first, C);
}

void expect(Oracle& o) {
  const size_t first = o.c.as<ColumnsAttribute>().first;
  if (o.c.pass == Pass::kForward) {
    return o.expect(ColumnsForward::kY, exact(columns_of(o.value(ColumnsForward::kX), first, o.c.tensor(ColumnsForward::kY).shape[1])));
  }
  using A = ColumnsBackward;
  const Array& dy = o.value(A::kDy);
  Array dx = zeros({dy.shape(0), size_t{o.c.tensor(A::kDx).shape[1]}});
  xt::view(dx, xt::all(), xt::range(first, first + dy.shape(1))) = dy;
  o.expect(A::kDx, exact(dx));
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = ColumnsBackward;
  return {{random_like(c.tensor(A::kDx), c.id)}, {A::kDx}, [&data, first = c.as<ColumnsAttribute>().first](const auto& at) {
            return dot(data.values[A::kDy], columns_of(at[0], first, data.values[A::kDy].shape(1)));
          }};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<ColumnsForward, [](const KernelContext& k, const ColumnsForwardArgsOf<float>& a) {
      ColumnsForwardArgsOf<float> other = a;
      other.first = a.first == 0 && a.C < a.K ? 1 : a.first == 0 ? 0 : a.first - 1;
      return cpu_columns_forward(k, other);
    }>("columns_begin_one_aside"),
    wrong_kernel<ColumnsBackward, [](const KernelContext& k, const ColumnsBackwardArgsOf<float>& a) {
      ColumnsBackwardArgsOf<float> other = a;
      other.accumulate_dx = false;
      return cpu_columns_backward(k, other);
    }>("columns_backward_clears_what_it_must_add_to"),
    wrong_kernel<ColumnsBackward, [](const KernelContext& k, const ColumnsBackwardArgsOf<float>& a) {
      ColumnsBackwardArgsOf<float> other = a;
      other.accumulate_dx = true;
      return cpu_columns_backward(k, other);
    }>("columns_backward_leaves_the_other_columns"),
};

constexpr Op kFamilyOps[] = {Op::kColumns};

}  // namespace

extern constinit const OpFamily kColumnsFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .expect = expect, .differentiable = differentiable, .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
