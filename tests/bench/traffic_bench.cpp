// Which bytes each kernel of a recipe's step moves between the caches of several cores, by simulation: an exact count, the same on every
// machine and under any load. A core that must move more per flop than its caches deliver cannot reach its peak, whatever its tile is.
//
//   traffic_bench [--level baseline|avx2|avx512] [--calls] [RECIPE...]
//
// Default: the distinct calls of ResNet-50 (one image) and of GPT-2 small (a layer, 256 tokens), on one worker. --calls: every distinct call, not the
// sums of each kernel alone. `make traffic` writes TRAFFIC.md.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/cpu/cpu_backend.h"
#include "ports/linux/linux_port.h"
#include "tests/bench/cache_model.h"
#include "tests/bench/recipe_command.h"
#include "tests/bench/traffic_hooks.h"
#include "tools/planning/planner.h"
#include "tools/planning/step_cost.h"
#include "tools/profiling/measure.h"

namespace reprise::bench {
namespace {

constexpr size_t kCores = std::size(kModelledCores);

// Every distinct kernel call of ResNet-50, whose stages repeat their second unit, and of GPT-2 small.
constexpr const char* kResNetCalls =
    R"({"name": "resnet50-calls", "model": {"family": "resnet", "block": "bottleneck", "units": [2, 2, 2, 2], "width": 64, "stem": "imagenet",
    "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 1, "steps": 1, "seed": 1,
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}})";
constexpr const char* kGptCalls =
    R"({"name": "gpt2-small-calls", "model": {"family": "gpt2", "n_layer": 1, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "data": {"kind": "synthetic"}, "batch": 1, "sequence": 256, "steps": 1, "seed": 1, "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.01}})";

struct Settings {
  std::string level = "avx2";
  bool calls = false;
};

// What the rows of one name did.
struct Count {
  uint64_t runs = 0, accesses = 0;
  double flops = 0;
  std::array<std::array<uint64_t, kCacheLevels>, kCores> lines = {};

  void add(const Count& other) {
    runs += other.runs;
    accesses += other.accesses;
    flops += other.flops;
    for (size_t c = 0; c < kCores; ++c) {
      for (size_t l = 0; l < kCacheLevels; ++l) lines[c][l] += other.lines[c][l];
    }
  }
};

// All that has been read and written so far.
struct Counter {
  std::vector<CacheModel> cores{std::begin(kModelledCores), std::end(kModelledCores)};
  uint64_t accesses = 0;

  void take(uint64_t address, uint64_t bytes, bool writes) {
    if (bytes == 0) return;
    ++accesses;
    for (uint64_t line = address / kLineBytes; line <= (address + bytes - 1) / kLineBytes; ++line) {
      for (CacheModel& core : cores) core.touch(line, writes);
    }
  }
  Count so_far() const {
    Count count;
    count.accesses = accesses;
    for (size_t c = 0; c < kCores; ++c) count.lines[c] = cores[c].moved();
    return count;
  }
};
Counter* counter = nullptr;

class CountedStep {
 public:
  explicit CountedStep(const OwnedPlan& plan) : plan_(plan) { counter = &counter_; }
  ~CountedStep() { memory_access = nullptr; }

  RowObserver observer() {
    return {this, [](void* self, ProgramId, uint32_t) { static_cast<CountedStep*>(self)->begin(); },
            [](void* self, ProgramId id, uint32_t row) { static_cast<CountedStep*>(self)->end(id, row); }};
  }
  const std::map<std::string, Count>& calls() const { return calls_; }

 private:
  void begin() {
    before_ = counter_.so_far();
    memory_access = [](uint64_t address, uint64_t bytes, bool writes) { counter->take(address, bytes, writes); };
  }
  void end(ProgramId id, uint32_t r) {
    memory_access = nullptr;
    const OwnedProgram& program = plan_.program(id);
    const Row& row = program.rows[r];
    Count count = counter_.so_far();
    count.accesses -= before_.accesses;
    for (size_t c = 0; c < kCores; ++c) {
      for (size_t l = 0; l < kCacheLevels; ++l) count.lines[c][l] -= before_.lines[c][l];
    }
    count.runs = 1;
    count.flops = kernel_cost(kernel_call(plan_, program, row), plan_.attributes).flops;
    calls_[row_key(plan_, program, row)].add(count);
  }

  const OwnedPlan& plan_;
  Counter counter_;
  Count before_;
  std::map<std::string, Count> calls_;
};

std::map<std::string, Count> by_kernel(const std::map<std::string, Count>& calls) {
  std::map<std::string, Count> kernels;
  for (const auto& [key, count] : calls) kernels[key.substr(0, key.find(' '))].add(count);
  return kernels;
}

// Bytes per flop would be mostly zeros behind the point.
void print_table(const char* title, const std::map<std::string, Count>& counts) {
  std::printf("\n| %s | runs | MFLOP | flops an access |", title);
  for (const ModelledCore& core : kModelledCores) std::printf(" %s L2, L3, memory |", core.name);
  std::printf("\n|---|---:|---:|---:|");
  for (size_t c = 0; c < kCores; ++c) std::printf("---:|");
  std::printf("\n");
  for (const auto& [name, count] : counts) {
    if (count.flops < 1e6) continue;
    std::printf("| %s | %llu | %.1f | %.1f |", name.c_str(), static_cast<unsigned long long>(count.runs), count.flops / 1e6, count.flops / static_cast<double>(count.accesses));
    for (const auto& lines : count.lines) {
      for (size_t l = 0; l < kCacheLevels; ++l) std::printf("%s%.1f", l == 0 ? " " : ", ", 1e3 * kLineBytes * static_cast<double>(lines[l]) / count.flops);
      std::printf(" |");
    }
    std::printf("\n");
  }
}

VectorLevel level_named(const std::string& name) {
  for (const VectorLevel level : {VectorLevel::kBaseline, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (name == vector_level_name(level)) return level;
  }
  throw UserError("traffic_bench: --level: no level is called \"" + name + "\"", UserError::kUsage);
}

GemmTileChoice tile_of(VectorLevel level) {
  return level == VectorLevel::kAvx512 ? GemmTileChoice::kAvx512 : level == VectorLevel::kAvx2 ? GemmTileChoice::kAvx2 : GemmTileChoice::kBaseline;
}

void report(const Recipe& recipe, const Settings& settings) {
  CpuMachine machine;
  const VectorLevel level = level_named(settings.level);
  if (!choose_cpu_machine(machine, tile_of(level), level).ok()) throw UserError("traffic_bench: this processor lacks " + settings.level);
  const Backend backend = cpu_backend(machine);
  const SolvedModel model = solve_model(recipe);
  ScheduleRequest none;
  none.strategy = "none";
  const OwnedPlan plan = plan_model(model, none).plan;
  PlanRun run(linux_port(), backend, recipe, plan, 1);
  CountedStep step(plan);
  run.observe(step.observer());
  run.step();
  std::printf("\n## %s, kernels %s\n", recipe.name.c_str(), machine.kernel_set);
  print_table("kernel", by_kernel(step.calls()));
  if (settings.calls) print_table("call", step.calls());
  std::fflush(stdout);
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise::bench;
  CLI::App app("Bytes that kernels move between caches, simulated", "traffic_bench");
  Settings settings;
  app.add_option("--level", settings.level, "vectors of the kernels: baseline, avx2 or avx512");
  app.add_flag("--calls", settings.calls, "every distinct call too");
  return measure_recipes(app, argc, argv, {kResNetCalls, kGptCalls}, [&](const reprise::Recipe& recipe) { report(recipe, settings); });
}
