// Compares each kernel of a recipe's step with the roofline min(peak, intensity * bandwidth):
// flops, bytes, seconds, and the bound. A kernel is as fast as possible only if it reaches one of
// the two limits. The output shows which limit it is, and the distance to it.
//
//   roofline_bench [--threads N] [--seconds S] [--all] [RECIPE...]
//
// Default recipes: bench_recipes.h. S: seconds of measurement per plan. --all: every distinct call,
// not only those of at least 2% of the step. The seconds are those of real steps
// (tools/run/profiling). The flops and bytes are those of tools/plan/graph/cost.h. So a kernel
// whose operands are still in a cache exceeds 100% of the bandwidth, and a kernel that must read
// data twice cannot reach it.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "ports/linux/linux_port.h"
#include "tests/bench/bench_recipes.h"
#include "tests/bench/machine_bandwidth.h"
#include "tests/bench/machine_load.h"
#include "tests/bench/machine_peak.h"
#include "tests/bench/recipe_command.h"
#include "tools/plan/costs/step_cost.h"
#include "tools/files/io/text.h"
#include "tools/run/profiling/measure.h"
#include "tools/plan/planning/does_not_fit.h"

namespace reprise::bench {
namespace {

struct Settings {
  uint32_t threads = 0;
  double seconds = 10;
  bool all = false;
};

struct Machine {
  double flops = 0, bytes = 0;  // per second, for all workers together

  double roofline_seconds(const CallCost& cost) const { return std::max(cost.flops / flops, cost.bytes / bytes); }
  bool memory_bounds(const CallCost& cost) const { return cost.bytes / bytes > cost.flops / flops; }
};

// A distinct kernel call, or all calls of one kernel. The numbers are sums over a step.
struct Line {
  std::string name;
  // `runs`: number of runs in a step that stores everything. `runs_again`: number of additional
  // runs in a step that recomputes values in a quarter of the transient memory.
  double runs = 0, runs_again = 0;
  CallCost cost;                    // this and the next fields are sums over the runs if everything is stored
  double seconds = 0, roofline = 0, memory_roofline = 0;

  void add(const Line& other) {
    runs += other.runs;
    runs_again += other.runs_again;
    cost.flops += other.cost.flops;
    cost.bytes += other.cost.bytes;
    seconds += other.seconds;
    roofline += other.roofline;
    memory_roofline += other.memory_roofline;
  }
};
using Lines = std::map<std::string, Line>;

Lines lines_of(const OwnedPlan& plan, const Profile& profile, const Machine& machine) {
  Lines lines;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (times == 0) return;
    const std::string key = row_key(plan, program, row);
    const CallCost cost = kernel_cost(kernel_call(plan, program, row), plan.attributes);
    const double roofline = times * machine.roofline_seconds(cost);
    lines[key].add({key,
                    static_cast<double>(times),
                    0,
                    {times * cost.flops, times * cost.bytes},
                    times * profile.seconds(key),
                    roofline,
                    machine.memory_bounds(cost) ? roofline : 0});
    lines[key].name = key;
  });
  return lines;
}

std::vector<Line> slowest_first(const Lines& lines) {
  std::vector<Line> list;
  for (const auto& [name, line] : lines) list.push_back(line);
  std::sort(list.begin(), list.end(), [](const Line& a, const Line& b) { return a.seconds > b.seconds; });
  return list;
}

Lines by_kernel(const Lines& calls) {
  Lines kernels;
  for (const auto& [key, line] : calls) {
    const std::string name = key.substr(0, key.find(' '));
    kernels[name].add(line);
    kernels[name].name = name;
  }
  return kernels;
}

// Returns the text of a call, wrapped to 140 columns, for an output that begins in column `column`.
std::string wrapped(const std::string& call, size_t column) {
  std::istringstream words(call);
  std::string text, word;
  for (size_t at = column; words >> word; at += word.size()) {
    if (!text.empty() && at + 1 + word.size() > 140) {
      text += "\n" + std::string(at = 13, ' ');
    } else if (!text.empty()) {
      text += " ", ++at;
    }
    text += word;
  }
  return text;
}

void print_table(const char* title, const std::vector<Line>& lines, double step_seconds, double min_share,
                 const Machine& machine) {
  std::printf("\n%5s %5s %9s %9s %9s %6s %8s %6s %7s %6s %-7s %8s  %s\n", "runs", "again", "GFLOP", "MB", "ms",
              "% step", "GFLOP/s", "% peak", "GB/s", "% bw", "bound", "% roof", title);
  Line left_out;
  for (const Line& line : lines) {
    if (line.seconds < min_share * step_seconds) {
      left_out.add(line);
      continue;
    }
    std::printf("%5.0f %5.0f %9.3f %9.1f %9.3f %6.1f %8.1f %6.1f %7.1f %6.1f %-7s %8.1f  %s\n", line.runs,
                line.runs_again, line.cost.flops / 1e9, line.cost.bytes / 1e6, line.seconds * 1e3,
                100 * line.seconds / step_seconds, line.cost.flops / line.seconds / 1e9,
                100 * line.cost.flops / line.seconds / machine.flops, line.cost.bytes / line.seconds / 1e9,
                100 * line.cost.bytes / line.seconds / machine.bytes,
                line.memory_roofline > line.roofline / 2 ? "memory" : "compute", 100 * line.roofline / line.seconds,
                wrapped(line.name, 98).c_str());
  }
  if (left_out.runs > 0)
    std::printf("%5.0f %5.0f %9.3f %9.1f %9.3f %6.1f  (the rest)\n", left_out.runs, left_out.runs_again,
                left_out.cost.flops / 1e9, left_out.cost.bytes / 1e6, left_out.seconds * 1e3,
                100 * left_out.seconds / step_seconds);
}

struct PlanCase {
  std::string what;
  OwnedPlan plan;
};

std::vector<PlanCase> plan_cases(SolvedModel& model) {
  ScheduleRequest request;
  const auto planned = [&](const std::string& strategy, std::optional<uint64_t> budget) {
    request.strategy = strategy;
    model.recipe.budget_bytes = budget;
    PlannedModel result = plan_model(model, request);
    if (!result.fits) throw UserError(does_not_fit_message(model, result, request), UserError::kDoesNotFit);
    return std::move(result.plan);
  };
  const uint64_t lasting = model.state_bytes + model.carried_bytes;
  const uint64_t quarter = lasting + (model.store_all_bytes - lasting) / 4;
  std::vector<PlanCase> cases;
  cases.push_back({"storing all", planned("none", std::nullopt)});
  model.recipe.budget_bytes.reset();
  const uint64_t minimum = smallest_budget(model, ScheduleRequest{});
  cases.push_back({"a quarter of the transient memory, or the least", planned("optimal", std::max(quarter, minimum))});
  cases.push_back({"the smallest", planned("optimal", minimum)});
  return cases;
}

void print_totals(const std::vector<PlanCase>& cases, const Profile& profile, const Machine& machine) {
  std::printf("%12s %9s %9s %9s %9s %8s  plan (a whole step, update included)\n", "arena", "GFLOP", "GB", "ms",
              "roof ms", "% roof");
  for (const PlanCase& one : cases) {
    Line total;
    for (const auto& [key, line] : lines_of(one.plan, profile, machine)) total.add(line);
    std::printf("%12s %9.3f %9.3f %9.2f %9.2f %8.1f  %s\n", bytes_text(one.plan.arena_bytes).c_str(),
                total.cost.flops / 1e9, total.cost.bytes / 1e9, total.seconds * 1e3, total.roofline * 1e3,
                100 * total.roofline / total.seconds, one.what.c_str());
  }
}

Machine measure_machine(uint32_t threads) {
  Workers workers;
  if (const Status status = linux_port().start_workers(threads, &workers); !status.ok())
    throw UserError(std::string("roofline_bench: ") + status.message);
  const double core = measure_peak_flops();
  const Bandwidth bandwidth = measure_bandwidth(workers);
  const Machine machine = {core * workers.count, bandwidth.best()};
  std::printf(
      "%u threads, peak %.1f GFLOP/s (%s, one core times %u),\nbandwidth %.1f GB/s (read %.1f, copy %.1f, triad %.1f): "
      "they meet at %.1f flops a byte\n",
      workers.count, machine.flops / 1e9, vector_level_name(best_vector_level()), workers.count, machine.bytes / 1e9,
      bandwidth.read / 1e9, bandwidth.copy / 1e9, bandwidth.triad / 1e9, machine.flops / machine.bytes);
  linux_port().stop_workers(&workers);
  return machine;
}

void report(const Recipe& recipe, const Settings& settings) {
  std::printf("\n== %s, load %s\n", recipe.name.c_str(), load_average().c_str());
  const Machine machine = measure_machine(settings.threads);
  MeasureOptions options;
  options.threads = settings.threads;
  options.seconds_per_plan = settings.seconds;
  const auto profile = std::make_shared<const Profile>(measure_profile(linux_port(), recipe, options));
  SolvedModel model = solve_model(recipe, costs_of(profile));
  model.recipe.feature_map_budget_bytes.reset();
  const std::vector<PlanCase> cases = plan_cases(model);
  print_totals(cases, *profile, machine);
  Lines calls = lines_of(cases[0].plan, *profile, machine);
  for (const auto& [key, line] : lines_of(cases[1].plan, *profile, machine)) {
    if (const auto found = calls.find(key); found != calls.end())
      found->second.runs_again = line.runs - found->second.runs;
  }
  double seconds = 0;
  for (const auto& [key, line] : calls) seconds += line.seconds;
  print_table("kernel", slowest_first(by_kernel(calls)), seconds, 0, machine);
  print_table("call", slowest_first(calls), seconds, settings.all ? 0 : 0.02, machine);
  std::fflush(stdout);
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise::bench;
  CLI::App app("Each kernel of a step against its roofline", "roofline_bench");
  Settings settings;
  app.add_option("--threads", settings.threads, "0: as many as the machine has");
  app.add_option("--seconds", settings.seconds, "of measuring a plan");
  app.add_flag("--all", settings.all, "every distinct call, not only those of 2% of the step or more");
  return measure_recipes(app, argc, argv, {kResNet20, kResNet50, kGpt, kGpt2Small},
                         [&](const reprise::Recipe& recipe) { report(recipe, settings); });
}
