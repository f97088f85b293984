// Permutation of dimensions: cases, reference, gradient check and wrong kernels.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

std::vector<size_t> order_of(const TransposeAttribute& a, size_t rank) {
  const std::vector<size_t> all = {0, a.axis_1, a.axis_2, a.axis_3};
  return {all.begin(), all.begin() + static_cast<ptrdiff_t>(rank)};
}
Array transposed(const Array& x, const TransposeAttribute& order) {
  return xt::transpose(x, order_of(order, x.dimension()));
}
// Returns dy with its dimensions in the original order: the inverse of the transpose.
Array transposed_back(const Array& dy, const TransposeAttribute& order) {
  const std::vector<size_t> axes = order_of(order, dy.dimension());
  std::vector<size_t> inverse(axes.size());
  for (size_t d = 0; d < axes.size(); ++d) inverse[axes[d]] = d;
  return xt::transpose(dy, inverse);
}

void add_transpose(CaseTable& table, std::vector<uint32_t> shape, TransposeAttribute order) {
  Tensor x, y;
  for (const uint32_t d : shape) x.shape[x.rank++] = d;
  y = x;
  const std::vector<size_t> axes = order_of(order, shape.size());
  for (size_t d = 0; d < axes.size(); ++d) y.shape[d] = x.shape[axes[d]];
  x.bytes = y.bytes = align_up(x.used_bytes());
  std::string tag = "by0" + str(order.axis_1) + str(order.axis_2) + str(order.axis_3);
  for (const uint32_t d : shape) tag += "_" + str(d);
  using Forward = TransposeForward;
  using Backward = TransposeBackward;
  table.add<Forward>(tag, {{Forward::kY, y}, {Forward::kX, x}}, order);
  table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kDy, y}}, order);
  table.again_accumulating({Backward::kDx});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  const TransposeAttribute orders[] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
  for (const TransposeAttribute& order : orders) {
    add_transpose(table, {2, 3, 5, 7}, order);
    add_transpose(table, {1, 16, 2, 32}, order);
    add_transpose(table, {2, 33, 17, 18}, order);
  }
  add_transpose(table, {1, 1, 1, 1}, {3, 2, 1});
  add_transpose(table, {3, 20, 41}, {2, 1, 3});       // [B,T,C] to [B,C,T]
  add_transpose(table, {2, 196, 96}, {2, 1, 3});
  add_transpose(table, {2, 49, 2, 12}, {1, 3, 2});    // interleaves the channels of two groups
  add_transpose(table, {2, 10, 4, 16}, {2, 1, 3});    // moves heads before positions
}

void expect(Oracle& o) {
  const auto& order = o.c.as<TransposeAttribute>();
  o.expect(0, exact(o.c.pass == Pass::kForward ? transposed(o.value(1), order) : transposed_back(o.value(1), order)));
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = TransposeBackward;
  return {{random_like(c.tensor(A::kDx), c.id)}, {A::kDx}, [&data, order = c.as<TransposeAttribute>()](const auto& at) {
            return dot(data.values[A::kDy], transposed(at[0], order));
          }};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<TransposeForward, [](const KernelContext& k, const TransposeArgsOf<float>& a) {
      TransposeArgsOf<float> other = a;
      std::swap(other.R, other.C);
      return cpu_transpose(k, other);
    }>("transpose_forward_is_the_inverse"),
    wrong_kernel<TransposeForward, [](const KernelContext& k, const TransposeArgsOf<float>& a) {
      TransposeArgsOf<float> other = a;  // merges the middle dimension with the first, which is wrong
      other.M *= a.B, other.B = 1;
      return cpu_transpose(k, other);
    }>("transpose_leaves_the_middle_dimension_out"),
    wrong_kernel<TransposeBackward, [](const KernelContext& k, const TransposeArgsOf<float>& a) {
      TransposeArgsOf<float> other = a;
      other.accumulate_y = false;
      return cpu_transpose(k, other);
    }>("transpose_overwrites_what_it_must_add_to"),
};

constexpr Op kFamilyOps[] = {Op::kTranspose};

}  // namespace

extern constinit const OpFamily kTransposeFamily = {.ops = kFamilyOps,
                                                    .add_cases = add_cases,
                                                    .expect = expect,
                                                    .differentiable = differentiable,
                                                    .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
