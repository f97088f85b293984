// Measures the planner: published figures, an exhaustive judge, Chen et al.'s net, Llama-shaped
// chains, and the times of solving and packing. `make bench-plan` writes the results to a file that
// can be diffed. Results below a goal are marked and not omitted.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/bench/chain_judge.h"
#include "tests/bench/llama_chain.h"
#include "tests/planner/deep_resnet.h"
#include "tests/schedule_goldens.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/graph/cost.h"
#include "tools/plan/graph/fold.h"
#include "tools/plan/graph/link.h"
#include "tools/plan/layout/chain_layout.h"
#include "tools/plan/layout/pack_command.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/plan/schedule/revolve.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/plan/schedule/simulate.h"
#include "tools/plan/schedule/two_level_steps.h"

namespace reprise::bench {
namespace {

std::string results;

[[gnu::format(printf, 1, 2)]] void report(const char* format, ...) {
  char line[1000];
  va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  std::fputs(line, stdout);
  std::fflush(stdout);
  results += line;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Times {
  double best = 0, median = 0;
};

template <typename F>
Times time_of(const F& run) {
  constexpr int kRuns = 5;
  std::vector<double> seconds;
  for (int n = 0; n < kRuns; ++n) {
    const double start = seconds_now();
    run();
    seconds.push_back(seconds_now() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[kRuns / 2]};
}

// Returns the maximum memory that this process has used, in GiB.
double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1048576;
}

// ---- published figures --------------------------------------------------------------------------

// Reverses the steps first to last - 1, as Revolve does, and counts forwards. Checkpoints are kept
// in `slots` slots, one of which contains `first`.
struct CountedReversal {
  uint64_t forwards = 0;
  int kept = 1, max_kept = 1;  // checkpoints, including the input

  void reverse(int first, int last, int slots) {
    for (; last - first > 1; last = middle_of(first, last, slots)) {
      const int middle = middle_of(first, last, slots);
      forwards += static_cast<uint64_t>(middle - first);
      if (slots == 1) continue;  // no slot is free: the last step reads its input directly after it is computed
      max_kept = std::max(max_kept, ++kept);
      reverse(middle, last, slots - 1);
      --kept;
    }
  }
  static int middle_of(int first, int last, int slots) {
    return slots == 1
               ? last - 1
               : first +
                     static_cast<int>(revolve_split(static_cast<uint64_t>(last - first), static_cast<uint64_t>(slots)));
  }
};

void report_revolve() {
  constexpr int kSlots = 10, kSteps = 1000;
  constexpr uint64_t kTape = 1000;
  const auto recursion = extra_forwards_by_recursion(kSlots, kSteps);
  int formula = 0, simulated = 0, plans = 0, plan_cases = 0, optimal = 0, optimal_cases = 0;
  for (int l = 1; l <= kSteps; ++l) {
    for (int s = 1; s <= kSlots; ++s) {
      formula += revolve_extra_forwards(l, s) == recursion[s][l];
      CountedReversal reversal;
      reversal.reverse(0, l, s);
      simulated += reversal.forwards == recursion[s][l] && reversal.max_kept <= s;
    }
  }
  const auto agrees = [&](int l, int s, const char* strategy, uint64_t unit) {
    const Chain chain = unit_chain(l, kTape);
    const uint64_t memory = static_cast<uint64_t>(s) + kTape + 3;
    const Schedule plan = make_schedule(chain, {.strategy = strategy, .memory_bytes = memory, .unit = unit});
    const Simulation walked = simulate(chain, plan.actions);
    return plan.feasible && walked.valid && walked.peak_bytes <= memory &&
           walked.makespan - 3.0 * l == static_cast<double>(recursion[s][l]);
  };
  for (int l = 1; l <= kSteps; ++l) {
    for (int s = 1; s <= kSlots; ++s, ++plan_cases) plans += agrees(l, s, "revolve", 0);
  }
  for (const int l : {1, 2, 3, 5, 10, 20, 50, 100, 200}) {
    for (int s = 1; s <= kSlots; ++s, ++optimal_cases) optimal += agrees(l, s, "optimal", 1);
  }
  report("## Published figures\n\n| figure | agree | of |\n|---|---|---|\n");
  report("| t(s,l), s <= 10, l <= 1000: formula = dynamic programme | %d | %d |\n", formula, kSlots * kSteps);
  report("| ... = a simulated reversal within s slots | %d | %d |\n", simulated, kSlots * kSteps);
  report("| ... = `revolve`'s plan within s slots' bytes | %d | %d |\n", plans, plan_cases);
  report("| ... = `optimal`'s plan, nine l up to 200 | %d | %d |\n", optimal, optimal_cases);
}

void report_goldens() {
  const Chain chain = golden_chain();
  const std::map<uint64_t, std::pair<double, double>> golden = {{16, {INFINITY, INFINITY}},
                                                                {18, {80, 77}},
                                                                {20, {74, 70}},
                                                                {22, {71, 66}},
                                                                {26, {68, 65}},
                                                                {28, {66, 64}},
                                                                {32, {63, 62}}};
  int agree = 0;
  for (const auto& [memory, wanted] : golden) {
    for (const bool residues : {false, true}) {
      const Schedule plan = make_schedule(chain, {.memory_bytes = memory, .unit = 1, .residues = residues});
      agree += (plan.feasible ? plan.makespan : INFINITY) == (residues ? wanted.second : wanted.first);
    }
  }
  report("| PLANNING 4's golden chain, with and without residues | %d | 14 |\n", agree);
  const int hrevolve =
      (two_level_makespan({.steps = 10, .ram_slots = 1, .disk_slots = 1, .write_cost = 2, .read_cost = 2}) == 37) +
      (two_level_makespan({.steps = 11, .ram_slots = 2, .disk_slots = 1, .write_cost = 1, .read_cost = 1}) == 32) +
      (two_level_makespan({.steps = 51, .ram_slots = 3, .disk_slots = 10, .write_cost = 2, .read_cost = 2}) == 179);
  report("| H-Revolve's makespans | %d | 3 |\n\n", hrevolve);
}

void report_figures() {
  report_revolve();
  report_goldens();
}

// ---- the judge ----------------------------------------------------------------------------------

struct RandomShape {
  const char* name;
  uint64_t max_scratch;
  int max_tapes, modes;
};

Chain random_chain(uint64_t seed, const RandomShape& shape) {
  std::mt19937_64 random(seed);
  const auto upto = [&](uint64_t maximum) { return random() % (maximum + 1); };
  Chain chain{.input_bytes = upto(6), .links = {}};
  const int length = 2 + static_cast<int>(upto(shape.modes == 0 ? 3 : 2));
  for (int i = 0; i < length; ++i) {
    Link link{.name = "random",
              .forward_cost = static_cast<double>(1 + upto(9)),
              .boundary_bytes = i + 1 < length ? 1 + upto(6) : 0,
              .forward_scratch_bytes = upto(shape.max_scratch),
              .tapes = {},
              .residues = {}};
    uint64_t inner = upto(12);
    for (int k = 0; k < shape.modes; ++k) {
      link.residues.push_back(
          {.bytes = upto(inner), .forward_cost = std::max(0.0, link.forward_cost - static_cast<double>(upto(5)))});
    }
    double backward = static_cast<double>(1 + upto(12));
    for (uint64_t t = 0, tapes = 1 + upto(shape.max_tapes - 1); t < tapes; ++t) {
      link.tapes.push_back({.bytes = link.boundary_bytes + inner,
                            .backward_cost = backward,
                            .scratch_bytes = upto(shape.max_scratch),
                            .forward_scratch_bytes = t == 0 ? link.forward_scratch_bytes : upto(shape.max_scratch)});
      inner /= 2;
      backward += static_cast<double>(upto(4));
    }
    chain.links.push_back(link);
  }
  return chain;
}

struct JudgeTally {
  // `missed`: number of cases without a plan although one exists.
  int cases = 0, below = 0, faults = 0, missed = 0, above = 0, packed_above = 0;
  double sum_percent = 0, worst_percent = 0;
  uint64_t worst_seed = 0;
};

void judge_plan_of(const Chain& chain, uint64_t memory, uint64_t seed, JudgeTally& tally) {
  Schedule plan;
  try {
    plan = make_schedule(chain, {.memory_bytes = memory, .unit = 1});
  } catch (const std::logic_error&) {  // thrown by the planner's own check of its table
    ++tally.faults;
  }
  const double minimum = ChainJudge(chain, memory, true).min_makespan();
  const double claimed = plan.feasible ? plan.makespan : INFINITY;
  ++tally.cases;
  tally.packed_above += plan.feasible && layout_chain(chain, plan.actions).packed_bytes > memory;
  if (claimed < minimum) ++tally.below;
  tally.missed += !plan.feasible && minimum < INFINITY;
  if (!plan.feasible || claimed <= minimum) return;
  const double percent = 100 * (claimed / minimum - 1);
  ++tally.above;
  tally.sum_percent += percent;
  if (percent > tally.worst_percent) tally.worst_percent = percent, tally.worst_seed = seed;
}

// Judges plans at one random budget for each chain. If `at_the_smallest`, judges them at the
// smallest budget for which `optimal` or `none` has a plan, and at one byte more.
JudgeTally judge_shape(const RandomShape& shape, uint64_t first_seed, uint64_t chains, bool at_the_smallest) {
  JudgeTally tally;
  for (uint64_t seed = first_seed; seed < first_seed + chains; ++seed) {
    const Chain chain = random_chain(seed, shape);
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory;
    const uint64_t largest = make_schedule(chain, {.strategy = "none"}).peak_bytes;
    const uint64_t min_memory = std::min(smallest, largest);
    if (at_the_smallest) {
      judge_plan_of(chain, min_memory, seed, tally);
      judge_plan_of(chain, min_memory + 1, seed, tally);
    } else {
      judge_plan_of(chain, min_memory + std::mt19937_64(seed)() % (largest - min_memory + 1), seed, tally);
    }
  }
  return tally;
}

void report_tally(const char* name, const JudgeTally& tally) {
  report("| %s | %d | %d | %d | %d | %d | %.1f%% | %.1f%% | %.1f%% (%llu) |\n", name, tally.cases, tally.below,
         tally.packed_above, tally.faults, tally.missed, 100.0 * tally.above / tally.cases,
         tally.above ? tally.sum_percent / tally.above : 0.0, tally.worst_percent,
         static_cast<unsigned long long>(tally.worst_seed));
}

void judge_shapes(const std::vector<RandomShape>& shapes, uint64_t first_seed, uint64_t chains, bool at_the_smallest) {
  report(
      "| scratch, tapes, modes | cases | below optimum | packed > M | faults | no plan found | above optimum | mean "
      "excess | worst (seed) |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  JudgeTally all;
  for (const RandomShape& shape : shapes) {
    const JudgeTally t = judge_shape(shape, first_seed, chains, at_the_smallest);
    first_seed += chains;
    report_tally(shape.name, t);
    all.cases += t.cases, all.below += t.below, all.above += t.above, all.packed_above += t.packed_above,
        all.faults += t.faults;
    all.missed += t.missed, all.sum_percent += t.sum_percent;
    if (t.worst_percent > all.worst_percent) all.worst_percent = t.worst_percent, all.worst_seed = t.worst_seed;
  }
  report_tally("all", all);
  report("\n");
}

void report_judge() {
  report(
      "## Against an exhaustive judge\n\nRandom chains of 2 to 5 links (to 4 with residues), one random budget each. "
      "The judge searches every order of forwards, recordings,\n"
      "backwards and frees; it may also drop a residue or a tape early. `above`: of those above the true optimum, the "
      "mean and the\n"
      "worst excess of the makespan. `faults`: the planner refused its own plan. Tapes are 1 to 18 bytes.\n\n");
  judge_shapes({{"none, 1, 0", 0, 1, 0},
                {"none, 1-2, 2", 0, 2, 2},
                {"to 3, 1, 0", 3, 1, 0},
                {"to 3, 1-2, 2", 3, 2, 2},
                {"to 10, 1-2, 1", 10, 2, 1},
                {"to 40, 1, 0", 40, 1, 0},
                {"to 40, 1-2, 2", 40, 2, 2},
                {"to 40, 1-3, 3", 40, 3, 3}},
               1, 1250, false);
  report(
      "The same for chains of 2 to 4 links with residues, 1000 of a kind, at their two smallest budgets each: the "
      "smallest that fits, and one\n"
      "byte more.\n\n");
  judge_shapes({{"none, 1-2, 2", 0, 2, 2},
                {"to 3, 1-2, 2", 3, 2, 2},
                {"to 10, 1-2, 1", 10, 2, 1},
                {"to 40, 1-2, 2", 40, 2, 2},
                {"to 40, 1-3, 3", 40, 3, 3}},
               20001, 1000, true);
}

// ---- Chen et al.'s net --------------------------------------------------------------------------

Chain deep_chain(const BackendRules& rules, bool folds) {
  Graph graph = build_model(deep_resnet(kDeepUnits));
  ChainBodies bodies = folds ? cut_into_folded_links(graph) : cut_into_links(graph);
  solve_links(graph, bodies.links, rules, convolution_flops);
  return chain_of(graph, bodies.links);
}

double forward_backward(const Chain& chain) {
  double cost = 0;
  for (const Link& link : chain.links) cost += link.forward_cost + link.tapes[0].backward_cost;
  return cost;
}

std::string extra_text(const Chain& chain, const Schedule& plan) {
  if (!plan.feasible) return "does not fit";
  char text[40];
  std::snprintf(text, sizeof text, "+%.1f%%", 100 * (plan.makespan / forward_backward(chain) - 1));
  return text;
}

void report_deep_resnet() {
  const double start = seconds_now();
  const Chain with = deep_chain(backend_of({}), true);
  const double solved = seconds_now() - start;
  const Chain without = deep_chain(kNoScratch, false), folded = deep_chain(kNoScratch, true);
  report(
      "## [15,120,180,15], batch 32, 224 x 224: feature maps\n\nExtra time in convolution flops, of a step's forward "
      "and backward (backward = two forwards). `aim`\n"
      "is PLANNING 5's figure, of the net as it is written, without kernels' scratch: `residues` is the column to "
      "compare. What is trained\n"
      "folds batch-norm, ReLU and addition into their readers (`folded`), and its chain area holds the kernels' "
      "scratch too (`scratch`).\n"
      "%d links; graph and links solved in %.2f s. Storing everything takes %s as written, %s folded, %s with\n"
      "scratch. `no` stands for the column before it without residues.\n\n",
      with.length(), solved, bytes_text(make_schedule(without, {.strategy = "none"}).peak_bytes).c_str(),
      bytes_text(make_schedule(folded, {.strategy = "none"}).peak_bytes).c_str(),
      bytes_text(make_schedule(with, {.strategy = "none"}).peak_bytes).c_str());
  report("| budget GiB | aim | residues | met | no residues | folded | scratch | no | plan s | packed/peak | moved |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|\n");
  double before = INFINITY;
  std::string reversals;
  const std::pair<double, double> figures[] = {{0.66, 74}, {0.75, 53}, {1.2, 34}, {1.8, 28},
                                               {3.0, 20},  {4.1, 16},  {5.3, 12}, {7.0, 7}};
  for (const auto& [gib, percent] : figures) {
    const uint64_t memory = static_cast<uint64_t>(gib * 1073741824.0);
    const double begin = seconds_now();
    const Schedule plan = make_schedule(without, {.memory_bytes = memory});
    const double seconds = seconds_now() - begin;
    // The published figures are whole per cent, so the planner's figure may be higher by less than
    // half a per cent.
    const bool met = plan.feasible && 100 * (plan.makespan / forward_backward(without) - 1) < percent + 0.5;
    if (plan.feasible && plan.makespan > before * (1 + 1e-9)) reversals += " " + std::to_string(gib).substr(0, 4);
    if (plan.feasible) before = plan.makespan;
    std::string packed = "-", moved = "-";
    if (plan.feasible) {
      const ChainLayout layout = layout_chain(without, plan.actions);
      packed =
          std::to_string(static_cast<double>(layout.packed_bytes) / static_cast<double>(plan.peak_bytes)).substr(0, 6);
      moved = bytes_text(layout.move_bytes);
    }
    report("| %.2f | +%.0f%% | %s | %s | %s | %s | %s | %s | %.2f | %s | %s |\n", gib, percent,
           extra_text(without, plan).c_str(), met ? "yes" : "**short**",
           extra_text(without, make_schedule(without, {.memory_bytes = memory, .residues = false})).c_str(),
           extra_text(folded, make_schedule(folded, {.memory_bytes = memory})).c_str(),
           extra_text(with, make_schedule(with, {.memory_bytes = memory})).c_str(),
           extra_text(with, make_schedule(with, {.memory_bytes = memory, .residues = false})).c_str(), seconds,
           packed.c_str(), moved.c_str());
  }
  report("\nBudgets (GiB) whose plan is slower than a smaller budget's:%s.\n",
         reversals.empty() ? " none" : reversals.c_str());
  report("\n| solve time at 7 GiB | best s | median s |\n|---|---|---|\n");
  const uint64_t memory = uint64_t{7} << 30;
  for (const auto& [name, unit] : std::map<std::string, uint64_t>{{"unit 0.5% of memory", memory / 200},
                                                                  {"unit 0.1% of memory", memory / 1000},
                                                                  {"units chosen", 0}}) {
    const Times t = time_of([&, u = unit] { make_schedule(without, {.memory_bytes = memory, .unit = u}); });
    report("| %s | %.2f | %.2f |\n", name.c_str(), t.best, t.median);
  }
  report("| peak resident memory of this process so far | %.2f GiB | |\n\n", peak_gib());
}

// ---- distinct links -----------------------------------------------------------------------------

// Returns a chain in which no two links have an equal size or cost, and whose sizes are not
// multiples of a unit.
Chain distinct_chain(int length) {
  std::mt19937_64 random(length);
  const auto between = [&](uint64_t minimum, uint64_t maximum) { return minimum + random() % (maximum - minimum + 1); };
  Chain chain{.input_bytes = between(1u << 20, 32u << 20), .links = {}};
  for (int i = 0; i < length; ++i) {
    const double forward = static_cast<double>(between(1u << 20, 1u << 24));
    Link link{.name = "distinct",
              .forward_cost = forward,
              .boundary_bytes = i + 1 < length ? between(1u << 20, 32u << 20) : 0,
              .forward_scratch_bytes = between(0, 8u << 20),
              .tapes = {},
              .residues = {}};
    const uint64_t inner = between(8u << 20, 96u << 20);
    for (const uint64_t divisor : {1u, 2u, 8u}) {
      link.tapes.push_back({.bytes = link.boundary_bytes + inner / divisor,
                            .backward_cost = forward * (2 + 0.1 * static_cast<double>(divisor - 1)),
                            .scratch_bytes = between(0, 8u << 20),
                            .forward_scratch_bytes = link.forward_scratch_bytes});
    }
    for (const uint64_t divisor : {16u, 8u, 2u}) {
      link.residues.push_back(
          {.bytes = inner / divisor, .forward_cost = forward * static_cast<double>(between(0, divisor)) / 16});
    }
    chain.links.push_back(std::move(link));
  }
  return chain;
}

void report_distinct_links() {
  constexpr int kLinks = 1000;
  const Chain chain = distinct_chain(kLinks);
  const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory,
                 largest = make_schedule(chain, {.strategy = "none"}).peak_bytes;
  report(
      "## %d distinct links, 3 tapes and 3 residue modes\n\nRandom sizes that no unit divides, units chosen. Budgets "
      "between the smallest and storing everything, %s.\n\n"
      "| memory | residues | plan s | packed/peak | no residues | peak resident memory so far "
      "|\n|---|---|---|---|---|---|\n",
      kLinks, bytes_text(largest).c_str());
  for (const double share : {0.01, 0.05, 0.2, 0.5}) {
    const uint64_t memory = smallest + static_cast<uint64_t>(share * static_cast<double>(largest - smallest));
    const double begin = seconds_now();
    const Schedule plan = make_schedule(chain, {.memory_bytes = memory});
    const double seconds = seconds_now() - begin;
    const double peak = peak_gib();
    report("| %s | %s | %.2f | %.4f | %s | %.2f GiB |\n", bytes_text(memory).c_str(), extra_text(chain, plan).c_str(),
           seconds,
           static_cast<double>(layout_chain(chain, plan.actions).packed_bytes) / static_cast<double>(plan.peak_bytes),
           extra_text(chain, make_schedule(chain, {.memory_bytes = memory, .residues = false})).c_str(), peak);
  }
  report("\n");
}

// ---- Llama --------------------------------------------------------------------------------------

void report_llama() {
  report(
      "## Llama-shaped chain: 32 layers, hidden 4096, inner 11008, vocabulary 32000, batch 1, 2-byte values\n\n"
      "From shapes and flops (cost: flops + %g per byte); no kernel scratch. Budgets between the smallest and storing "
      "everything.\n\n",
      kFlopsPerByte);
  for (const uint64_t sequence : {2048, 8192}) {
    const Chain chain = llama_chain({.sequence = sequence});
    const uint64_t smallest = make_schedule(chain, {.memory_bytes = 0}).smallest_memory,
                   largest = make_schedule(chain, {.strategy = "none"}).peak_bytes;
    report(
        "Sequence %llu: %zu + %zu tapes in a half; smallest %s, everything %s.\n\n| memory | of everything | residues "
        "| no residues | plan s |\n|---|---|---|---|---|\n",
        static_cast<unsigned long long>(sequence), chain.links[1].tapes.size(), chain.links[2].tapes.size(),
        bytes_text(smallest).c_str(), bytes_text(largest).c_str());
    for (const double share : {0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9}) {
      const uint64_t memory = smallest + static_cast<uint64_t>(share * static_cast<double>(largest - smallest));
      const double begin = seconds_now();
      const Schedule plan = make_schedule(chain, {.memory_bytes = memory});
      const double seconds = seconds_now() - begin;
      report("| %s | %.0f%% | %s | %s | %.2f |\n", bytes_text(memory).c_str(),
             100.0 * static_cast<double>(memory) / static_cast<double>(largest), extra_text(chain, plan).c_str(),
             extra_text(chain, make_schedule(chain, {.memory_bytes = memory, .residues = false})).c_str(), seconds);
    }
    report("\n");
  }
}

// ---- whole plans over budgets -------------------------------------------------------------------

// Returns the bytes that a program's rows write to its slots. Moves do not count.
uint64_t written_bytes(const OwnedProgram& program) {
  uint64_t bytes = 0;
  for (const Row& row : program.rows) {
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    for (uint32_t a = 0; a < kernel.arity() && row.op != Op::kMove; ++a) {
      const Ref ref = program.arguments[row.first_argument + a];
      const bool writes =
          kernel.arguments[a].role == Role::kOutput && ref != kNoRef && ref_region(ref) == Region::kProgram;
      if (writes) bytes += program.slots[ref_index(ref)].tensor.bytes;
    }
  }
  return bytes;
}

void report_sweep_of(const std::string& name, const Recipe& recipe) {
  SolvedModel model = solve_model(recipe);
  model.recipe.feature_map_budget_bytes.reset();
  const ScheduleRequest request{.strategy = "optimal"};
  const uint64_t minimum = smallest_budget(model, request);
  constexpr uint64_t kPoints = 20;
  int over = 0, reversed = 0, above_peak = 0;
  double before = INFINITY, moved = 0, seconds = 0;
  for (uint64_t p = 0; p < kPoints; ++p) {
    model.recipe.budget_bytes = minimum + (model.store_all_bytes - minimum) / (kPoints - 1) * p;
    const double start = seconds_now();
    const PlannedModel planned = plan_model(model, request);
    seconds += seconds_now() - start;
    over += !planned.fits;
    if (!planned.fits) continue;
    above_peak += planned.packed_bytes > planned.schedule.peak_bytes;
    reversed += planned.extra_forward_cost > before * (1 + 1e-12);
    before = planned.extra_forward_cost;
    moved += static_cast<double>(planned.move_bytes) / static_cast<double>(written_bytes(planned.plan.programs[0])) /
             kPoints;
  }
  report("| %s | %s | %s | %d | %d | %d | %.2f%% | %.2f |\n", name.c_str(), bytes_text(minimum).c_str(),
         bytes_text(model.store_all_bytes).c_str(), over, above_peak, reversed, 100 * moved, seconds / kPoints);
}

void report_sweeps() {
  report(
      "## Twenty budgets from the smallest to storing everything, whole plans\n\n"
      "Plans of the twenty that are packed above their budget, above their peak, and slower than a smaller budget's; "
      "the share of the bytes\n"
      "written that is moved, and the seconds of planning, means of twenty.\n\n"
      "| model | smallest | everything | above budget | above peak | slower | moved | plan s |\n"
      "|---|---|---|---|---|---|---|---|\n");
  report_sweep_of("ResNet-20, Fashion-MNIST", read_recipe("tools/recipes/resnet20-fashion.json"));
  report_sweep_of("GPT, text", read_recipe("tools/recipes/gpt-text.json"));
  report_sweep_of("ResNet-50, 224, batch 16", deep_resnet({3, 4, 6, 3}, 16));
  report_sweep_of("[15,120,180,15], 224, batch 32", deep_resnet(kDeepUnits));
  report("\n");
}

// ---- packing ------------------------------------------------------------------------------------

void report_packing() {
  report(
      "## Packing: minimalloc's instances at 1048576\n\n| instance | fits | packed | lower bound | best s | median s "
      "|\n|---|---|---|---|---|---|\n");
  for (char name = 'A'; name <= 'K'; ++name) {
    const PackRequest request{.problem_path = std::string("tests/data/minimalloc/") + name + ".1048576.csv",
                              .capacity = 1048576,
                              .seconds = 10};
    nlohmann::json answer;
    const Times t = time_of([&] { answer = run_pack(request); });
    report("| %c | %s | %s | %s | %.3f | %.3f |\n", name, answer.at("feasible").get<bool>() ? "yes" : "**no**",
           answer.at("packed").dump().c_str(), answer.at("lower_bound").dump().c_str(), t.best, t.median);
  }
  report("\n");
}

}  // namespace
}  // namespace reprise::bench

// Usage: plan_bench [FILE or - [SECTION...]]. Runs the named sections, or all sections if none is
// named. Writes the report to FILE, unless it is "-".
int main(int argc, char** argv) {
  using namespace reprise::bench;
  const std::pair<std::string, void (*)()> sections[] = {{"figures", report_figures},
                                                         {"judge", report_judge},
                                                         {"resnet", report_deep_resnet},
                                                         {"distinct", report_distinct_links},
                                                         {"llama", report_llama},
                                                         {"sweep", report_sweeps},
                                                         {"pack", report_packing}};
  report(
      "# The planner's numbers\n\nWritten by `make bench-plan`. Times are of the machine it ran on, best and median of "
      "five; all else is the same everywhere.\n\n");
  for (const auto& [name, run] : sections) {
    if (argc <= 2 || std::find(argv + 2, argv + argc, name) != argv + argc) run();
  }
  if (argc > 1 && std::string(argv[1]) != "-") reprise::write_file(argv[1], results);
  return 0;
}
