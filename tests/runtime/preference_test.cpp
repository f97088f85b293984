// Compares losses of pairs of answers with trl's own trainers
// (tests/parity/make_preference_goldens.py), from the records to the gradients. Schedule, budget,
// number of threads, and the row of a micro-batch in which a reference is computed must not change
// a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tests/ports/test_workers.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/inference/reference.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/training/training_run.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const char* const kGoldens = "tests/golden/preferences/cases/";

std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Port silent_port() {
  Port port = {};
  port.seconds = [] { return 0.0; };
  return port;
}

// The recipe's plan under a schedule, bound to memory, with the weights with which training starts.
struct Bound {
  Bound(const Recipe& recipe, const std::string& strategy, double share, uint32_t threads = 1)
      : run(plan_run(recipe, strategy, share)),
        plan(run.planned.plan.view()),
        arena(plan.arena_bytes),
        threads(threads),
        workers(this->threads.workers()) {
    workers.stack_bytes = 1 << 20;
    const Status status = bind_plan(plan, test::test_backend(), workers, arena.get(), trainer);
    if (!status.ok()) throw UserError(status.message);
    const std::unique_ptr<WeightSource> weights = open_weights(recipe.place.path());
    read_initial_weights(trainer, *weights, {});
  }
  const PlannedRun run;
  const Plan plan;
  const TestArena arena;
  const test::TestWorkers threads;
  Workers workers;
  Trainer trainer;
};

class PreferenceParity : public ::testing::TestWithParam<std::string> {
 protected:
  PreferenceParity()
      : folder_(kGoldens + GetParam()),
        golden_(json::parse(read_file(folder_ + "/golden.json"))),
        recipe_(read_recipe(folder_ + "/recipe.json")) {}

  bool is_kto() const { return recipe_.loss->kind == static_cast<uint32_t>(PreferenceKind::kKto); }

  // Computes the references before training, when the adapter still adds nothing. Returns the data
  // set with the references.
  std::unique_ptr<Dataset> referenced_data(Trainer& trainer) const {
    std::unique_ptr<Dataset> data = open_dataset(recipe_, Split::kTraining);
    set_references(trainer, silent_port(), recipe_, *data, 0, golden_.at("steps").size(), true);
    return data;
  }

  void load_adapter(const Trainer& trainer) const {
    if (!recipe_.lora) return;
    const SafetensorsFile file(folder_ + "/adapter.safetensors");
    for (uint32_t i = 0; i < trainer.plan->state.count; ++i) {
      const StateTensor& state = trainer.plan->state[i];
      if (state.kind != StateKind::kParameter || !is_adapter(state.name)) continue;
      std::vector<float> values(state.tensor.elements());
      file.read(file.find(state.name, StoredType::kF32, {state.tensor.shape, state.tensor.shape + state.tensor.rank}),
                0, values.data(), values.size() * sizeof(float));
      ASSERT_TRUE(trainer.write(trainer.state_tensor(i), values.data(), values.size() * sizeof(float)).ok());
    }
  }

  void expect_gradients(const Bound& bound) const {
    const SafetensorsFile expected(folder_ + "/gradients.safetensors");
    const OwnedPlan& plan = bound.run.planned.plan;
    EXPECT_EQ(plan.carried.size(), golden_.at("gradient_bounds").size());
    for (size_t c = 0; c < plan.carried.size(); ++c) {
      const std::string name = plan.carried_names[c].substr(2, plan.carried_names[c].size() - 3);  // from d(NAME)
      const Tensor& tensor = plan.carried[c];
      const auto bytes = bytes_at(bound.trainer, bound.trainer.region(Region::kCarried) + tensor.offset,
                                  tensor.elements() * sizeof(float));
      std::vector<float> ours(tensor.elements()), theirs(tensor.elements());
      std::memcpy(ours.data(), bytes.data(), bytes.size());
      expected.read(expected.find(name, StoredType::kF32, {tensor.shape, tensor.shape + tensor.rank}), 0, theirs.data(),
                    theirs.size() * sizeof(float));
      double apart = 0, norm = 0;
      for (size_t i = 0; i < ours.size(); ++i) {
        apart += std::pow(double{ours[i]} - double{theirs[i]}, 2);
        norm += double{theirs[i]} * double{theirs[i]};
      }
      EXPECT_LE(std::sqrt(apart / norm), golden_.at("gradient_bounds").at(name).get<double>()) << name;
    }
  }

  void expect_step(const StepReport& report, const json& step) const {
    const double bound = golden_.at("loss_bound");
    const auto expect_near = [&](double got, const char* key) {
      if (!step.contains(key)) return;
      const double expected = step.at(key);
      EXPECT_NEAR(got, expected, bound * (1 + std::abs(expected))) << key;
    };
    expect_near(report.loss, "loss");
    expect_near(report.answers.rewards[0], "chosen");
    expect_near(report.answers.rewards[1], "rejected");
    expect_near(report.answers.accuracy, "accuracies");
  }

  const std::string folder_;
  const json golden_;
  const Recipe recipe_;
};

// The content of a micro-batch that the data set has filled.
struct Filled {
  std::vector<int32_t> tokens, labels, starts;
  std::vector<JudgedPair> pairs;
};
Filled fill(Dataset& data, const Recipe& recipe, uint64_t step, uint64_t micro) {
  const MicroBatch batch = micro_batch_of(recipe);
  const size_t count = static_cast<size_t>(batch.samples) * static_cast<size_t>(batch.sequence);
  Filled filled = {std::vector<int32_t>(count, -7), std::vector<int32_t>(count), std::vector<int32_t>(count),
                   std::vector<JudgedPair>(static_cast<size_t>(batch.pairs))};
  BatchSink sink = host_sink(filled.tokens.data(), count * sizeof(int32_t), filled.labels.data(), count,
                             filled.starts.data(), filled.pairs.data(), filled.pairs.size());
  data.fill(step, micro, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return filled;
}

TEST_P(PreferenceParity, RecordsHaveTheTokensOfTrl) {
  Recipe recipe = recipe_;
  // Except for KTO, replaces the loss by ORPO, which needs no references. The tokens stay the same.
  recipe.loss->kind = is_kto() ? recipe.loss->kind : static_cast<uint32_t>(PreferenceKind::kOrpo);
  const std::unique_ptr<Dataset> data = open_dataset(recipe, Split::kTraining);
  if (is_kto()) {
    const double nothing[1][2] = {{0, 0}};
    for (uint64_t row = 0; row < data->size(); ++row) data->referenced()->set_reference(row, nothing);
  }
  const auto T = static_cast<size_t>(recipe.sequence), batch = static_cast<size_t>(recipe.batch);
  ASSERT_EQ(data->size(), golden_.at("tokens").size());
  for (size_t n = 0; n < data->size(); ++n) {
    const size_t micro = n / batch, b = n % batch;
    const Filled filled = fill(*data, recipe, micro / static_cast<size_t>(recipe.accumulate),
                               micro % static_cast<size_t>(recipe.accumulate));
    const std::vector<int32_t> tokens(filled.tokens.begin() + static_cast<long>(b * T),
                                      filled.tokens.begin() + static_cast<long>((b + 1) * T));
    const JudgedPair& pair = filled.pairs[b];
    const json& expected = golden_.at("tokens")[n];
    std::vector<int32_t> want;
    for (size_t answer = 1; answer <= 2; ++answer) {
      const size_t start = want.size(), prompt = expected[0].size(), end = start + prompt + expected[answer].size();
      for (const json* part : {&expected[0], &expected[answer]}) want.insert(want.end(), part->begin(), part->end());
      EXPECT_EQ(pair.first[answer - 1], static_cast<double>(b * T + start + prompt - 1));
      EXPECT_EQ(pair.end[answer - 1], static_cast<double>(b * T + end - 1));
      for (size_t t = start; t < end; ++t) {
        EXPECT_EQ(filled.starts[b * T + t], static_cast<int32_t>(start));
        const bool learned = t + 1 < end && (t + 1 >= start + prompt || (!is_kto() && answer == 1));
        EXPECT_EQ(filled.labels[b * T + t], learned ? want[t + 1] : kIgnoredLabel) << "sample " << n << ", token " << t;
      }
    }
    want.resize(T, 260);  // padding
    EXPECT_EQ(tokens, want) << "sample " << n;
  }
}

TEST_P(PreferenceParity, LossesRewardsAndGradientsAreThoseOfTrl) {
  for (const auto& [strategy, share] : {std::pair<const char*, double>{"none", -1}, {"optimal", 0}}) {
    SCOPED_TRACE(strategy);
    Bound bound(recipe_, strategy, share);
    const std::unique_ptr<Dataset> data = referenced_data(bound.trainer);
    load_adapter(bound.trainer);
    for (size_t s = 0; s < golden_.at("steps").size(); ++s) {
      SCOPED_TRACE("step " + std::to_string(s + 1));
      StepReport report;
      const Status status = train_step(bound.trainer, source_of(*data), report);
      ASSERT_TRUE(status.ok()) << status.message;
      expect_step(report, golden_.at("steps")[s]);
      if (s == 0) expect_gradients(bound);
    }
    EXPECT_EQ(measure(bound.trainer), bound.plan.arena_bytes);
  }
}

TEST_P(PreferenceParity, HasTheSameBitsForEveryScheduleAndThreads) {
  struct Way {
    const char* strategy;
    double share;
    uint32_t threads;
  };
  std::vector<unsigned char> first;
  std::vector<double> losses;
  for (const Way& way : {Way{"none", -1, 1}, Way{"optimal", 0, 1}, Way{"optimal", 0.4, 3}, Way{"sqrt", -1, 2}}) {
    SCOPED_TRACE(way.strategy);
    Bound bound(recipe_, way.strategy, way.share, way.threads);
    const std::unique_ptr<Dataset> data = referenced_data(bound.trainer);
    load_adapter(bound.trainer);
    std::vector<double> now;
    for (size_t s = 0; s < 2; ++s) {
      StepReport report;
      ASSERT_TRUE(train_step(bound.trainer, source_of(*data), report).ok());
      now.insert(now.end(),
                 {report.loss, report.answers.rewards[0], report.answers.rewards[1], report.answers.accuracy});
    }
    const std::vector<unsigned char> state =
        bytes_at(bound.trainer, bound.trainer.region(Region::kState), bound.plan.state_bytes);
    if (first.empty()) first = state, losses = now;
    EXPECT_EQ(now, losses);
    EXPECT_TRUE(state == first);
  }
}

// A resumed run computes the reference of a row together with other rows than before. The numbers
// must have the same bits.
TEST_P(PreferenceParity, ARowsReferenceIsTheSameBesideAnyOthers) {
  if (!has_reference(recipe_)) return;
  Bound bound(recipe_, "optimal", 0, 2);
  const auto references = [&](uint64_t first, uint64_t end) {
    const std::unique_ptr<Dataset> data = open_dataset(recipe_, Split::kTraining);
    set_references(bound.trainer, silent_port(), recipe_, *data, first, end, true);
    std::vector<JudgedPair> pairs;
    for (uint64_t micro = 0; micro < static_cast<uint64_t>(recipe_.accumulate); ++micro) {
      const Filled filled = fill(*data, recipe_, end - 1, micro);
      pairs.insert(pairs.end(), filled.pairs.begin(), filled.pairs.end());
    }
    return pairs;
  };
  const std::vector<JudgedPair> all = references(0, 3), last = references(2, 3);
  ASSERT_EQ(all.size(), last.size());
  EXPECT_LT(all[0].reference[0], -1);
  for (size_t p = 0; p < all.size(); ++p)
    EXPECT_EQ(std::memcmp(&all[p], &last[p], sizeof(JudgedPair)), 0) << "pair " << p;
  // Computes one row alone, as the first row of a micro-batch.
  const std::unique_ptr<Dataset> data = open_dataset(recipe_, Split::kTraining);
  std::vector<std::array<double, 2>> answers(pair_count(bound.plan));
  const uint64_t row = data->size() - 1;
  struct One {
    ReferencedRows& rows;
    uint64_t row;
  } one = {*data->referenced(), row};
  const BatchSource source = {&one, [](void* state, uint64_t, uint32_t, BatchSink& sink) {
                                static_cast<One*>(state)->rows.fill_rows({static_cast<One*>(state)->row}, sink);
                                return ok_status();
                              }};
  ASSERT_TRUE(log_probabilities(bound.trainer, source, 0, reinterpret_cast<double(*)[2]>(answers.data())).ok());
  EXPECT_EQ(answers[0][0], all.back().reference[0]);
  EXPECT_EQ(answers[0][1], all.back().reference[1]);
  for (size_t p = 1; p < answers.size(); ++p) EXPECT_EQ(answers[p][0], 0);
}

// A model that equals its reference must have rewards of 0.
TEST_P(PreferenceParity, AModelIsItsOwnReferenceBeforeItIsTrained) {
  if (!has_reference(recipe_)) return;
  Bound bound(recipe_, "optimal", 0.5);
  const std::unique_ptr<Dataset> data = referenced_data(bound.trainer);
  StepReport report;
  ASSERT_TRUE(train_step(bound.trainer, source_of(*data), report).ok());
  EXPECT_EQ(report.answers.rewards[0], 0);
  EXPECT_EQ(report.answers.rewards[1], 0);
  if (is_kto()) return;
  EXPECT_DOUBLE_EQ(report.loss, std::log(2.0));
}

INSTANTIATE_TEST_SUITE_P(Trl, PreferenceParity, ::testing::ValuesIn(golden_cases()),
                         [](const auto& info) { return info.param; });

// Pairs that are packed into common rows must give the loss, the rewards and the gradient norm of
// pairs in separate rows, up to rounding.
TEST(PackedPairs, GiveWhatTheyGiveApart) {
  Recipe recipe = read_recipe(std::string(kGoldens) + "dpo/recipe.json");
  const auto step = [](const Recipe& recipe) {
    Bound bound(recipe, "optimal", 0);
    const std::unique_ptr<Dataset> data = open_dataset(recipe, Split::kTraining);
    set_references(bound.trainer, silent_port(), recipe, *data, 0, 1, true);
    for (uint32_t i = 0; i < bound.plan.state.count; ++i) {  // gives the adapters weights that change the output
      const StateTensor& state = bound.plan.state[i];
      if (!std::string(state.name).ends_with(".lora_B.weight")) continue;
      std::vector<float> values(state.tensor.elements());
      for (size_t e = 0; e < values.size(); ++e) values[e] = 0.05f * static_cast<float>(e % 7) - 0.15f;
      EXPECT_TRUE(
          bound.trainer.write(bound.trainer.state_tensor(i), values.data(), values.size() * sizeof(float)).ok());
    }
    StepReport report;
    const Status status = train_step(bound.trainer, source_of(*data), report);
    EXPECT_TRUE(status.ok()) << status.message;
    return std::pair(report, data->size());
  };
  recipe.batch = 12, recipe.accumulate = 1;
  const auto [apart, rows] = step(recipe);
  EXPECT_EQ(rows, 12u);
  recipe.data.pack = true;
  recipe.sequence = 256;
  const uint64_t packed_rows = open_dataset(recipe, Split::kTraining)->size();
  ASSERT_LT(packed_rows, 12u);
  recipe.batch = 1, recipe.accumulate = static_cast<int>(packed_rows);  // one row per micro-batch, all rows in one step
  const auto [packed, ignored] = step(recipe);
  EXPECT_NEAR(packed.loss, apart.loss, 1e-6);
  EXPECT_NEAR(packed.answers.rewards[0], apart.answers.rewards[0], 1e-5);
  EXPECT_NEAR(packed.answers.margin(), apart.answers.margin(), 1e-5);
  EXPECT_EQ(packed.answers.accuracy, apart.answers.accuracy);
  EXPECT_NEAR(packed.gradient_norm, apart.gradient_norm, 1e-4f * apart.gradient_norm);
}

// A pair that names rows outside the micro-batch is a fault in the data. The step must report it,
// and no weight may change.
TEST(Pairs, OfRowsThatAreNotThereAreRefused) {
  const Recipe recipe = read_recipe(std::string(kGoldens) + "orpo/recipe.json");
  Bound bound(recipe, "none", -1);
  const BatchSource source = {nullptr,
                              [](void*, uint64_t, uint32_t, BatchSink& sink) {
                                std::vector<int32_t> zeros(sink.label_count());
                                std::vector<JudgedPair> pairs(sink.pair_count(),
                                                              JudgedPair{1, 0, {1, 4}, {2, 1e6}, {0, 0}});
                                sink.add(zeros.data(), sink.input_bytes(), zeros.data(), zeros.size(), zeros.data());
                                sink.add_pairs(pairs.data(), pairs.size());
                                return ok_status();
                              },
                              [](void*, uint64_t) { return uint64_t{4}; }};
  const std::vector<unsigned char> before = bytes_at(bound.trainer, bound.trainer.state_tensor(kFirstTrained), 256);
  StepReport report;
  const Status status = train_step(bound.trainer, source, report);
  EXPECT_EQ(status.code, Code::kIndexOutOfRange);
  EXPECT_STREQ(status.message, "the rows of a pair's answers must be rows of the micro-batch");
  EXPECT_EQ(bytes_at(bound.trainer, bound.trainer.state_tensor(kFirstTrained), 256), before);
}

// ---- the training as a program runs it ----

class WholeTraining : public testing::Test {
 protected:
  // Trains the golden's recipe, with an evaluation in addition, like a training program. It runs in
  // this process, so that no plan must be compiled.
  void run(const std::string& name, const ProgramOptions& options) {
    nlohmann::json text = json::parse(read_file(kGoldens + name + "/recipe.json"));
    const std::string folder = fs::absolute(kGoldens + name).string();
    text["data"]["eval_path"] = folder + "/records.jsonl";
    text["evaluate_every"] = 1;
    const Recipe recipe = parse_recipe(text.dump(), name + ".json", folder);
    const PlannedRun planned = plan_run(recipe, "optimal", 0);
    const Plan plan = planned.planned.plan.view();
    const std::string canonical = canonical_recipe(recipe);
    ProgramOptions quiet = options;
    quiet.quiet = true, quiet.threads = 2;
    EXPECT_EQ(train({.plan = plan, .recipe = canonical.c_str(), .summary = "", .port = linux_port()}, quiet), 0);
  }
  std::vector<json> log(const std::string& name) const {
    std::vector<json> lines;
    std::istringstream text(read_file(folder_.file(name)));
    for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
    return lines;
  }
  static ProgramOptions options(uint64_t steps, const std::string& log, const std::string& save = "",
                                const std::string& resume = "") {
    ProgramOptions options;
    options.steps = steps, options.log = log, options.save = save, options.resume = resume;
    return options;
  }
  void expect_resumed_run_has_the_same_bits(const std::string& name) {
    const auto file = [&](const char* of) { return folder_.file(of); };
    run(name, options(3, file("whole.log"), file("whole")));
    run(name, options(2, file("parts.log"), file("parts")));
    run(name, options(3, file("parts.log"), file("again"), file("parts")));
    for (const char* tensors : {"/model.safetensors", "/optimizer.safetensors"}) {
      EXPECT_TRUE(read_file(file("whole") + tensors) == read_file(file("again") + tensors)) << tensors;
    }
    std::vector<json> whole = log("whole.log"), parts = log("parts.log");
    ASSERT_EQ(whole.size(), 6u);
    const std::set<std::string> keys = {"rewards_chosen", "rewards_rejected", "rewards_margins", "rewards_accuracies"};
    for (std::vector<json>* lines : {&whole, &parts}) {
      for (json& line : *lines) {
        for (const std::string& key : keys) EXPECT_TRUE(line.contains(key)) << line;
        line.erase("seconds");
      }
    }
    EXPECT_DOUBLE_EQ(whole[0]["rewards_margins"].get<double>(),
                     whole[0]["rewards_chosen"].get<double>() - whole[0]["rewards_rejected"].get<double>());
    EXPECT_EQ(whole, parts);
  }
  const TemporaryFolder folder_;
};

TEST_F(WholeTraining, OfAnAdapterGoesOnWithTheSameReference) { expect_resumed_run_has_the_same_bits("kto"); }
// If all weights are trained, the reference is the initial model. A resumed run must load it again,
// because its own weights are already trained.
TEST_F(WholeTraining, OfAllWeightsGoesOnWithTheSameReference) { expect_resumed_run_has_the_same_bits("dpo_chat"); }

TEST_F(WholeTraining, LowersTheLossAndRaisesTheMargin) {
  run("dpo", options(12, folder_.file("log")));
  const std::vector<json> lines = log("log");
  EXPECT_NEAR(lines[0]["loss"].get<double>(), std::log(2.0), 1e-8) << "the adapter adds nothing at first";
  EXPECT_EQ(lines[0]["rewards_chosen"], 0);
  EXPECT_LT(lines.back()["eval_loss"].get<double>(), 0.6 * lines[1]["eval_loss"].get<double>());
  EXPECT_GT(lines.back()["rewards_margins"].get<double>(), 0.5);
  EXPECT_GT(lines.back()["accuracy"].get<double>(), 0.8);
  EXPECT_EQ(lines.back()["accuracy"], lines.back()["rewards_accuracies"]);
}

}  // namespace
}  // namespace reprise
