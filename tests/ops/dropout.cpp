// Dropout: cases, reference and slope. The mask is that of tests/ref/random.h.
#include "tests/ops/op_family.h"
#include "tests/ref/random.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- cases ----

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  for (const uint32_t n : {1u, 3u, 8u, 67u, 1025u, 20001u, 70003u}) {
    const auto x = shaped({n});
    for (const float p : {0.0f, 0.1f, 0.5f}) {
      const std::string tag = "n" + str(n) + "_p" + str(static_cast<uint64_t>(100 * p + 0.5f));
      table.add(Op::kDropout, Pass::kForward, tag, {x, x, scalars_tensor()}, DropoutAttribute{p, 5});
      table.add(Op::kDropout, Pass::kBackward, tag, {x, x, scalars_tensor()}, DropoutAttribute{p, 5});
    }
  }
}

// ---- results and slope: backward is the same function of dy ----

Array dropped(const Array& x, const KernelCase& c, const StepScalars& scalars) {
  const DropoutAttribute& dropout = c.as<DropoutAttribute>();
  return x * dropout_mask(scalars, dropout.stream, x.size(), dropout.probability);
}

void expect(Oracle& o) {
  const Array y = dropped(o.value(1), o.c, o.data.scalars);
  o.expect(0, {y, magnitudes(y), o.c.as<DropoutAttribute>().probability == 0 ? 0.0 : 3.0});
}

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  return {{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) { return dot(data.values[1], dropped(at[0], c, data.scalars)); }};
}

constexpr Op kFamilyOps[] = {Op::kDropout};

}  // namespace

extern constinit const OpFamily kDropoutFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .expect = expect, .differentiable = differentiable};

}  // namespace reprise::test
