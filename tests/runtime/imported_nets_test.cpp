// Tests common nets that torch's two ONNX exporters and torch.export wrote. After the import, each
// gradient must be as close to the gradient in f64 as PyTorch's own f32 gradient
// (tests/golden/nets/README.md). Each net runs under two schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/adapters/merged_weights.h"
#include "tools/files/adapters/peft_adapter.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/nets/import_net.h"
#include "tools/run/snapshots/adapter_files.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kGoldens = "tests/golden/nets/";

std::vector<std::string> golden_nets() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".onnx") || name.ends_with(".pt2")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <typename T>
std::vector<T> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor& stored = file.tensors().at(name);
  std::vector<T> numbers(stored.bytes / sizeof(T));
  file.read(stored, 0, numbers.data(), stored.bytes);
  return numbers;
}

// A source that gives the same batch in every step.
struct OneBatch {
  std::vector<float> images = {};     // [N,H,W,C]
  // Only for texts, [N,T]: token ids, first position of each position's document, and token types.
  std::vector<int32_t> tokens = {}, starts = {}, types = {};
  std::vector<int32_t> labels = {};               // [N], or [N,T] for a language model
  std::vector<uint8_t> places = {};   // only for maps, [N,H,W]: a class for each pixel

  BatchSource source() {
    return {this, fill, [](void* self, uint64_t) { return static_cast<OneBatch*>(self)->labelled(); }};
  }
  uint64_t labelled() const {
    return labels.size() + places.size() -
           static_cast<uint64_t>(std::count(places.begin(), places.end(), kIgnoredByte));
  }
  static Status fill(void* self, uint64_t, uint32_t, BatchSink& sink) {
    const OneBatch& batch = *static_cast<OneBatch*>(self);
    const void* labels = batch.labels.data();
    if (!batch.places.empty()) labels = batch.places.data();
    const bool are_texts = batch.images.empty();
    sink.add(are_texts ? static_cast<const void*>(batch.tokens.data()) : batch.images.data(),
             (batch.images.size() + batch.tokens.size()) * sizeof(float), labels,
             batch.labels.size() + batch.places.size(), sink.wants_document_start() ? batch.starts.data() : nullptr,
             batch.types.empty() ? nullptr : batch.types.data());
    return ok_status();
  }
};

// Returns the numbers [A, outer, inner] reordered to [A, inner, outer]. This converts between
// torch's order of channels and pixels and the library's.
std::vector<float> swapped(const std::vector<float>& numbers, size_t outer, size_t inner) {
  std::vector<float> result;
  for (size_t a = 0; a < numbers.size(); a += outer * inner) {
    for (size_t i = 0; i < inner; ++i) {
      for (size_t o = 0; o < outer; ++o) result.push_back(numbers[a + o * inner + i]);
    }
  }
  return result;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

class ImportedNets : public ::testing::TestWithParam<std::string> {
 protected:
  ImportedNets()
      : name_(GetParam().substr(0, GetParam().find('.'))),
        golden_(json::parse(read_file(kGoldens + name_ + ".json"))),
        expected_(kGoldens + name_ + ".safetensors") {
    if (golden_.contains("pad")) {
      read_texts();
    } else if (expected_.tensors().count("tokens") > 0) {
      batch_.tokens = read_tensor<int32_t>(expected_, "tokens");
    } else {
      batch_.images = swapped(read_tensor<float>(expected_, "x"), 3, 16 * 16);  // [N,C,H,W]
    }
    const std::string loss = golden_.value("loss", "");
    if (loss.empty()) {
      batch_.labels = read_tensor<int32_t>(expected_, "labels");
    } else {
      batch_.places = read_tensor<uint8_t>(expected_, "labels");
    }
    ImportOrder order{
        kGoldens + GetParam(), folder_.file("net.json"), {.classes = 0, .inputs = {}, .loss = loss}, {}, "", ""};
    if (!(has_statistics() && moves_statistics()) && !has_other_inputs())
      order.check = kGoldens + name_ + ".outputs.safetensors";
    order.port = &linux_port();
    const ImportReport report = import_net(order);
    EXPECT_TRUE(report.refused.empty()) << json(report.refused).dump(1);
    if (report.check) {
      EXPECT_LT(report.check->distance, 5e-6);
    }
    if (golden_.contains("lora")) {
      json recipe = json::parse(read_file(folder_.file("net.json")));
      recipe["lora"] = golden_.at("lora");
      recipe.erase("freeze");  // not needed: with adapters, all other tensors are frozen
      write_file(folder_.file("net.json"), recipe.dump());
    }
    recipe_ = read_recipe(folder_.file("net.json"));
    recipe_.batch = static_cast<int>(expected_.tensors().at("labels").shape[0]);
  }

  // Reads texts. The padding after each text is a document of its own.
  void read_texts() {
    batch_.tokens = read_tensor<int32_t>(expected_, "tokens");
    const size_t length = expected_.tensors().at("tokens").shape[1];
    const int32_t pad = golden_.at("pad");
    if (expected_.tensors().count("types") > 0) batch_.types = read_tensor<int32_t>(expected_, "types");
    for (size_t first = 0; first < batch_.tokens.size(); first += length) {
      size_t own = length;
      while (batch_.tokens[first + own - 1] == pad) --own;
      for (size_t t = 0; t < length; ++t) batch_.starts.push_back(t < own ? 0 : static_cast<int32_t>(own));
    }
  }

  // True if the file has batch-norms with statistics. The newer exporter folds batch-norms into
  // convolutions, and writes only the results of some computations with parameters, so that names
  // are lost.
  bool has_statistics() const { return golden_.at("has_batch_norm"); }
  // True if the arguments of forward have other names in this file.
  bool has_other_inputs() const {
    return std::set<std::string>{"resnet.pt2", "gpt2.pt2", "plain_gpt2.pt2"}.count(GetParam()) > 0;
  }
  // True if the exporter has changed the running statistics. The older exporter does, because it
  // runs the net once in training mode.
  bool moves_statistics() const { return GetParam().ends_with(".old.onnx"); }
  bool is_newer() const { return GetParam().ends_with(".new.onnx"); }

  void expect_gradients(const Trainer& trainer, const OwnedPlan& plan) const {
    const StoredForms forms = stored_forms(recipe_);
    size_t compared = 0;
    for (size_t c = 0; c < plan.carried.size(); ++c) {
      std::string name = plan.carried_names[c].substr(2, plan.carried_names[c].size() - 3);  // the text inside d(...)
      const auto form = forms.find(name);
      if (name.ends_with("lm_head.weight") && !golden_.at("bounds").contains(name))
        name = "net.transformer.wte.weight";  // one parameter with two names
      if (is_newer() && !golden_.at("bounds").contains(name)) continue;
      ASSERT_TRUE(golden_.at("bounds").contains(name)) << name;
      const Tensor& tensor = plan.carried[c];
      const auto bytes =
          bytes_at(trainer, trainer.region(Region::kCarried) + tensor.offset, tensor.elements() * sizeof(float));
      std::vector<float> ours(tensor.elements());
      std::memcpy(ours.data(), bytes.data(), bytes.size());
      if (tensor.rank == 4) ours = swapped(ours, size_t{tensor.shape[1]} * tensor.shape[2], tensor.shape[3]);
      if (form != forms.end() && !form->second.order.empty()) {
        std::vector<unsigned char> numbers(bytes.size());
        std::memcpy(numbers.data(), ours.data(), bytes.size());
        numbers = in_file_order(form->second, numbers, sizeof(float));
        std::memcpy(ours.data(), numbers.data(), bytes.size());
      }
      const std::vector<float> theirs = read_tensor<float>(expected_, "d(" + name + ")");
      ASSERT_EQ(ours.size(), theirs.size()) << name;
      EXPECT_LE(distance(ours, theirs), golden_.at("bounds").at(name).get<double>()) << name;
      ++compared;
    }
    EXPECT_EQ(plan.carried.size(), golden_.at("bounds").size());
    EXPECT_GT(compared, is_newer() ? plan.carried.size() / 2 : plan.carried.size() - 1);
  }

  const TemporaryFolder folder_;
  const std::string name_;
  const json golden_;
  const SafetensorsFile expected_;
  OneBatch batch_;
  Recipe recipe_;
};

TEST_P(ImportedNets, HaveTorchsGradients) {
  for (const auto& [strategy, share] : {std::pair<const char*, double>{"none", -1}, {"optimal", 0.0}}) {
    const PlannedRun run = plan_run(recipe_, strategy, share);
    const Plan plan = run.planned.plan.view();
    const TestArena arena(plan.arena_bytes);
    const Workers alone = {.stack_bytes = 1 << 20};
    Trainer trainer;
    ASSERT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).ok());
    read_initial_weights(trainer, *open_model_weights(recipe_, recipe_.init.from), {});
    if (recipe_.lora) { EXPECT_EQ(load_adapter(trainer, recipe_, kGoldens + name_), ""); }  // loads peft's adapter
    if (!(has_statistics() && moves_statistics())) {
      EvaluationReport evaluated;
      ASSERT_TRUE(evaluate(trainer, batch_.source(), 1, evaluated).ok());
      EXPECT_NEAR(evaluated.loss, golden_.at("evaluation_loss_f64").get<double>(),
                  golden_.at("evaluation_tolerance").get<double>())
          << strategy;
    }
    if (has_statistics() && is_newer()) continue;
    StepReport report;
    ASSERT_TRUE(train_step(trainer, batch_.source(), report).ok());
    EXPECT_NEAR(report.loss, golden_.at("loss_f64").get<double>(), golden_.at("loss_tolerance").get<double>())
        << strategy;
    expect_gradients(trainer, run.planned.plan);
  }
}

// Tensors must have torch's names and shapes in the file that the import writes. write_state() must
// write the same tensors with the same numbers, so that the module's load_state_dict accepts both
// files.
TEST_P(ImportedNets, AreStoredAsTorchHasThem) {
  const auto weights = open_weights(recipe_.init.from);
  for (const auto& [name, bound] : golden_.at("bounds").items()) {
    const StoredWeight* ours = weights->find(name);
    // A name is missing if the tensor was folded, belongs to the adapter, or is stored under its
    // other name.
    const bool is_tied = name.ends_with("lm_head.weight") || name.ends_with("wte.weight");
    const bool is_lost = is_newer() || is_tied || name.find("lora_") != std::string::npos;
    ASSERT_TRUE(ours != nullptr || is_lost) << name;
    if (ours != nullptr) { EXPECT_EQ(ours->shape, expected_.tensors().at("d(" + name + ")").shape) << name; }
  }
  const PlannedRun run = plan_run(recipe_, "none", -1);
  const Plan plan = run.planned.plan.view();
  const TestArena arena(plan.arena_bytes);
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  ASSERT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).ok());
  read_initial_weights(trainer, *open_model_weights(recipe_, recipe_.init.from), {});
  write_state(trainer, folder_.file("saved.safetensors"), StatePart::kModel, {}, stored_forms(recipe_));
  const SafetensorsFile imported(recipe_.init.from), saved(folder_.file("saved.safetensors"));
  for (const auto& [name, tensor] : imported.tensors()) {
    ASSERT_TRUE(saved.contains(name)) << name;
    EXPECT_EQ(saved.tensors().at(name).shape, tensor.shape) << name;
    EXPECT_EQ(read_tensor<float>(saved, name), read_tensor<float>(imported, name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ImportedNets, ::testing::ValuesIn(golden_nets()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

class MergedNet : public ImportedNets {};

TEST_P(MergedNet, HasTheLossOfItsAdapter) {
  recipe_.lora.reset();
  const PlannedRun run = plan_run(recipe_, "none", -1);
  const Plan plan = run.planned.plan.view();
  const TestArena arena(plan.arena_bytes);
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  ASSERT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).ok());
  read_initial_weights(
      trainer, *merge_adapter(open_model_weights(recipe_, recipe_.init.from), open_peft_adapter(kGoldens + name_)), {});
  EvaluationReport evaluated;
  ASSERT_TRUE(evaluate(trainer, batch_.source(), 1, evaluated).ok());
  EXPECT_NEAR(evaluated.loss, golden_.at("evaluation_loss_f64").get<double>(),
              golden_.at("evaluation_tolerance").get<double>());
}

INSTANTIATE_TEST_SUITE_P(Goldens, MergedNet, ::testing::Values("adapted.pt2"),
                         [](const auto&) { return std::string("adapted"); });

}  // namespace
}  // namespace reprise
