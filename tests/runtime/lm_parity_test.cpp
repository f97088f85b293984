// Compares language models with PyTorch, transformers and peft, by the goldens of tests/parity and
// without Python. Ten steps run under two schedules. Each loss must be within its tolerance. Each
// gradient of the first step may be at most five times as far from the f64 gradient as PyTorch's
// own f32 gradient (tests/golden/lm_parity/README.md). Mutants with one error must exceed these
// bounds by far.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/runtime/training_harness.h"
#include "tools/files/formats/ggml_blocks.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char* const kGoldens = "tests/golden/lm_parity/cases/";

std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// A source of batches. Micro-batch u of step s is list[s * accumulate + u].
struct Batches {
  json list;
  uint64_t accumulate;

  static std::vector<int32_t> flat(const json& rows) {
    std::vector<int32_t> all;
    for (const json& row : rows) all.insert(all.end(), row.begin(), row.end());
    return all;
  }
  BatchSource source() {
    return {this, fill, [](void* self, uint64_t step) {
              const Batches& batches = *static_cast<Batches*>(self);
              uint64_t labelled = 0;
              for (uint64_t u = 0; u < batches.accumulate; ++u) {
                const auto labels = flat(batches.list.at(step * batches.accumulate + u).at("labels"));
                labelled +=
                    labels.size() - static_cast<uint64_t>(std::count(labels.begin(), labels.end(), kIgnoredLabel));
              }
              return labelled;
            }};
  }
  static Status fill(void* self, uint64_t step, uint32_t micro, BatchSink& sink) {
    const Batches& batches = *static_cast<Batches*>(self);
    const json& batch = batches.list.at(step * batches.accumulate + micro);
    const std::vector<int32_t> tokens = flat(batch.at("tokens")), labels = flat(batch.at("labels"));
    const std::vector<int32_t> starts =
        batch.contains("document_start") ? flat(batch.at("document_start")) : std::vector<int32_t>();
    sink.add(tokens.data(), tokens.size() * sizeof(int32_t), labels.data(), labels.size(),
             starts.empty() ? nullptr : starts.data());
    return ok_status();
  }
};

double distance(const std::vector<float>& from, const std::vector<float>& to) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    difference += std::pow(double{from[i]} - double{to[i]}, 2);
    norm += double{to[i]} * double{to[i]};
  }
  return std::sqrt(difference / norm);
}

// A mutant: its network, or the order in which it reads the rows of a weight, has one error.
struct Mutant {
  const char* name;
  bool (*changes_network)(Graph&);  // applies the error; false if the network cannot have it
  // Returns the row of a weight that the mutant reads in place of row `n`. Null if it reads all
  // rows correctly.
  size_t (*row_at)(const RopeAttribute&, const std::string& weight, size_t n, size_t rows) = nullptr;
};

bool is_one_of(const std::string& weight, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) {
    return weight.find(std::string(".") + part + "_proj.") != std::string::npos;
  });
}
const RopeAttribute* rope_of(const Graph& graph) {
  const auto& all = graph.attributes.of<RopeAttribute>();
  return all.empty() ? nullptr : &all.at(0);
}

// True if q, k and v are computed by separate layers. In Phi-3 one layer computes all three, and
// llama.cpp does not reorder its rows.
bool has_heads_apart(const Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(),
                     [](const Value& value) { return is_one_of(value.name, {"q"}); });
}

const Mutant kMutants[] = {
    {"rope turns neighbours",
     [](Graph& graph) {
       for (RopeAttribute& rope : graph.attributes.of<RopeAttribute>()) rope.neighbours = 1;
       return rope_of(graph) != nullptr;
     }},
    {"rows of q and k stay as llama.cpp has them",
     [](Graph& graph) { return rope_of(graph) != nullptr && has_heads_apart(graph); },
     [](const RopeAttribute& rope, const std::string& weight, size_t n, size_t rows) {
       if (!is_one_of(weight, {"q", "k"})) return n;
       const size_t head = rows / (is_one_of(weight, {"q"}) ? rope.heads : rope.kv_heads), in_head = n % head;
       return n - in_head + in_head % 2 * (head / 2) + in_head / 2;
     }},
    {"queries read another group's keys and values",
     [](Graph& graph) { return rope_of(graph) != nullptr && rope_of(graph)->kv_heads > 1 && has_heads_apart(graph); },
     [](const RopeAttribute& rope, const std::string& weight, size_t n, size_t rows) {
       return is_one_of(weight, {"k", "v"}) ? (n + rows / rope.kv_heads) % rows : n;
     }},
    {"attention sees what lies before its window",
     [](Graph& graph) {
       bool changed = false;
       for (AttentionAttribute& attention : graph.attributes.of<AttentionAttribute>()) {
         changed = changed || attention.window != 0;
         attention.window = 0;
       }
       return changed;
     }},
    {"attention sees the documents before", [](Graph& graph) {
       bool changed = false;
       for (Node& node : graph.nodes) {
         if (node.op != Op::kAttention || node.inputs.back() != graph.document_start) continue;
         node.inputs.pop_back();
         changed = true;
       }
       return changed;
     }}};

// A plan with its own arena and trainer.
struct BoundPlan {
  explicit BoundPlan(PlannedRun planned)
      : run(std::move(planned)), plan(run.planned.plan.view()), arena(plan.arena_bytes) {
    status = bind_plan(plan, test::test_backend(), alone, arena.get(), trainer);
  }
  const PlannedRun run;
  const Plan plan;
  const TestArena arena;
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  Status status;
};

class LmParity : public ::testing::TestWithParam<std::string> {
 protected:
  LmParity()
      : folder_(kGoldens + GetParam()),
        golden_(json::parse(read_file(folder_ + "/golden.json"))),
        recipe_(read_recipe(folder_ + "/recipe.json")) {
    batches_ = {json::parse(read_file(folder_ + "/batches.json")), static_cast<uint64_t>(recipe_.accumulate)};
  }

  Graph network() const {
    MicroBatch batch = micro_batch_of(recipe_);
    batch.documents = batches_.list.at(0).contains("document_start");
    return build_stored_model(recipe_, backend_of(recipe_), batch);
  }

  void load(const Trainer& trainer, const WeightSource& model,
            const std::function<void(const StateTensor&, std::vector<float>&)>& change = nullptr) const {
    std::optional<SafetensorsFile> adapter;
    if (recipe_.lora) adapter.emplace(folder_ + "/adapter/adapter_model.safetensors");
    for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
      const StateTensor& state = trainer.plan->state[i];
      if (state.kind != StateKind::kParameter) continue;
      std::vector<float> values(state.tensor.elements());
      if (is_adapter(state.name)) {
        const StoredTensor& stored = adapter->find(std::string("base_model.model.") + state.name, StoredType::kF32,
                                                   {state.tensor.shape, state.tensor.shape + state.tensor.rank});
        adapter->read(stored, 0, values.data(), values.size() * sizeof(float));
      } else {
        const std::string name = stored_name(model, state.name);
        ASSERT_NE(model.find(name), nullptr) << name;
        model.read(name, 0, values.size(), values.data());
        if (change) change(state, values);
      }
      // A frozen matrix has the format of the file. It is quantised again, which gives the same
      // numbers.
      std::vector<unsigned char> stored(state.tensor.used_bytes());
      const DType type = state.tensor.dtype;
      quantise_blocks(block_type_of(type).value(), values.data(), values.size() / dtype_info(type).block_elements,
                      stored.data());
      ASSERT_TRUE(trainer.write(trainer.state_tensor(i), stored.data(), stored.size()).ok());
    }
  }

  // Returns for each trained tensor the distance of its gradient from the golden gradient, divided
  // by the bound of this distance.
  std::map<std::string, double> gradient_misses(const Trainer& trainer, const OwnedPlan& plan) const {
    const SafetensorsFile expected(folder_ + "/gradients.safetensors");
    std::map<std::string, double> misses;
    for (size_t c = 0; c < plan.carried.size(); ++c) {
      const std::string name = plan.carried_names[c].substr(2, plan.carried_names[c].size() - 3);  // from d(NAME)
      const Tensor& tensor = plan.carried[c];
      const auto bytes =
          bytes_at(trainer, trainer.region(Region::kCarried) + tensor.offset, tensor.elements() * sizeof(float));
      std::vector<float> ours(tensor.elements()), theirs(tensor.elements());
      std::memcpy(ours.data(), bytes.data(), bytes.size());
      expected.read(expected.find(name, StoredType::kF32, {tensor.shape, tensor.shape + tensor.rank}), 0, theirs.data(),
                    theirs.size() * sizeof(float));
      misses[name] = distance(ours, theirs) / golden_.at("gradients").at(name).at("bound").get<double>();
    }
    EXPECT_EQ(misses.size(), golden_.at("gradients").size());
    return misses;
  }

  // Trains the mutant for one step, and returns the largest quotient of gradient_misses(). Returns
  // none if the network cannot have the error.
  std::optional<double> worst_miss(const Mutant& mutant) {
    Graph graph = network();
    if (!mutant.changes_network(graph)) return {};
    BoundPlan bound(plan_run(recipe_, graph, "none", -1));
    EXPECT_TRUE(bound.status.ok()) << bound.status.message;
    load(bound.trainer, *open_weights(recipe_.place.path()), [&](const StateTensor& state, std::vector<float>& values) {
      if (mutant.row_at == nullptr) return;
      const std::vector<float> right = values;
      const size_t rows = state.tensor.shape[0], width = values.size() / rows;
      for (size_t n = 0; n < rows; ++n) {
        const size_t from = mutant.row_at(*rope_of(graph), state.name, n, rows);
        std::copy_n(right.begin() + static_cast<long>(from * width), width,
                    values.begin() + static_cast<long>(n * width));
      }
    });
    StepReport report;
    EXPECT_TRUE(train_step(bound.trainer, batches_.source(), report).ok());
    double worst = 0;
    for (const auto& [name, miss] : gradient_misses(bound.trainer, bound.run.planned.plan))
      worst = std::max(worst, miss);
    return worst;
  }

  void expect_losses(const std::string& model, const char* strategy, double share) {
    SCOPED_TRACE(std::string(strategy) + " of " + model);
    BoundPlan bound(plan_run(recipe_, network(), strategy, share));
    ASSERT_TRUE(bound.status.ok()) << bound.status.message;
    Trainer& trainer = bound.trainer;
    load(trainer, *open_weights(model));
    for (size_t s = 0; s < golden_.at("loss_f64").size(); ++s) {
      StepReport report;
      const Status status = train_step(trainer, batches_.source(), report);
      ASSERT_TRUE(status.ok()) << status.message;
      const double expected = golden_.at("loss_f64")[s], tolerance = golden_.at("tolerance")[s];
      EXPECT_LE(std::abs(report.loss - expected), tolerance * expected)
          << "step " << s + 1 << ": " << report.loss << " against " << expected;
      if (s > 0) continue;
      for (const auto& [name, miss] : gradient_misses(trainer, bound.run.planned.plan)) EXPECT_LE(miss, 1) << name;
    }
    EXPECT_EQ(measure(trainer), bound.plan.arena_bytes);
  }

  const std::string folder_;
  const json golden_;
  const Recipe recipe_;
  Batches batches_;
};

TEST_P(LmParity, TenSteps) {
  const std::string model = recipe_.place.path();
  expect_losses(model, "none", -1);
  expect_losses(model, "optimal", 0.0);
  if (const std::string gguf = model + "/model.gguf"; fs::exists(gguf)) expect_losses(gguf, "none", -1);
}

TEST_P(LmParity, WrongProgramsMissByFar) {
  for (const Mutant& mutant : kMutants) {
    const std::optional<double> miss = worst_miss(mutant);
    EXPECT_GT(miss.value_or(1e9), 100) << mutant.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, LmParity, ::testing::ValuesIn(golden_cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise
