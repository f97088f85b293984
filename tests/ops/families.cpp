// See families.h.
#include "tests/ops/families.h"

#include <cstdlib>

namespace reprise::test {

// Each family is defined in its own file.
extern const OpFamily kAttentionFamily, kBatchNormFamily, kBroadcastFamily, kClassLossFamily, kColumnsFamily,
    kConcatFamily, kConvFamily, kDoraFamily, kDropoutFamily, kElementwiseFamily, kEmbeddingFamily, kGradNormFamily,
    kLayerNormFamily, kLearnedFamily, kLinearFamily, kLossHeadFamily, kMatrixUpdateFamily, kOptimizerFamily,
    kPairLossFamily, kPoolFamily, kPreferenceFamily, kProductFamily, kResizeFamily, kRopeFamily, kSoftmaxFamily,
    kTargetLossFamily, kTransposeFamily, kUnaryFamily;

namespace {
constexpr const OpFamily* kFamilies[] = {
    &kConvFamily,       &kBatchNormFamily, &kElementwiseFamily, &kPoolFamily,         &kLinearFamily,
    &kLayerNormFamily,  &kEmbeddingFamily, &kAttentionFamily,   &kDropoutFamily,      &kLossHeadFamily,
    &kGradNormFamily,   &kOptimizerFamily, &kRopeFamily,        &kMatrixUpdateFamily, &kDoraFamily,
    &kPreferenceFamily, &kColumnsFamily,   &kUnaryFamily,       &kBroadcastFamily,    &kConcatFamily,
    &kTransposeFamily,  &kResizeFamily,    &kLearnedFamily,     &kTargetLossFamily,   &kClassLossFamily,
    &kSoftmaxFamily,    &kProductFamily,   &kPairLossFamily,
};

StepScalars scalars_of(const KernelCase& c) {
  StepScalars s{};
  s.seed = 0x123456789abcdef0ull;
  s.step = 12;
  s.micro_batch = 3;
  s.step_labelled = c.other_labels;
  s.skip = c.data == CaseValues::kSkip;
  s.learning_rate = 0.0375f;
  s.clip_factor = 0.625f;
  s.gradient_norm = 2.5f;
  s.loss_sum = 1.25;
  s.labelled = 17;
  s.correct = 5;
  s.rewards[0] = 0.5, s.rewards[1] = -0.75;
  s.judged[0] = 3, s.judged[1] = 2;
  s.weighted_loss = 0.375;
  return s;
}

// True if the argument is filled with random numbers: it exists, the kernel reads it, and it is
// neither bytes (which are indices) nor the scalars.
bool is_drawn(const KernelCase& c, uint32_t i) {
  const bool is_read = c.info().arguments[i].role != Role::kOutput || c.adds(i);
  return c.has(i) && is_read && c.tensor(i).dtype != DType::kU8;
}
void draw_uniform(CaseDraft& draft, uint32_t i) {
  const Tensor& tensor = draft.c.tensor(i);
  draft.value(i) = Array(Array::shape_type(tensor.shape, tensor.shape + tensor.rank), 0.0);
  for (double& element : draft.value(i)) element = as_f32(draft.random.uniform(-1, 1));
  draft.round_stored(i);
}
}  // namespace

std::span<const OpFamily* const> op_families() { return kFamilies; }

const OpFamily& family_of(Op op) {
  for (const OpFamily* family : kFamilies) {
    for (const Op own : family->ops) {
      if (own == op) return *family;
    }
  }
  std::abort();  // an op has no family: add its family to families.cpp
}

std::vector<KernelCase> kernel_cases(CaseUse use) {
  CaseTable table(use);
  for (const OpFamily* family : kFamilies) family->add_cases(table);
  return std::move(table.cases());
}

CaseData make_data(const KernelCase& c) {
  const auto count = static_cast<uint32_t>(c.arguments.size());
  CaseDraft draft{c, CaseRandom(c.id), {}};
  draft.data.values.resize(count);
  draft.data.scalars = scalars_of(c);
  for (uint32_t i = 0; i < count; ++i) {
    if (is_drawn(c, i)) draw_uniform(draft, i);
  }
  const OpFamily& family = family_of(c.op);
  if (family.fit_data != nullptr) family.fit_data(draft);
  for (uint32_t i = 0; i < count; ++i) draft.round_stored(i);
  return std::move(draft.data);
}

CaseExpected expected(const KernelCase& c, const CaseData& data) {
  Oracle oracle{c, data, {}};
  CaseExpected& out = oracle.out;
  out.outputs.resize(c.arguments.size());
  out.scalars = data.scalars;
  out.loss_sum = number(data.scalars.loss_sum, 0, 0);
  out.weighted_loss = number(data.scalars.weighted_loss, 0, 0);
  out.gradient_norm = number(data.scalars.gradient_norm, 0, 0);
  out.clip_factor = number(data.scalars.clip_factor, 0, 0);
  for (uint32_t i = 0; i < 2; ++i) out.rewards[i] = number(data.scalars.rewards[i], 0, 0);
  family_of(c.op).expect(oracle);
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.adds(i) || !c.has(i) || out.only_skip) continue;
    Expected& sum = out.outputs[i];
    sum = {sum.value + data.values[i], sum.magnitude + xt::abs(data.values[i]), sum.terms + 1, sum.rounded};
  }
  return std::move(out);
}

}  // namespace reprise::test
