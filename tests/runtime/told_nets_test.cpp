// Tests new nets whose ONNX files do not state which tensors are trained (tests/golden/told, made
// by tests/parity/make_told_goldens.py). After the import, the tensors that are parameters in
// PyTorch must be trained, and its buffers must not. The losses of some steps must be PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/onnx/onnx_file.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/nets/export_net.h"
#include "tools/run/nets/import_net.h"
#include "tools/run/snapshots/initial_weights.h"

namespace reprise {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

const std::string kGoldens = "tests/golden/told/";

class ToldNets : public ::testing::TestWithParam<std::string> {
 protected:
  ToldNets()
      : name_(GetParam().substr(0, GetParam().find('.'))),
        golden_(json::parse(read_file(kGoldens + name_ + ".json"))) {}

  ImportReport import(const ImportRequest& request = {}) {
    return import_net({kGoldens + GetParam() + ".onnx",
                       folder_.file("net.json"),
                       request,
                       {},
                       "tensors",
                       kGoldens + name_ + ".safetensors"});
  }
  Recipe recipe() {
    json recipe = json::parse(read_file(folder_.file("net.json")));
    recipe["batch"] = 4;
    recipe["optimizer"] = {{"name", "sgd"}, {"lr", 0.1}};
    recipe["data"]["shuffle"] = false;
    write_file(folder_.file("net.json"), recipe.dump());
    return read_recipe(folder_.file("net.json"));
  }
  std::vector<double> losses(const Recipe& recipe, size_t steps) {
    const PlannedRun run = plan_run(recipe, "none");
    const Plan plan = run.planned.plan.view();
    const TestArena arena(plan.arena_bytes);
    const Workers alone = {.stack_bytes = 1 << 20};
    Trainer trainer;
    EXPECT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).ok());
    read_initial_weights(trainer, *open_model_weights(recipe, recipe.init.from), {});
    const std::unique_ptr<Dataset> data = open_dataset(recipe, Split::kTraining);
    std::vector<double> losses;
    for (size_t n = 0; n < steps; ++n) {
      StepReport report;
      EXPECT_TRUE(train_step(trainer, source_of(*data), report).ok());
      losses.push_back(report.loss);
    }
    return losses;
  }

  const TemporaryFolder folder_;
  const std::string name_;
  const json golden_;
};

TEST_P(ToldNets, TrainWhatPyTorchTrains) {
  const ImportReport report = import();
  ASSERT_TRUE(report.refused.empty()) << json(report.refused).dump(1);
  uint64_t parameters = 0;
  for (const auto& [name, elements] : golden_.at("parameters").items()) parameters += elements.get<uint64_t>();
  EXPECT_EQ(report.trained_elements, parameters) << import_text(report);
  EXPECT_EQ(report.tied_tensors, 0u);
  const std::vector<double> expected = golden_.at("losses"), ours = losses(recipe(), expected.size());
  for (size_t n = 0; n < expected.size(); ++n) EXPECT_NEAR(ours[n], expected[n], 2e-6 * expected[n]) << n;
}

// Exports the imported weights to a copy of the ONNX file, and imports the copy. It must have as
// many tensors and trained elements.
TEST_P(ToldNets, GoBackToTheirFile) {
  const ImportReport report = import();
  const std::string weights = folder_.file("net.safetensors"), to = folder_.file("back.onnx");
  export_onnx(open_weights(weights), weights, to);
  const ImportReport again = import_net({to, folder_.file("again.json"), {}, {}, "", ""});
  ASSERT_TRUE(again.refused.empty()) << json(again.refused).dump(1);
  const auto before = open_weights(weights), after = open_weights(folder_.file("again.safetensors"));
  EXPECT_EQ(before->names().size(), after->names().size());
  EXPECT_EQ(again.trained_elements, report.trained_elements) << import_text(again);
}

INSTANTIATE_TEST_SUITE_P(Files, ToldNets,
                         ::testing::Values("layers.old", "layers.new", "scalars.old", "scalars.new", "buffers.old",
                                           "buffers.new"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace reprise
