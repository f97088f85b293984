// Dropout of elements and of whole samples: cases, reference, gradient check and wrong kernels. The
// reference's mask is from tests/ref/random.h.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/random.h"

namespace reprise::test {
namespace {

using namespace ref;

using Forward = DropoutForward;
using Backward = DropoutBackward;

// ---- cases ----

void add_shared(CaseTable& table, uint32_t samples, uint32_t each, float p) {
  const auto x = shaped({samples, each});
  const std::string tag = "n" + str(samples) + "_of_" + str(each) + "_p" + str(static_cast<uint64_t>(100 * p + 0.5f));
  table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kX, x}, {Forward::kScalars, scalars_tensor()}},
                     DropoutAttribute{p, 6, each});
  table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kDy, x}, {Backward::kScalars, scalars_tensor()}},
                      DropoutAttribute{p, 6, each});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  const struct { uint32_t samples, each; } sizes[] = {{1, 1}, {9, 3}, {67, 24}, {16, 1027}, {3, 20000}, {200, 1}};
  for (const auto& [samples, each] : sizes) {
    for (const float p : {0.0f, 0.4f}) add_shared(table, samples, each, p);
  }
  for (const uint32_t n : {1u, 3u, 8u, 67u, 1025u, 20001u, 70003u}) {
    const auto x = shaped({n});
    for (const float p : {0.0f, 0.1f, 0.5f}) {
      const std::string tag = "n" + str(n) + "_p" + str(static_cast<uint64_t>(100 * p + 0.5f));
      table.add<Forward>(tag, {{Forward::kY, x}, {Forward::kX, x}, {Forward::kScalars, scalars_tensor()}},
                         DropoutAttribute{p, 5});
      table.add<Backward>(tag, {{Backward::kDx, x}, {Backward::kDy, x}, {Backward::kScalars, scalars_tensor()}},
                          DropoutAttribute{p, 5});
    }
  }
}

// ---- results and gradient check: backward applies to dy what forward applies to x ----

Array dropped(const Array& x, const KernelCase& c, const StepScalars& scalars) {
  const DropoutAttribute& dropout = c.as<DropoutAttribute>();
  const Array draws = dropout_mask(scalars, dropout.stream, x.size() / dropout.shared, dropout.probability);
  Array y = x;
  for (size_t i = 0; i < y.size(); ++i) y.flat(i) *= draws(i / dropout.shared);
  return y;
}

void expect(Oracle& o) {
  const bool forward = o.c.pass == Pass::kForward;
  const Array y = dropped(forward ? o.value(Forward::kX) : o.value(Backward::kDy), o.c, o.data.scalars);
  const Expected e = {y, magnitudes(y), o.c.as<DropoutAttribute>().probability == 0 ? 0.0 : 3.0};
  forward ? o.expect(Forward::kY, e) : o.expect(Backward::kDx, e);
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{random_like(c.tensor(Backward::kDx), c.id)}, {Backward::kDx}, [&](const auto& at) {
            return dot(data.values[Backward::kDy], dropped(at[0], c, data.scalars));
          }};
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<Forward, [](const KernelContext& k, const DropoutArgsOf<float>& a) {
      DropoutArgsOf<float> other = a;
      other.dropout.shared = 1;
      return cpu_dropout(k, other);
    }>("drop_path_draws_for_each_element"),
    wrong_kernel<Backward, [](const KernelContext& k, const DropoutArgsOf<float>& a) {
      DropoutArgsOf<float> other = a;
      ++other.dropout.stream;
      return cpu_dropout(k, other);
    }>("dropout_backward_draws_another_mask"),
};

constexpr Op kFamilyOps[] = {Op::kDropout};

}  // namespace

extern constinit const OpFamily kDropoutFamily = {.ops = kFamilyOps,
                                                  .add_cases = add_cases,
                                                  .expect = expect,
                                                  .differentiable = differentiable,
                                                  .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
