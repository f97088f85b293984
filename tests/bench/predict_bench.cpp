// Compares predicted with measured step times at eight budgets. A first profile chooses the plans.
// A second profile prices them. Its rounds alternate with rounds of the plans, because a machine's
// speed drifts over minutes and this benchmark tests only the prediction of kernels. A planner that
// minimises seconds must predict them; the goal is 5%.
//
//   predict_bench [--threads N] [--seconds S] [RECIPE...]    default: ResNet-20, ResNet-50, a GPT;
//                                                            S seconds per plan
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "ports/linux/linux_port.h"
#include "tests/bench/bench_recipes.h"
#include "tests/bench/machine_load.h"
#include "tests/bench/recipe_command.h"
#include "tests/ports/test_machine.h"
#include "tools/files/io/text.h"
#include "tools/run/profiling/measure.h"
#include "tools/plan/costs/prediction.h"

namespace reprise {
namespace {

constexpr int kBudgets = 8, kRounds = 10, kMinSteps = 2;

struct Settings {
  uint32_t threads = 0;
  double seconds = 8;
};

// The steps of one plan. The steps are measured in several rounds over all plans, so that a slow
// minute of the machine affects all plans.
struct Candidate {
  PlannedModel planned;
  uint64_t budget_bytes = 0;
  std::vector<double> steps;

  void run_round(const Recipe& recipe, const Settings& settings) {
    PlanRun run(linux_port(), test::test_backend(), recipe, planned.plan, settings.threads);
    (void)run.step();
    double spent = 0;
    for (int n = 0; n < kMinSteps || spent < settings.seconds / kRounds; ++n) {
      steps.push_back(run.step());
      spent += steps.back();
    }
  }
};

std::vector<Candidate> candidates(SolvedModel& model) {
  const ScheduleRequest request;
  const uint64_t minimum = smallest_budget(model, request);
  std::vector<Candidate> list(kBudgets);
  for (uint64_t b = 0; b < kBudgets; ++b) {
    model.recipe.budget_bytes = list[b].budget_bytes = minimum + (model.store_all_bytes - minimum) * b / (kBudgets - 1);
    list[b].planned = plan_model(model, request);
  }
  return list;
}

void compare(const Recipe& recipe, const Settings& settings) {
  MeasureOptions options;
  options.threads = settings.threads;
  options.seconds_per_plan = settings.seconds;
  const auto first_profile = std::make_shared<const Profile>(measure_profile(linux_port(), recipe, options));
  SolvedModel model = solve_model(recipe, costs_of(first_profile));
  model.recipe.feature_map_budget_bytes.reset();
  std::vector<Candidate> list = candidates(model);
  options.rounds = kRounds;
  options.after_round = [&] {
    for (Candidate& candidate : list) candidate.run_round(recipe, settings);
  };
  const auto profile = std::make_shared<const Profile>(measure_profile(linux_port(), recipe, options));
  const SolvedModel priced = solve_model(recipe, costs_of(profile));
  std::printf(
      "\n%s: %s, %u threads, load %s\n     budget  rows  extra work  when planned  predicted s  measured s     off\n",
      recipe.name.c_str(), profile->kernel_set.c_str(), static_cast<unsigned>(profile->threads),
      bench::load_average().c_str());
  double worst = 0;
  for (const Candidate& candidate : list) {
    const double predicted = predict_seconds(priced, candidate.planned.plan).value(),
                 measured = median(candidate.steps);
    const double off = 100 * (predicted / measured - 1);
    worst = std::max(worst, std::abs(off));
    std::printf("%11s %5zu %10.1f%% %13.5f %12.5f %11.5f %+6.1f%%\n", bytes_text(candidate.budget_bytes).c_str(),
                candidate.planned.plan.programs[0].rows.size(), 100 * candidate.planned.extra_forward_cost,
                candidate.planned.predicted_seconds.value(), predicted, measured, off);
  }
  std::printf("worst %.1f%%\n", worst);
  std::fflush(stdout);
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  CLI::App app("Predicted against measured step time at eight budgets", "predict_bench");
  reprise::Settings settings;
  app.add_option("--threads", settings.threads, "0: as many as the machine has");
  app.add_option("--seconds", settings.seconds, "of each plan");
  using namespace reprise::bench;
  return measure_recipes(app, argc, argv, {kResNet20, kResNet50, kGpt},
                         [&](const reprise::Recipe& recipe) { reprise::compare(recipe, settings); });
}
