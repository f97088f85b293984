// Trains nets that end in a loss without a linear layer. They must learn in the planned bytes, with
// the same bits under every schedule and number of threads. Several micro-batches must equal one
// large micro-batch, and parts without labels must not count.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/runtime/expect_same.h"
#include "tests/runtime/training_harness.h"

namespace reprise {
namespace {

using nlohmann::json;

struct JudgedCase {
  const char* name;
  json loss;
  bool map;
  // True: the loss reads the map as one vector, because the means of two pictures are nearly equal.
  bool flat = false;
  bool adds_up = true;  // losses of micro-batches add up, because samples are independent
};

// Returns a recipe with so many links that schedules differ. The net's output is a map with 5
// channels, or the mean of the map.
Recipe recipe_of(const JudgedCase& c, const json& extra = json::object()) {
  json nodes = {{{"op", "conv"}, {"name", "stem"}, {"channels", 6}, {"kernel", 3}, {"pad", 1}},
                {{"op", "relu"}, {"name", "relu0"}}};
  std::string before = "relu0";
  for (const std::string n : {"1", "2", "3"}) {
    nodes.push_back({{"op", "conv"}, {"name", "conv" + n}, {"channels", 6}, {"kernel", 3}, {"pad", 1}});
    nodes.push_back({{"op", "relu"}, {"name", "relu" + n}});
    nodes.push_back({{"op", "add"}, {"name", "unit" + n}, {"inputs", {before, "relu" + n}}});
    before = "unit" + n;
  }
  nodes.push_back({{"op", "conv"}, {"name", "last"}, {"channels", 5}, {"kernel", 1}, {"bias", true}});
  if (c.flat) nodes.push_back({{"op", "reshape"}, {"name", "flat"}, {"shape", json::array({8 * 6 * 5})}});
  if (!c.map && !c.flat) nodes.push_back({{"op", "global_pool"}, {"name", "pool"}});
  nodes.push_back(c.loss);
  nodes.back()["name"] = "loss";
  json recipe = {{"model", {{"family", "net"}, {"image", {8, 6, 2}}, {"nodes", nodes}}},
                 {"data", {{"kind", "synthetic"}}},
                 {"batch", 4},
                 {"accumulate", 2},
                 {"seed", 11},
                 {"optimizer", {{"name", "adamw"}, {"lr", 0.01}}}};
  recipe.update(extra);
  return recipe_from(recipe.dump());
}

std::vector<JudgedCase> cases() {
  return {
      {"mse", {{"op", "mse_loss"}}, false},
      {"l1 of maps", {{"op", "l1_loss"}}, true},
      {"huber", {{"op", "huber_loss"}, {"delta", 0.25}}, false},
      {"binary", {{"op", "binary_loss"}, {"positive_weights", {1, 2, 3, 4, 5}}}, false},
      {"binary of maps", {{"op", "binary_loss"}}, true},
      {"classes", {{"op", "class_loss"}, {"label_smoothing", 0.1}, {"weights", {1, 2, 3, 4, 5}}}, false},
      {"classes of maps", {{"op", "class_loss"}, {"dice", 0.5}, {"weights", {1, 2, 3, 4, 5}}}, true},
      {"pairs among others", {{"op", "infonce_loss"}, {"temperature", 0.25}, {"symmetric", true}}, false, true, false},
      {"pairs alike or not", {{"op", "cosine_loss"}, {"margin", 0.25}}, false, true},
      {"pairs so alike", {{"op", "similarity_loss"}}, false, true}};
}

// Returns a source that gives the samples of the first step in every step.
BatchSource first_step(Dataset& data) {
  return {&data,
          [](void* state, uint64_t, uint32_t micro, BatchSink& sink) {
            return static_cast<Dataset*>(state)->fill(0, micro, sink), ok_status();
          },
          [](void* state, uint64_t) { return static_cast<Dataset*>(state)->labelled_in_step(0); },
          [](void* state, uint64_t) { return static_cast<Dataset*>(state)->weight_in_step(0); }};
}

TEST(JudgedTraining, LearnsInPlannedBytesWithTheSameBits) {
  for (const JudgedCase& c : cases()) {
    for (const char* dtype : {"f32", "bf16"}) {
      const Recipe recipe = recipe_of(c, {{"dtype", dtype}});
      const PlannedRun plain = plan_run(recipe, "none"), small = plan_run(recipe, "optimal", 0);
      EXPECT_LT(small.planned.plan.arena_bytes, plain.planned.plan.arena_bytes) << c.name;
      const auto data = open_dataset(recipe, Split::kTraining);
      const RunResult a = train_plan(plain.planned.plan, first_step(*data), {.steps = 60});
      const RunResult b =
          train_plan(small.planned.plan, first_step(*data), {.steps = 60, .workers = 2, .poison = true});
      EXPECT_EQ(a.planned_bytes, a.measured_bytes) << c.name << ", " << dtype;
      expect_same(a, b, std::string(c.name) + ", " + dtype);
      EXPECT_LT(a.losses.back(), 0.9 * a.losses[0]) << c.name << ", " << dtype << " learns nothing";
      EXPECT_TRUE(std::isfinite(a.evaluation.loss)) << c.name;
    }
  }
}

// One micro-batch with all samples of the step must give the same step, because the loss is divided
// by the labels of the step. infonce_loss is an exception: in a larger micro-batch each pair has
// more negatives.
TEST(JudgedTraining, AccumulationIsOneLargerBatch) {
  for (const JudgedCase& c : cases()) {
    const json in_order = {{"data", {{"kind", "synthetic"}, {"shuffle", false}}}};
    json large = in_order;
    large.update({{"batch", 8}, {"accumulate", 1}});
    const Recipe several = recipe_of(c, in_order), one = recipe_of(c, large);
    const RunResult a = train_plan(plan_run(several, "none").planned.plan, several, {.steps = 1}),
                    b = train_plan(plan_run(one, "none").planned.plan, one, {.steps = 1});
    if (!c.adds_up) {
      EXPECT_LT(a.losses[0], b.losses[0] - 0.1) << c.name;
      continue;
    }
    EXPECT_NEAR(a.losses[0], b.losses[0], 1e-6 * b.losses[0]) << c.name;
    EXPECT_NEAR(a.gradient_norms[0], b.gradient_norms[0], 1e-5f * b.gradient_norms[0]) << c.name;
  }
}

// A source that gives the data of one micro-batch. If `silent`, micro-batch 0 contains the data,
// and all others are zeros without labels. Otherwise every micro-batch contains the data.
struct Source {
  Dataset& data;  // a data set with one micro-batch in a step
  DType stored;
  bool silent;
  std::vector<unsigned char> labels = {}, images = {};

  BatchSource batches() {
    return {this,
            [](void* self, uint64_t step, uint32_t micro, BatchSink& sink) {
              return static_cast<Source*>(self)->fill(step, micro, sink);
            },
            [](void* self, uint64_t step) {
              return static_cast<Source*>(self)->data.labelled_in_step(step) * static_cast<Source*>(self)->times();
            },
            [](void* self, uint64_t step) {
              return static_cast<Source*>(self)->data.weight_in_step(step) *
                     static_cast<double>(static_cast<Source*>(self)->times());
            }};
  }
  uint64_t times() const { return silent ? 1 : 2; }
  Status fill(uint64_t step, uint32_t micro, BatchSink& sink) {
    if (micro == 0 || !silent) {
      data.fill(step, 0, sink);
      return ok_status();
    }
    images.assign(sink.input_bytes(), 0);
    labels.assign(stored_bytes(stored, sink.label_count()), 0xff);
    for (uint64_t i = 0; stored == DType::kI32 && i < sink.label_count(); ++i)
      std::memcpy(labels.data() + 4 * i, &kIgnoredLabel, sizeof kIgnoredLabel);
    sink.add(images.data(), images.size(), labels.data(), sink.label_count());
    return ok_status();
  }
};

TEST(JudgedTraining, WhatHasNoLabelCountsForNothing) {
  for (const JudgedCase& c : cases()) {
    const Recipe recipe = recipe_of(c);
    Recipe single = recipe;
    single.accumulate = 1;
    const PlannedRun run = plan_run(recipe, "none");
    const auto data = open_dataset(single, Split::kTraining);
    const Plan plan = run.planned.plan.view();
    const Program& program = plan.program(ProgramId::kMicroFirst);
    const DType stored = program.slots[program.labels].tensor.dtype;
    Source silent{*data, stored, true}, twice{*data, stored, false};
    const RunResult a = train_plan(run.planned.plan, silent.batches(), {.steps = 1}),
                    b = train_plan(run.planned.plan, twice.batches(), {.steps = 1});
    EXPECT_NEAR(a.losses[0], b.losses[0], 1e-6 * b.losses[0]) << c.name;
    EXPECT_NEAR(a.gradient_norms[0], b.gradient_norms[0], 1e-5f * b.gradient_norms[0]) << c.name;
  }
}

}  // namespace
}  // namespace reprise
