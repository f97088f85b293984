// Tests profiles: the file, bad files, and step times that are predicted from synthetic prices. A
// prediction must be the sum over the plan's rows, and must not rise with the budget. No kernel is
// timed here.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/training_harness.h"
#include "tools/plan/planning/compare.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/costs/prediction.h"
#include "tools/run/profiling/profile.h"

namespace reprise {
namespace {

constexpr double kMicroBatchSeconds = 0x1p-9;

// Gives every key a price of its own: a prime number of units of 2^-20 s. Sums of prices are exact,
// and equal only if they contain the same calls.
class PrimePrices {
 public:
  double seconds(const std::string& key) {
    const auto [found, is_new] = prices_.try_emplace(key, 0.0);
    if (is_new) found->second = next_prime() * 0x1p-20;
    return found->second;
  }
  MeasuredCosts costs() {
    return {[this](const Graph& graph, const Call& call) { return seconds(call_key(graph, call)); },
            [this](const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
              return seconds(row_key(plan, program, row));
            },
            kMicroBatchSeconds};
  }
  const std::map<std::string, double>& known() const { return prices_; }

 private:
  double next_prime() {
    const auto is_prime = [](int n) {
      for (int d = 2; d * d <= n; ++d) {
        if (n % d == 0) return false;
      }
      return true;
    };
    do ++last_; while (!is_prime(last_));
    return last_;
  }
  std::map<std::string, double> prices_;
  int last_ = 1;
};

double sum_of_rows(const OwnedPlan& plan, ProgramId id, PrimePrices& prices) {
  const OwnedProgram& program = plan.programs[static_cast<size_t>(id)];
  double sum = 0;
  for (const Row& row : program.rows) sum += prices.seconds(row_key(plan, program, row));
  return sum;
}

double sum_of_step(const OwnedPlan& plan, PrimePrices& prices) {
  double sum = sum_of_rows(plan, ProgramId::kMicroFirst, prices) + sum_of_rows(plan, ProgramId::kUpdate, prices);
  sum += (plan.accumulate - 1) * sum_of_rows(plan, ProgramId::kMicroAdd, prices);
  return sum + plan.accumulate * kMicroBatchSeconds;
}

PlannedModel plan_within(SolvedModel& model, const std::string& strategy, std::optional<uint64_t> budget) {
  ScheduleRequest request;
  request.strategy = strategy;
  model.recipe.budget_bytes = budget;
  return plan_model(model, request);
}

struct Case {
  const char* name;
  std::string recipe;
};
std::vector<Case> cases() {
  return {{"resnet", resnet_recipe()},
          {"bottleneck_accumulated", resnet_recipe(R"(, "accumulate": 3, "clip_norm": 1.0)", "bottleneck")},
          {"resnet_released", resnet_recipe(R"(, "gradient_release": true)")},
          {"gpt", gpt_recipe()},
          {"gpt_accumulated", gpt_recipe(R"(, "accumulate": 2)", 0.0)}};
}

class Predicted : public ::testing::TestWithParam<int> {
 protected:
  const Case case_ = cases()[static_cast<size_t>(GetParam())];
  PrimePrices prices_;
  SolvedModel model_ = solve_model(recipe_from(case_.recipe), prices_.costs());
};

TEST_P(Predicted, IsTheSumOverTheRowsOfTheStep) {
  int planned_count = 0;
  for (const std::string& strategy : strategy_names()) {
    ScheduleRequest request;
    request.strategy = strategy;
    const uint64_t minimum = strategy == "none" ? model_.store_all_bytes : smallest_budget(model_, request);
    for (const double share : {0.0, 0.15, 0.5, 0.8, 1.0}) {
      const uint64_t budget =
          minimum + static_cast<uint64_t>(share * static_cast<double>(model_.store_all_bytes - minimum));
      const PlannedModel planned = plan_within(model_, strategy, budget);
      if (!planned.fits) continue;
      ++planned_count;
      ASSERT_TRUE(planned.predicted_seconds.has_value());
      EXPECT_EQ(*planned.predicted_seconds, sum_of_step(planned.plan, prices_))
          << case_.name << ", " << strategy << ", budget " << budget;
    }
  }
  EXPECT_GE(planned_count, 25) << "most strategies fit most budgets";
}

TEST_P(Predicted, CountsTransfersByTheByte) {
  MeasuredCosts costs = prices_.costs();
  costs.disk = DiskLevel{0, 0x1p-40, 0x1p-41};
  SolvedModel model = solve_model(recipe_from(case_.recipe), costs);
  ScheduleRequest request;
  request.strategy = "h-revolve";
  request.disk = second_level(model, uint64_t{1} << 30);
  EXPECT_EQ(request.disk.read_cost, 0x1p-41);
  model.recipe.budget_bytes = smallest_budget(model, request);
  const PlannedModel planned = plan_model(model, request);
  double transfers = 0, rows = 0;
  const auto add = [&](ProgramId id, uint32_t times) {
    const OwnedProgram& program = planned.plan.programs[static_cast<size_t>(id)];
    for (const Row& row : program.rows) {
      const Ref y = program.arguments[row.first_argument], x = program.arguments[row.first_argument + 1];
      if (row.op != Op::kTransfer) {
        rows += times * prices_.seconds(row_key(planned.plan, program, row));
      } else if (row.pass == Pass::kStart) {
        const bool writes = ref_region(y) == Region::kSpill;
        const Tensor& block = program.spilled[ref_index(writes ? y : x)].tensor;
        transfers += times * static_cast<double>(block.bytes) * (writes ? 0x1p-40 : 0x1p-41);
      }
    }
  };
  add(ProgramId::kMicroFirst, 1);
  add(ProgramId::kMicroAdd, planned.plan.accumulate - 1);
  add(ProgramId::kUpdate, 1);
  EXPECT_GT(transfers, 0);
  EXPECT_EQ(*planned.predicted_seconds, rows + transfers + planned.plan.accumulate * kMicroBatchSeconds);
  EXPECT_THROW((void)second_level(model_, 5), UserError) << "the profile has not measured the disk";
  model.recipe.schedule.host_bytes = 1;
  EXPECT_THROW((void)second_level(model, 5), UserError) << "nor memory of the host";
  model.measured->host = DiskLevel{0, 0x1p-30, 0x1p-31};
  EXPECT_EQ(second_level(model, 5).write_cost, 0x1p-30);
  EXPECT_EQ(second_level(model, 5).read_cost, 0x1p-31);
}

TEST_P(Predicted, NeverRisesWithTheBudget) {
  ScheduleRequest request;
  const uint64_t minimum = smallest_budget(model_, request);
  double before = INFINITY, work_before = INFINITY;
  std::set<double> different;
  for (uint64_t p = 0; p < 20; ++p) {
    const uint64_t budget = minimum + (model_.store_all_bytes - minimum) * p / 19;
    model_.recipe.budget_bytes = budget;
    const PlannedModel planned = plan_model(model_, request);
    ASSERT_TRUE(planned.fits) << case_.name << ", budget " << budget;
    EXPECT_LE(*planned.predicted_seconds, before) << case_.name << ", budget " << budget;
    EXPECT_LE(planned.extra_forward_cost, work_before) << case_.name << ", budget " << budget;
    work_before = planned.extra_forward_cost;
    before = *planned.predicted_seconds;
    different.insert(before);
  }
  EXPECT_GT(different.size(), 3u) << "budgets must matter";
}

TEST_P(Predicted, CompareSaysTheSame) {
  ScheduleRequest request;
  request.strategy = "optimal";
  model_.recipe.budget_bytes = smallest_budget(model_, request);
  const PlannedModel planned = plan_model(model_, request);
  bool found = false;
  const nlohmann::json comparison = compare_strategies(model_);
  for (const nlohmann::json& row : comparison.at("rows")) {
    EXPECT_EQ(row.at("predicted_seconds").is_null(), !row.at("feasible").get<bool>());
    if (row.at("strategy") != "optimal") continue;
    found = true;
    EXPECT_EQ(row.at("predicted_seconds").get<double>(), *planned.predicted_seconds);
  }
  EXPECT_TRUE(found);
}

// If the wire takes no time, the predicted time must be that of the rows. A slower wire must add
// its time. The sent bytes must be those of the plan.
TEST_P(Predicted, RanksWaitForTheWireAlone) {
  Recipe recipe = recipe_from(case_.recipe);
  if (recipe.gradient_release) return;
  recipe.parallel = ParallelRecipe{.ranks = 4};
  SolvedModel model = solve_model(recipe, prices_.costs());
  const PlannedModel planned = plan_within(model, "none", std::nullopt);
  double rows = planned.plan.accumulate * kMicroBatchSeconds, waited_before = -1;
  for_each_step_row(planned.plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (row.op != Op::kShare) rows += times * prices_.seconds(row_key(planned.plan, program, row));
  });
  for (const double seconds : {0.0, 0x1p-16, 0x1p-6}) {
    model.measured->wire = Wire{2, seconds, seconds * 0x1p-10};
    const WireTime time = step_on_wire(model, planned.plan);
    EXPECT_EQ(time.sent_bytes, sent_bytes(planned.plan.view()));
    EXPECT_EQ(time.waited_seconds == 0, seconds == 0);
    EXPECT_GT(time.waited_seconds, waited_before);
    EXPECT_NEAR(time.step_seconds, rows + time.waited_seconds, 1e-9);
    EXPECT_EQ(*predict_seconds(model, planned.plan), time.step_seconds);
    waited_before = time.waited_seconds;
  }
}

TEST_P(Predicted, NullWithoutAProfile) {
  SolvedModel model = solve_model(recipe_from(case_.recipe));
  EXPECT_FALSE(plan_within(model, "none", std::nullopt).predicted_seconds.has_value());
}

INSTANTIATE_TEST_SUITE_P(Nets, Predicted, ::testing::Range(0, 5),
                         [](const auto& info) { return cases()[static_cast<size_t>(info.param)].name; });

Profile sample_profile() {
  Profile profile;
  profile.path = "p.json";
  profile.kernel_set = "portable; a \"tile\"";
  profile.processor = "some chip";
  profile.threads = 3;
  profile.micro_batch_seconds = 0.1;
  profile.kernels = {{"relu.forward f32[2,3] f32[2,3]", {1.0 / 3, 7}}, {"add.forward", {0, 1}}};
  return profile;
}

TEST(ProfileFile, RoundTrip) {
  const Profile profile = sample_profile();
  const TemporaryFolder folder;
  write_file(folder.file("p.json"), profile_text(profile));
  const Profile again = read_profile(folder.file("p.json"));
  EXPECT_EQ(again.kernels, profile.kernels);
  EXPECT_EQ(again.backend, "cpu");
  EXPECT_EQ(again.kernel_set, profile.kernel_set);
  EXPECT_EQ(again.processor, profile.processor);
  EXPECT_EQ(again.threads, 3u);
  EXPECT_EQ(again.micro_batch_seconds, 0.1);
  EXPECT_EQ(profile_text(again), profile_text(profile));
  EXPECT_FALSE(again.wire);
}

TEST(ProfileFile, TheWireIsWholeOrAbsent) {
  Profile profile = sample_profile();
  profile.wire = Wire{4, 2e-4, 8.5e-9};
  const std::string text = profile_text(profile);
  EXPECT_EQ(parse_profile(text, "p.json").wire, profile.wire);
  EXPECT_EQ(profile_text(parse_profile(text, "p.json")), text);
  EXPECT_EQ(costs_of(std::make_shared<const Profile>(profile)).wire, profile.wire);
  for (const char* const key : {"wire_ranks", "wire_message_seconds", "wire_byte_seconds"}) {
    nlohmann::json json = nlohmann::json::parse(text);
    json.erase(key);
    expect_user_error([&] { (void)parse_profile(json.dump(), "bad.json"); }, {"bad.json", key});
    json[key] = -1;
    expect_user_error([&] { (void)parse_profile(json.dump(), "bad.json"); }, {"bad.json", key});
  }
  nlohmann::json alone = nlohmann::json::parse(text);
  alone["wire_ranks"] = 1;
  expect_user_error([&] { (void)parse_profile(alone.dump(), "bad.json"); }, {"wire_ranks"});
}

// Returns the sample profile in which the text `from` is replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = profile_text(sample_profile());
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the sample has no " + from);
  return text.replace(at, from.size(), to);
}

TEST(ProfileFile, BadFilesAreOneLine) {
  expect_user_error([] { (void)read_profile("/nonexistent/p.json"); }, {"/nonexistent/p.json"});
  const std::pair<std::string, std::vector<std::string>> bad[] = {
      {"", {}},
      {"not JSON", {}},
      {"[]", {"object"}},
      {"{}", {"format", "reprise profile"}},
      {"{\"name\": \"a recipe\"}", {"format", "reprise profile"}},
      {changed("\"format\": 1", "\"format\": 2"), {"format", "1"}},
      {changed("\"format\": 1", "\"format\": \"1\""), {"format"}},
      {changed("\"threads\": 3", "\"threads\": 0"), {"threads"}},
      {changed("\"threads\": 3", "\"threads\": -1"), {"threads"}},
      {changed("\"backend\": \"cpu\"", "\"backend\": \"abacus\""), {"backend"}},
      {changed("\"kernel_set\"", "\"kernels_set\""), {"kernels_set"}},
      {changed("\"micro_batch_seconds\": 0.1", "\"micro_batch_seconds\": -0.1"), {"micro_batch_seconds"}},
      {changed("\"micro_batch_seconds\": 0.1", "\"micro_batch_seconds\": 1e999"), {}},
      {changed("0.3333333333333333", "-1"), {"kernels[1].seconds"}},
      {changed("0.3333333333333333", "NaN"), {}},
      {changed("0.3333333333333333", "null"), {"kernels[1].seconds"}},
      {changed("0.3333333333333333", "\"fast\""), {"kernels[1].seconds"}},
      {changed("\"runs\": 7", "\"runs\": -7"), {"kernels[1].runs"}},
      {changed("\"runs\": 7", "\"runs\": 0"), {"kernels[1].runs"}},
      {changed("\"runs\": 7", "\"walks\": 7"), {"kernels[1]"}},
      {changed("\"key\": \"add.forward\"", "\"key\": 5"), {"kernels[0].key"}},
      {changed("\"key\": \"add.forward\"", "\"key\": \"relu.forward f32[2,3] f32[2,3]\""), {"kernels[1].key", "twice"}},
  };
  for (const auto& [text, fragments] : bad) {
    SCOPED_TRACE(text.substr(0, 60));
    try {
      (void)parse_profile(text, "bad.json");
      ADD_FAILURE() << "accepted";
    } catch (const UserError& error) {
      const std::string line = error.what();
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_EQ(line.rfind("bad.json", 0), 0u) << line;
      for (const std::string& fragment : fragments) EXPECT_NE(line.find(fragment), std::string::npos) << line;
    }
  }
}

TEST(ProfileFile, APartOfAGroupTakesItsShare) {
  Profile profile = sample_profile();
  profile.kernels["adamw.update tensors=2 elements=100 f32[10]"] = {0.5, 1};
  profile.kernels["adamw.update tensors=9 elements=4000 f32[10]"] = {8, 1};
  profile.kernels["adamw.updates elements=1000000"] = {1, 1};
  EXPECT_EQ(profile.seconds_of_part("adamw.update tensors=3 elements=1000 f32[4]"), 2.0);
  EXPECT_EQ(profile.seconds_of_part("sgd.update tensors=3 elements=1000 f32[4]"), std::nullopt);
  EXPECT_EQ(profile.seconds_of_part("relu.forward f32[2,3] f32[2,4]"), std::nullopt);
}

TEST(ProfileFile, ACallThatItLacksIsNamed) {
  const auto profile = std::make_shared<const Profile>(sample_profile());
  expect_user_error([&] { (void)solve_model(recipe_from(resnet_recipe()), costs_of(profile)); },
                    {"p.json", ".forward", "f32[4,", "profile this recipe again"});
}

TEST(ProfileFile, AForeignProfileIsWarnedOf) {
  const Profile profile = sample_profile();
  EXPECT_EQ(profile_mismatch(profile, profile.kernel_set, 3), "");
  EXPECT_NE(profile_mismatch(profile, "avx", 3).find("kernel_set"), std::string::npos);
  EXPECT_NE(profile_mismatch(profile, profile.kernel_set, 2).find("threads"), std::string::npos);
}

// Random streams and the constants of optimizers must not change a key, so that equal layers share
// a key. The rate of dropout must change keys, and so must adding to an output.
TEST(ProfileKeys, HoldWhatChangesTheTime) {
  const auto keys_of = [](const std::string& recipe) {
    PrimePrices prices;
    SolvedModel model = solve_model(recipe_from(recipe), prices.costs());
    (void)plan_within(model, "none", std::nullopt);
    std::set<std::string> keys;
    for (const auto& [key, seconds] : prices.known()) keys.insert(key);
    return keys;
  };
  const std::set<std::string> keys = keys_of(gpt_recipe());
  std::string otherwise = gpt_recipe();
  otherwise.replace(otherwise.find("0.003"), 5, "0.005")
      .replace(otherwise.find("\"weight_decay\": 0.1"), 19, "\"weight_decay\": 0.2");
  EXPECT_EQ(keys_of(otherwise), keys);
  EXPECT_NE(keys_of(gpt_recipe("", 0.2)), keys);
  EXPECT_EQ(std::count_if(keys.begin(), keys.end(),
                          [](const std::string& key) { return key.rfind("attention.forward", 0) == 0; }),
            1)
      << "three blocks of one shape share a key";
  std::string deeper = gpt_recipe();
  deeper.replace(deeper.find("\"n_layer\": 3"), 12, "\"n_layer\": 4");
  const std::set<std::string> more = keys_of(deeper);
  EXPECT_EQ(std::count_if(more.begin(), more.end(),
                          [](const std::string& key) { return key.rfind("attention.forward", 0) == 0; }),
            1);
  const std::set<std::string> accumulated = keys_of(gpt_recipe(R"(, "accumulate": 2)"));
  EXPECT_GT(accumulated.size(), keys.size());
}

}  // namespace
}  // namespace reprise
