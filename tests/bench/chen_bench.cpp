// Trains the net of Chen et al.'s experiment, [15,120,180,15] at batch 32 and 224 x 224, for a few
// steps at each of several budgets. Reports planned bytes, measured bytes and seconds. Also reports
// the bits of the loss, which must not depend on the budget. `make chen` runs it.
//
//   chen_bench [--steps N] [--turns N] [--threads N] [BUDGET...]
//
// BUDGET is a feature-map budget such as 7GiB. Default: 0.7, 1.2, 3 and 7 GiB, and the largest that
// fits. --turns N: the budgets run in N turns, each in its own arena, because a machine's speed
// drifts.
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "ports/linux/linux_port.h"
#include "tests/planner/deep_resnet.h"
#include "tests/ports/test_machine.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/run/profiling/measure.h"
#include "tools/plan/planning/does_not_fit.h"

namespace reprise::bench {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kProfileSeconds = 30;

struct Settings {
  uint32_t threads = 0;
  int steps = 2, turns = 1;
};

// Returns the value of a field in a file of /proc, in bytes.
uint64_t kernel_field(const char* file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string word; stream >> word;) {
    uint64_t kibibytes = 0;
    if (word == name + ":" && stream >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

struct Point {
  uint64_t budget_bytes = 0;
  PlannedModel planned;
  uint64_t measured_bytes = 0, swap_bytes = 0;
  std::vector<double> seconds;  // seconds of the steps of all turns
  std::vector<double> losses;   // losses of the steps of one turn
  bool repeats = true;          // true if the losses of every turn equal the losses of the first turn

  double fastest() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

void print_head() {
  std::printf(
      "budget       feature maps         total   measured     same  rows  extra work  predicted s   measured s  swap  "
      "loss bits of each step\n");
}

void print_point(const SolvedModel& model, const Point& point) {
  const OwnedPlan& plan = point.planned.plan;
  const uint64_t outside = model.fixed_bytes();  // everything outside the chain's area
  std::printf("%-9s %10.3f GiB %9.3f GiB %6.3f GiB %4s %7zu %10.1f%% %12.1f ", bytes_text(point.budget_bytes).c_str(),
              static_cast<double>(point.planned.packed_bytes) / kGiB, static_cast<double>(plan.arena_bytes) / kGiB,
              static_cast<double>(point.measured_bytes) / kGiB, point.measured_bytes == plan.arena_bytes ? "yes" : "NO",
              plan.programs[0].rows.size(), 100 * point.planned.extra_forward_cost,
              point.planned.predicted_seconds.value_or(0));
  for (const double seconds : point.seconds) std::printf(" %5.1f", seconds);
  std::printf("  %s ", point.swap_bytes == 0 ? "none" : bytes_text(point.swap_bytes).c_str());
  for (const double loss : point.losses) std::printf(" %016" PRIx64, std::bit_cast<uint64_t>(loss));
  std::printf("\n");
  std::fflush(stdout);
  if (outside + point.planned.packed_bytes < plan.arena_bytes)
    std::printf("  (the update or the evaluation needs more than the chain)\n");
}

void train(const Recipe& recipe, const Settings& settings, Point& point) {
  PlanRun run(linux_port(), test::test_backend(), recipe, point.planned.plan, settings.threads);
  std::vector<double> losses;
  for (int step = 0; step < settings.steps; ++step) {
    point.seconds.push_back(run.step());
    losses.push_back(run.report().loss);
    std::fprintf(stderr, "%s, step %d: %.1f s, loss %.9g\n", bytes_text(point.budget_bytes).c_str(), step + 1,
                 point.seconds.back(), losses.back());
  }
  if (point.losses.empty()) point.losses = losses;
  point.repeats = point.repeats && losses == point.losses;
  if (!measured_bytes(run.trainer(), point.measured_bytes).ok())
    throw UserError(recipe.name + ": the arena cannot be read");
  point.swap_bytes = std::max(point.swap_bytes, kernel_field("/proc/self/status", "VmSwap"));
}

// Solves the deep net with prices that are measured in the shallow net. The shallow net has every
// kernel call of the deep one.
SolvedModel solve_measured(const Recipe& deep, const Settings& settings) {
  MeasureOptions options;
  options.threads = settings.threads;
  options.seconds_per_plan = kProfileSeconds;
  options.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  return solve_model(deep, costs_of(std::make_shared<const Profile>(
                               measure_profile(linux_port(), deep_resnet({2, 2, 2, 2}), options))));
}

// Returns the bytes of memory that remain after the state and the program itself, but no more than
// storing everything needs.
uint64_t largest_budget(const SolvedModel& model) {
  constexpr uint64_t kBeside = uint64_t{1} << 30;
  const uint64_t available = kernel_field("/proc/meminfo", "MemAvailable"), fixed = model.fixed_bytes() + kBeside;
  const uint64_t space = available < fixed ? 0 : available - fixed;
  return std::min(space, model.store_all_bytes - model.fixed_bytes()) / kAlignment * kAlignment;
}

// Prints the extra time of each budget after the first. The reference is a step of the first
// budget, minus its planned share of recomputation. So only this share is planned and not measured.
void print_extra_time(const std::vector<Point>& points) {
  const Point& reference = points.front();
  const double planned = 100 * reference.planned.extra_forward_cost;
  if (points.size() == 1) {
    std::printf("extra time not measured: one budget has nothing to be compared with; its plan says %+.1f%%\n",
                planned);
    return;
  }
  const double own = 1 + reference.planned.extra_forward_cost;
  const double fastest = reference.fastest() / own, middle = median(reference.seconds) / own;
  std::printf(
      "budget     extra time measured: fastest steps, of %.1f s (the first budget's step without the %.1f%% that its "
      "plan says); medians, of %.1f s\n",
      fastest, planned, middle);
  for (const Point& point : points) {
    std::printf("%-9s %+6.1f%% %+6.1f%%%s\n", bytes_text(point.budget_bytes).c_str(),
                100 * (point.fastest() / fastest - 1), 100 * (median(point.seconds) / middle - 1),
                &point == &reference ? "  (the plan's, not measured)" : "");
  }
}

void summarise(const SolvedModel& model, const std::vector<Point>& points) {
  if (points.empty()) return;
  std::printf(
      "\nState (weights, momentum, statistics) %.3f GiB, labels and small values %.3f GiB; gradients are released.\n",
      static_cast<double>(model.state_bytes) / kGiB, static_cast<double>(model.header_bytes) / kGiB);
  print_extra_time(points);
  const bool same = std::all_of(points.begin(), points.end(), [&](const Point& point) {
    return point.repeats && point.losses == points.front().losses;
  });
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("loss bits: %s; highest resident memory of this process %.3f GiB\n",
              same ? "identical at every budget" : "DIFFERENT", static_cast<double>(usage.ru_maxrss) / 1048576);
}

int run(int argc, char** argv) {
  Settings settings;
  std::vector<uint64_t> budgets;
  for (int a = 1; a < argc; ++a) {
    if (std::strcmp(argv[a], "--threads") == 0 && a + 1 < argc)
      settings.threads = static_cast<uint32_t>(std::atoi(argv[++a]));
    else if (std::strcmp(argv[a], "--turns") == 0 && a + 1 < argc) settings.turns = std::max(1, std::atoi(argv[++a]));
    else if (std::strcmp(argv[a], "--steps") == 0 && a + 1 < argc) settings.steps = std::max(1, std::atoi(argv[++a]));
    else budgets.push_back(parse_bytes(argv[a], "BUDGET"));
  }
  const Recipe deep = deep_resnet(kDeepUnits);
  SolvedModel model = solve_measured(deep, settings);
  if (budgets.empty()) {
    budgets = {largest_budget(model)};
    for (const char* text : {"7GiB", "3GiB", "1.2GiB", "0.7GiB"}) budgets.push_back(parse_bytes(text, "BUDGET"));
  }
  std::vector<Point> points(budgets.size());
  for (size_t p = 0; p < points.size(); ++p) {
    points[p].budget_bytes = budgets[p];
    model.recipe.feature_map_budget_bytes = budgets[p];
    const ScheduleRequest request = request_of(model);
    points[p].planned = plan_model(model, request);
    if (points[p].planned.fits) continue;
    std::fprintf(stderr, "%s\n", does_not_fit_message(model, points[p].planned, request).c_str());
    return UserError::kDoesNotFit;
  }
  print_head();
  for (int turn = 1; turn <= settings.turns; ++turn) {
    for (Point& point : points) {
      train(deep, settings, point);
      if (turn == settings.turns) print_point(model, point);
    }
  }
  summarise(model, points);
  return 0;
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  try {
    return reprise::bench::run(argc, argv);
  } catch (const reprise::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}
