// Simulates which cache lines each kernel of a recipe's step moves between the caches of several
// cores. The result is an exact count, the same on every machine and under any load. If a core must
// move more per flop than its caches deliver, it cannot reach its peak, whichever tile it uses.
//
//   traffic_bench [--kernels avx512|avx2|neon] [--as-callgrind] [RECIPE...]
//
// Default: every distinct call of ResNet-50 and of GPT-2 small. It prints a line of tab-separated
// fields for each distinct call, and traffic.py makes the table. If it is linked with kernels that
// report no accesses (Makefile), it counts no lines. callgrind then counts the instructions of each
// call, which valgrind's header marks.
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name)
#endif

#include "lib/cpu/cpu_backend.h"
#include "ports/linux/linux_port.h"
#include "tests/bench/cache_model.h"
#include "tests/bench/neon_shape_tile.h"
#include "tests/bench/recipe_command.h"
#include "tests/bench/traffic_hooks.h"
#include "tools/plan/costs/step_cost.h"
#include "tools/plan/planning/planner.h"
#include "tools/run/profiling/measure.h"

extern "C" const char __executable_start, _end;  // start and end of this program, which the linker defines

namespace reprise::bench {
namespace {

// Every distinct kernel call of ResNet-50 and of GPT-2 small. In ResNet-50 all units of a stage
// after the first are equal, and in GPT-2 all layers are.
constexpr const char* kResNetCalls =
    R"({"name": "resnet50", "model": {"family": "resnet", "block": "bottleneck", "units": [2, 2, 2, 2], "width": 64, "stem": "imagenet",
    "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 2, "steps": 1, "seed": 1,
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}})";
constexpr const char* kGptCalls =
    R"({"name": "gpt2-small", "model": {"family": "gpt2", "n_layer": 1, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "data": {"kind": "synthetic"}, "batch": 1, "sequence": 256, "steps": 1, "seed": 1, "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.01}})";

// Counts for the rows of one call, or for all rows.
struct Count {
  uint64_t runs = 0, accesses = 0;
  CallCost cost;
  std::vector<CoreTraffic> cores;

  void add_since(const Count& before, const Count& now) {
    ++runs;
    accesses += now.accesses - before.accesses;
    cores.resize(now.cores.size());
    for (size_t c = 0; c < cores.size(); ++c) {
      for (size_t l = 0; l < kCacheLevels; ++l) {
        cores[c][l].fetched += now.cores[c][l].fetched - before.cores[c][l].fetched;
        cores[c][l].written += now.cores[c][l].written - before.cores[c][l].written;
      }
    }
  }
};

// A range of addresses whose lines are numbered from its start, because addresses differ from run
// to run.
struct Place {
  uint64_t begin, end;
  uint32_t first_line;

  bool holds(uint64_t address) const { return address - begin < end - begin; }
  uint32_t line(uint64_t address) const { return first_line + static_cast<uint32_t>((address - begin) / kLineBytes); }
};
constexpr uint32_t kStackLine = uint32_t{1} << 30, kProgramLine = kStackLine + (uint32_t{1} << 28),
                   kHeapLine = kProgramLine + (uint32_t{1} << 28);
constexpr uint64_t kStackBytes = uint64_t{8} << 20, kStackAlignment = uint64_t{1} << 16;
uint64_t stack_top = 0;  // a multiple of kStackAlignment, above all frames of kernels

// Counts the reads and writes of the kernels, and passes their lines to the simulated caches.
class Counter {
 public:
  Counter(const Arena& arena, std::span<const ModelledCore> cores) : cores_(cores.begin(), cores.end()) {
    const uint64_t base = reinterpret_cast<uint64_t>(arena.base.for_kernels);
    arena_ = {base, base + arena.bytes, 0};
    stack_ = {stack_top - kStackBytes, stack_top, kStackLine};
    program_ = {reinterpret_cast<uint64_t>(&__executable_start), reinterpret_cast<uint64_t>(&_end), kProgramLine};
  }
  void take(uint64_t address, uint64_t bytes, bool writes) {
    if (bytes == 0) return;
    ++accesses_;
    for (const Place* place : {&arena_, &stack_, &program_}) {
      if (!place->holds(address)) continue;
      const uint32_t last = place->line(address + bytes - 1);
      for (uint32_t line = place->line(address); line <= last; ++line) touch(line, writes);
      return;
    }
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line)
      touch(heap_line(line), writes);
  }
  Count so_far() const {
    Count count;
    count.accesses = accesses_;
    for (const CacheModel& core : cores_) count.cores.push_back(core.traffic());
    return count;
  }

 private:
  // Records an access. Ignores an access to the same line as the previous access, because the line
  // is already the most recent in every cache. But the first of these accesses that writes is
  // recorded.
  void touch(uint32_t line, bool writes) {
    if (line == last_line_ && writes <= last_writes_) return;
    last_line_ = line;
    last_writes_ = writes;
    for (CacheModel& core : cores_) core.touch(line, writes);
  }

  // Returns the number of a line of the plan's tables, which are small and read once in a call.
  // Lines are numbered in the order of their first accesses.
  uint32_t heap_line(uint64_t line) {
    return kHeapLine + heap_.emplace(line, static_cast<uint32_t>(heap_.size())).first->second;
  }

  Place arena_, stack_, program_;
  std::map<uint64_t, uint32_t> heap_;
  uint64_t accesses_ = 0;
  uint32_t last_line_ = ~uint32_t{0};
  bool last_writes_ = false;
  std::vector<CacheModel> cores_;
};
Counter* counter = nullptr;

// A step whose rows are counted. It does little work between rows, because callgrind's simulated
// caches also record the accesses of this work.
class CountedStep {
 public:
  explicit CountedStep(const OwnedPlan& plan) {
    for (size_t p = 0; p < kProgramCount; ++p) {
      for (const Row& row : plan.programs[p].rows) add_row(plan, p, row);
    }
  }
  const std::map<std::string, Count>& run(PlanRun& run, Counter& all) {
    counter = &all;
    run.observe({this, [](void* self, ProgramId, uint32_t) { static_cast<CountedStep*>(self)->begin(); },
                 [](void* self, ProgramId id, uint32_t row) { static_cast<CountedStep*>(self)->end(id, row); }});
    CALLGRIND_START_INSTRUMENTATION;
    run.step();
    return calls_;
  }

 private:
  struct CountedRow {
    std::string name;
    Count* call;
    CallCost cost;
  };

  void add_row(const OwnedPlan& plan, size_t program, const Row& row) {
    const std::string key = row_key(plan, plan.programs[program], row);
    rows_[program].push_back({plan.name + "\t" + key, &calls_[key],
                              kernel_cost(kernel_call(plan, plan.programs[program], row), plan.attributes)});
  }
  void begin() {
    before_ = counter->so_far();
    CALLGRIND_ZERO_STATS;
    memory_access = [](uint64_t address, uint64_t bytes, bool writes) { counter->take(address, bytes, writes); };
  }
  void end(ProgramId id, uint32_t r) {
    memory_access = nullptr;
    const CountedRow& row = rows_[static_cast<size_t>(id)][r];
    CALLGRIND_DUMP_STATS_AT(row.name.c_str());
    row.call->add_since(before_, counter->so_far());
    row.call->cost.flops += row.cost.flops;
    row.call->cost.bytes += row.cost.bytes;
  }

  std::map<std::string, Count> calls_;
  std::vector<CountedRow> rows_[kProgramCount];
  Count before_;
};

void print_call(const char* recipe, const char* kernel_set, const std::string& key, const Count& count) {
  std::printf("%s\t%s\t%s\t%llu\t%.0f\t%.0f\t%llu", recipe, kernel_set, key.c_str(),
              static_cast<unsigned long long>(count.runs), count.cost.flops, count.cost.bytes,
              static_cast<unsigned long long>(count.accesses));
  for (const CoreTraffic& core : count.cores) {
    for (const LinesMoved& lines : core)
      std::printf("\t%llu\t%llu", static_cast<unsigned long long>(lines.fetched),
                  static_cast<unsigned long long>(lines.written));
  }
  std::printf("\n");
}

// A set of kernels, and the cores on which it is simulated. The set uses this library's own tiles,
// because BLIS's tiles do not report accesses.
struct KernelSet {
  const char* name;
  VectorLevel level;
  GemmTileChoice tile;
  std::span<const ModelledCore> cores;
};
constexpr KernelSet kKernelSets[] = {{"neon", VectorLevel::kBaseline, GemmTileChoice::kBaseline, kArmCores},
                                     {"avx2", VectorLevel::kAvx2, GemmTileChoice::kAvx2, kX86Cores},
                                     {"avx512", VectorLevel::kAvx512, GemmTileChoice::kAvx512, kX86Cores}};

// Bytes of the complete third-level cache of Zen 4 and Zen 5. No other core uses the number.
constexpr uint64_t kWholeThird = uint64_t{32} << 20;

const KernelSet& kernel_set_named(const std::string& name) {
  for (const KernelSet& set : kKernelSets) {
    if (name == set.name) return set;
  }
  throw UserError("traffic_bench: --kernels: there are no kernels \"" + name + "\"", UserError::kUsage);
}
// Chooses the blocking of the set's kernels for `core`. A block may use the whole third level.
void choose_machine(CpuMachine& machine, const KernelSet& set, const ModelledCore& core) {
  if (!choose_cpu_machine(machine, set.tile, set.level).ok())
    throw UserError(std::string("traffic_bench: --kernels: this processor lacks ") + set.name);
  if (set.cores.data() == kArmCores) machine.tile = neon_shape_tile();
  const CpuCaches caches{core.levels[1].kibibytes * uint64_t{1024}, kWholeThird};
  machine.blocking = choose_blocking(*core.core, caches, machine.tile);
}

struct Settings {
  std::string kernels = "avx2";
  bool as_callgrind = false;
};

void report(const Recipe& recipe, const Settings& settings) {
  const KernelSet& set = kernel_set_named(settings.kernels);
  const SolvedModel model = solve_model(recipe);
  ScheduleRequest none;
  none.strategy = "none";
  const OwnedPlan plan = plan_model(model, none).plan;
  std::map<std::string, Count> calls;
  for (const ModelledCore& core : settings.as_callgrind ? std::span<const ModelledCore>(kAsCallgrind) : set.cores) {
    CpuMachine machine;
    choose_machine(machine, set, core);
    const Backend backend = cpu_backend(machine);
    PlanRun run(linux_port(), backend, recipe, plan, 1);
    CountedStep step(plan);
    Counter all(run.trainer().arena, {&core, 1});
    for (const auto& [key, count] : step.run(run, all)) {
      if (count.runs == 0) continue;
      Count& joined = calls.try_emplace(key, count).first->second;
      if (&core != set.cores.data() && !settings.as_callgrind) joined.cores.push_back(count.cores.front());
    }
  }
  for (const auto& [key, count] : calls) print_call(recipe.name.c_str(), set.name, key, count);
  std::fflush(stdout);
}

[[gnu::noinline]] int run_command(int argc, char** argv) {
  CLI::App app("Lines that kernels move between caches, simulated", "traffic_bench");
  Settings settings;
  app.add_option("--kernels", settings.kernels,
                 "avx512, avx2, or neon: what AArch64 runs, in vectors of this processor");
  app.add_flag("--as-callgrind", settings.as_callgrind, "one core, of the caches that callgrind simulates");
  return measure_recipes(app, argc, argv, {kResNetCalls, kGptCalls},
                         [&](const Recipe& recipe) { report(recipe, settings); });
}

// Runs the command with its frames below a multiple of kStackAlignment. So each frame has the same
// offset from this multiple in every run.
[[gnu::noinline]] int run_on_aligned_stack(int argc, char** argv) {
  const uint64_t frame = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  stack_top = frame / kStackAlignment * kStackAlignment;
  volatile char* const skipped = static_cast<volatile char*>(__builtin_alloca(frame - stack_top + 1));
  skipped[0] = 0;
  return run_command(argc, argv);
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) { return reprise::bench::run_on_aligned_stack(argc, argv); }
