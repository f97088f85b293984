// Tests of a network that belongs to no family. Its gradients must be those of its loss in double,
// and every schedule must train it with the same bits. Each new op is tested in a complete network.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/judges/replay.h"
#include "tests/runtime/expect_same.h"

namespace reprise {

using ParametersInDouble = std::map<std::string, std::vector<double>>;
using LossInDouble = std::function<double(const ParametersInDouble&)>;

// Compares the gradients of step 6 with central differences of `loss_of`, which computes the loss
// in double. The five steps before ensure that no gamma is 1 and no beta is 0. `count` is the
// expected number of parameters.
//
// A central difference in double has an error of about 1e-8 of the largest derivative. A gradient
// in f32 depends on a dozen kernels, which round sums of up to 60 terms: the error is about 2^-24 *
// sqrt(12 * 60) = 1.6e-6.
inline void expect_gradients_of_the_loss(const Recipe& recipe, const Graph& network, const BatchSource& source,
                                         const LossInDouble& loss_of, size_t count) {
  const PlannedRun run = plan_run(recipe, network, "optimal", 0);
  const OwnedPlan& plan = run.planned.plan;
  constexpr int kSteps = 5;
  const RunResult before = train_plan(plan, source, {.steps = kSteps}),
                  after = train_plan(plan, source, {.steps = kSteps + 1});
  ParametersInDouble parameters;
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kParameter) continue;
    const std::vector<float> values = state_values(plan, before, state.name);
    parameters[state.name] = std::vector<double>(values.begin(), values.end());
  }
  EXPECT_EQ(parameters.size(), count);
  const double expected = loss_of(parameters);
  EXPECT_NEAR(after.losses.back(), expected, 1e-6 * expected);
  const auto trains = [&network](const std::string& name) {
    return std::any_of(network.values.begin(), network.values.end(),
                       [&](const Value& value) { return value.name == name && value.trainable; });
  };
  for (auto& [name, values] : parameters) {
    if (!trains(name)) continue;
    const std::vector<float> gradient = gradient_values(plan, after, name);
    constexpr double kStep = 1e-5;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = loss_of(parameters);
      values[i] = value - kStep;
      const double slope = (above - loss_of(parameters)) / (2 * kStep);
      values[i] = value;
      largest = std::max(largest, std::abs(slope));
      worst = std::max(worst, std::abs(slope - static_cast<double>(gradient[i])));
    }
    EXPECT_GT(largest, 1e-4) << name << " hardly matters: nothing is compared";
    EXPECT_LE(worst, 3e-6 * largest) << name;
  }
}

// Requires that training has the same bits under every schedule and that the loss falls. Also
// requires that the replay accepts each plan as a computation of the network.
inline void expect_same_bits_under_every_schedule(const Recipe& recipe, const Graph& network,
                                                  const BatchSource& source) {
  const RunResult expected = train_plan(plan_run(recipe, network, "none").planned.plan, source, {.steps = 12});
  EXPECT_LT(expected.losses.back(), 0.8 * expected.losses.front());
  const std::pair<const char*, double> schedules[] = {{"every-k", 0}, {"revolve", 0}, {"optimal", 0}, {"optimal", 0.5}};
  for (const auto& [strategy, share] : schedules) {
    const std::string what =
        std::string(dtype_info(network.stored()).name) + " " + strategy + " share " + std::to_string(share);
    const PlannedRun run = plan_run(recipe, network, strategy, share);
    expect_same(expected, train_plan(run.planned.plan, source, {.steps = 12, .workers = 3, .poison = true}), what);
    const testing::ReplayVerdict verdict = testing::Replay(network, recipe).judge(run.planned.plan.view());
    EXPECT_TRUE(verdict.ok) << what << ": " << verdict.text();
  }
}

}  // namespace reprise
