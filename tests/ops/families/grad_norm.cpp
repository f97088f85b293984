// The norm of all gradients, and clipping by it: cases, data and reference.
#include <algorithm>
#include <cmath>

#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;
using Reduce = GradNormReduce;
using Finish = GradNormFinish;

// ---- cases ----

std::optional<Tensor> norms_tensor(uint32_t count) { return shaped({count}, DType::kF64); }

// Adds a reduction of a group of adjacent tensors. The argument with the gradients contains the
// tensors and the padding between them.
void add_reduce(CaseTable& table, const std::vector<uint32_t>& sizes, const char* name) {
  std::vector<Tensor> group;
  uint64_t offset = 0;
  for (const uint32_t size : sizes) {
    group.push_back(*shaped({size}));
    group.back().offset = offset;
    offset += group.back().bytes;
  }
  const auto count = static_cast<uint32_t>(group.size());
  const GroupAttribute attribute{count, 0, group.back().offset / sizeof(float) + group.back().elements()};
  const auto gradients = shaped({static_cast<uint32_t>(offset / sizeof(float))});
  table.add<Reduce>(name, {{Reduce::kNorms, norms_tensor(count)}, {Reduce::kGradients, gradients}}, attribute).group =
      group;
}

void add_finish(CaseTable& table, uint32_t count, float max_norm, const char* name,
                CaseValues data = CaseValues::kPlain) {
  table
      .add<Finish>(name, {{Finish::kScalars, scalars_tensor()}, {Finish::kNorms, norms_tensor(count)}},
                   ClipAttribute{max_norm})
      .data = data;
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_reduce(table, {1}, "one");
  add_reduce(table, {1, 65, 3, 1000, 64, 5}, "padded");
  add_reduce(table, {100003, 7}, "long");
  add_reduce(table, std::vector<uint32_t>(300, 70), "many");
  add_reduce(table, {32768, 32769, 32767}, "whole_blocks");
  add_reduce(table, {16385, 3, 16384, 16383, 50000, 1025, 1024}, "parts");
  std::vector<uint32_t> large_among_many(300, 70);  // large tensors around index 128, where a second CUDA launch begins
  large_among_many[127] = 40000, large_among_many[128] = 16385, large_among_many[299] = 33000;
  add_reduce(table, large_among_many, "large_among_many");
  add_finish(table, 1, 0.0f, "one_unclipped");
  add_finish(table, 7, 0.0f, "unclipped");
  add_finish(table, 7, 1.0f, "clipped");
  add_finish(table, 7, 1000.0f, "below_the_limit");
  add_finish(table, 7, 0.001f, "clipped_small", CaseValues::kTiny);
  add_finish(table, 300, 1.0f, "clipped_many");
  add_finish(table, 7, 1.0f, "non_finite", CaseValues::kNonFinite);
  add_finish(table, 7, 0.0f, "nan_unclipped", CaseValues::kNaN);
  add_finish(table, 7, 1.0f, "already_skipped", CaseValues::kSkip);
}

// ---- data ----

void fit_data(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  if (c.pass == Pass::kFinish) {
    for (double& norm : draft.value(Finish::kNorms)) norm = std::abs(norm) * (c.data == CaseValues::kTiny ? 1e-6 : 1.0);
    if (c.is_non_finite()) draft.value(Finish::kNorms).flat(3) = not_finite(c);
    return;
  }
  Array& gradients = draft.value(Reduce::kGradients);
  Array padded = zeros_like(gradients);  // padding between tensors is zero, as in a plan
  for (const Tensor& tensor : c.group) {
    for (uint64_t i = tensor.offset / 4; i < tensor.offset / 4 + tensor.elements(); ++i) padded(i) = gradients(i);
  }
  gradients = padded;
}

// ---- results ----

// Sets the expected sums of squares. The kernel adds in double, whose rounding is 2^-53. The
// tolerance assumes f32's 2^-24, so it is multiplied by 2^-29.
void expect_reduce(Oracle& o) {
  const std::vector<Tensor>& group = o.c.group;
  const Array& gradients = o.value(Reduce::kGradients);
  Expected e{zeros({group.size()}), zeros({group.size()}), 1};
  for (size_t t = 0; t < group.size(); ++t) {
    long double sum = 0;
    const uint64_t first = group[t].offset / 4, n = group[t].elements();
    for (uint64_t i = first; i < first + n; ++i) sum += static_cast<long double>(gradients(i)) * gradients(i);
    e.value(t) = static_cast<double>(sum);
    e.magnitude(t) = e.value(t) * std::sqrt(static_cast<double>(n)) * 0x1p-29;
  }
  o.expect(Reduce::kNorms, e);
}

void expect_finish(Oracle& o) {
  double sum = 0;
  for (const double norm : o.value(Finish::kNorms)) sum += norm;
  if (!std::isfinite(sum)) {
    o.out.only_skip = true;
    o.out.scalars.skip = 1;
    return;
  }
  const double norm = std::sqrt(sum), max_norm = o.c.as<ClipAttribute>().max_norm;
  const double factor = max_norm == 0 ? 1.0 : std::min(1.0, max_norm / (norm + 1e-6));
  o.out.gradient_norm = number(norm, norm, 2);
  o.out.clip_factor = number(factor, factor, factor == 1.0 ? 0 : 4);
}

void expect(Oracle& o) { o.c.pass == Pass::kReduce ? expect_reduce(o) : expect_finish(o); }

constexpr Op kFamilyOps[] = {Op::kGradNorm};

}  // namespace

extern constinit const OpFamily kGradNormFamily = {.ops = kFamilyOps,
                                                   .add_cases = add_cases,
                                                   .fit_data = fit_data,
                                                   .expect = expect};

}  // namespace reprise::test
