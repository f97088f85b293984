// Compares each loss and its gradient with PyTorch's. tests/parity/make_loss_goldens.py lists the
// inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/script_numbers.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

using Floats = std::vector<float>;

Floats weights(size_t count, uint32_t seed) {
  Floats made = script_numbers(count, seed, 1);
  for (float& weight : made) weight = std::abs(weight) + 0.5f;
  return made;
}

// Returns the numbers of golden `name`: the loss, followed by its gradient.
std::vector<double> golden(const std::string& name) {
  std::ifstream file("tests/golden/losses.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != name) continue;
    std::vector<double> all;
    for (double number; words >> number;) all.push_back(number);
    return all;
  }
  ADD_FAILURE() << "no golden " << name;
  return {0};
}

// Compares a loss and its gradient with golden `name`. The loss may have an error relative to
// itself, because it is a mean of numbers with a few f32 roundings each. Elements of the gradient
// may have an error relative to the largest element.
void expect_golden(const std::string& name, double loss, const Floats& dx) {
  const std::vector<double> want = golden(name);
  ASSERT_EQ(dx.size() + 1, want.size()) << name;
  EXPECT_NEAR(loss, want[0], 1e-6 * std::abs(want[0])) << name;
  double largest = 0;
  for (size_t i = 1; i < want.size(); ++i) largest = std::max(largest, std::abs(want[i]));
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(static_cast<double>(dx[i]), want[i + 1], 1e-6 * largest) << name << ", element " << i;
}

struct Call {
  StepScalars scalars{};
  TestWorkers hands{2};
  KernelContext context{.workers = &hands.workers(), .machine = test_backend().machine};
  std::vector<double> scratch = std::vector<double>(8192);
};

void judge_targets(const std::string& name, const TargetLossAttribute& loss, const Floats& targets, const float* positive_weights) {
  Call call;
  call.scalars.step_labelled = targets.size();
  const Floats x = script_numbers(targets.size(), 1, 3);
  Floats dx(x.size());
  const TargetLossInputOf<float> in = {.x = x.data(), .targets = targets.data(), .positive_weights = positive_weights, .scratch = call.scratch.data(), .M = 7, .C = 5, .loss = loss};
  EXPECT_TRUE(cpu_target_loss_backward<float>(call.context, {dx.data(), &call.scalars, in}).ok());
  expect_golden(name, call.scalars.loss_sum, dx);
  call.scalars.loss_sum = 0;
  EXPECT_TRUE(cpu_target_loss_evaluate<float>(call.context, {&call.scalars, in}).ok());
  EXPECT_NEAR(call.scalars.loss_sum / static_cast<double>(call.scalars.labelled), golden(name)[0], 1e-6 * golden(name)[0]) << name;
}

TEST(LossGoldens, OfNumbersArePyTorchs) {
  Floats targets = script_numbers(35, 2, 3);
  judge_targets("mse", {static_cast<uint32_t>(TargetLossKind::kMse)}, targets, nullptr);
  judge_targets("l1", {static_cast<uint32_t>(TargetLossKind::kL1)}, targets, nullptr);
  judge_targets("huber", {static_cast<uint32_t>(TargetLossKind::kHuber), 0.75f}, targets, nullptr);
  for (float& target : targets) target = target > 0 ? 1 : 0;
  judge_targets("binary", {static_cast<uint32_t>(TargetLossKind::kBinary)}, targets, weights(5, 3).data());
}

template <typename Label>
void judge_classes(const std::string& name, const ClassLossAttribute& loss, const Floats& x, const std::vector<Label>& labels, uint64_t N, uint32_t C, const Floats& class_weights) {
  Call call;
  Floats dx(x.size());
  const ClassLossInputOf<float> in = {.x = x.data(), .labels = labels.data(), .are_bytes = sizeof(Label) == 1, .weights = class_weights.empty() ? nullptr : class_weights.data(),
                                      .scratch = call.scratch.data(), .M = labels.size(), .N = N, .C = C, .loss = loss};
  for (uint64_t row = 0; row < labels.size(); ++row) {
    if (!in.is_labelled(row)) continue;
    ++call.scalars.step_labelled;
    call.scalars.step_weight += class_weights.empty() ? 1.0 : static_cast<double>(class_weights[static_cast<size_t>(in.label(row))]);
  }
  EXPECT_TRUE(cpu_class_loss_backward<float>(call.context, {dx.data(), &call.scalars, in}).ok());
  expect_golden(name, call.scalars.loss_sum, dx);
  call.scalars.loss_sum = call.scalars.step_weight = 0;
  EXPECT_TRUE(cpu_class_loss_evaluate<float>(call.context, {&call.scalars, in}).ok());
  const double weighted = class_weights.empty() ? 0 : call.scalars.weighted_loss / call.scalars.step_weight;
  EXPECT_NEAR(call.scalars.loss_sum / static_cast<double>(call.scalars.labelled) + weighted, golden(name)[0], 1e-6 * golden(name)[0]) << name;
}

// The loss of a data set must not depend on the batches in which it is evaluated.
TEST(LossGoldens, OfWeightedClassesDoNotDependOnTheBatch) {
  const Floats x = script_numbers(35, 1, 3), class_weights = weights(5, 3);
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 7; ++i) labels.push_back(i % 3 != 0 ? 3 * i % 5 : kIgnoredLabel);
  for (const uint64_t batch : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7}}) {
    Call call;
    for (uint64_t row = 0; row < 7; row += batch) {
      const uint64_t rows = std::min(batch, 7 - row);
      const ClassLossInputOf<float> in = {.x = x.data() + row * 5, .labels = labels.data() + row, .are_bytes = false, .weights = class_weights.data(),
                                          .scratch = call.scratch.data(), .M = rows, .N = rows, .C = 5, .loss = {}};
      EXPECT_TRUE(cpu_class_loss_evaluate<float>(call.context, {&call.scalars, in}).ok());
    }
    EXPECT_EQ(call.scalars.loss_sum, 0);
    EXPECT_NEAR(call.scalars.weighted_loss / call.scalars.step_weight, golden("classes.weighted")[0], 1e-6) << batch;
  }
}

TEST(LossGoldens, OfClassesArePyTorchs) {
  const Floats x = script_numbers(35, 1, 3);
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < 7; ++i) labels.push_back(i % 3 != 0 ? 3 * i % 5 : kIgnoredLabel);
  judge_classes("classes", {}, x, labels, 7, 5, {});
  judge_classes("classes.weighted", {}, x, labels, 7, 5, weights(5, 3));
  judge_classes("classes.smoothed", {.label_smoothing = 0.125f}, x, labels, 7, 5, weights(5, 3));
}

TEST(LossGoldens, OfMapsArePyTorchs) {
  const Floats x = script_numbers(96, 4, 2);
  std::vector<uint8_t> places;
  for (int n = 0; n < 3; ++n) {
    for (int i = 0; i < 8; ++i) places.push_back((i + n) % 5 != 0 ? static_cast<uint8_t>((i * i + n) % 4) : kIgnoredByte);
  }
  judge_classes("maps", {}, x, places, 3, 4, weights(4, 5));
  judge_classes("maps.dice", {.dice = 1}, x, places, 3, 4, {});
  judge_classes("maps.both", {.dice = 0.25f}, x, places, 3, 4, weights(4, 5));
}

void judge_pairs(const std::string& name, const PairLossAttribute& loss, Floats targets) {
  Call call;
  call.scalars.step_labelled = 5;
  targets[3] = std::nanf("");
  const Floats x = script_numbers(108, 6, 2);
  Floats dx(x.size());
  const PairLossInputOf<float> in = {
      .x = x.data(), .targets = targets.data(), .scratch = call.scratch.data(), .B = 6, .D = 9, .loss = loss};
  EXPECT_TRUE(cpu_pair_loss_backward<float>(call.context, {dx.data(), &call.scalars, in}).ok());
  expect_golden(name, call.scalars.loss_sum, dx);
  call.scalars.loss_sum = 0;
  EXPECT_TRUE(cpu_pair_loss_evaluate<float>(call.context, {&call.scalars, in}).ok());
  EXPECT_EQ(call.scalars.labelled, 5u);
  EXPECT_NEAR(call.scalars.loss_sum / 5, golden(name)[0], 1e-6 * golden(name)[0]) << name;
}

TEST(LossGoldens, OfPairsArePyTorchs) {
  const auto of = [](PairLossKind kind) { return static_cast<uint32_t>(kind); };
  const Floats wanted = {1, -1, 1, 0, -1, 1};
  judge_pairs("pairs.infonce", {of(PairLossKind::kContrast), 0.25f, 0}, wanted);
  judge_pairs("pairs.symmetric", {of(PairLossKind::kContrast), 0.5f, 1}, wanted);
  judge_pairs("pairs.cosine", {of(PairLossKind::kCosine), 0, 0, 0.125f}, wanted);
  judge_pairs("pairs.similarity", {of(PairLossKind::kSimilarity)}, script_numbers(6, 7, 1));
}

}  // namespace
}  // namespace reprise::test
