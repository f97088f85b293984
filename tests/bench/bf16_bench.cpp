// Compares whole steps with activations stored as f32 and as bf16: planned bytes, seconds, and the
// difference of the losses. bf16 should halve the feature maps without costing time. The two
// versions run alternately, because the machine's speed drifts.
//
//   bf16_bench [--threads N] [--steps S] [RECIPE...]    default: ResNet-20, ResNet-50, a GPT
//
// The plans store all activations and compute none again.
#include <algorithm>
#include <cstdio>

#include "ports/linux/linux_port.h"
#include "tests/bench/recipe_command.h"
#include "tests/ports/test_machine.h"
#include "tools/plan/planning/planner.h"
#include "tools/run/profiling/measure.h"

namespace reprise {
namespace {

constexpr const char* kRecipes[] = {
    R"({"name": "resnet20-batch128", "model": {"family": "resnet", "block": "basic", "units": [3, 3, 3], "width": 16, "stem": "cifar",
    "classes": 10, "image": [32, 32, 3]}, "data": {"kind": "synthetic"}, "batch": 128, "steps": 1, "seed": 1,
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}})",
    R"({"name": "resnet50-batch8", "model": {"family": "resnet", "block": "bottleneck", "units": [3, 4, 6, 3], "width": 64,
    "stem": "imagenet", "classes": 1000, "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 8, "steps": 1, "seed": 1,
    "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9}})",
    R"({"name": "gpt-4x128-batch16", "model": {"family": "gpt2", "vocab_size": 256, "n_positions": 128, "n_embd": 128, "n_layer": 4,
    "n_head": 4}, "data": {"kind": "synthetic"}, "batch": 16, "sequence": 128, "steps": 1, "seed": 1,
    "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.1}})"};

struct Settings {
  uint32_t threads = 0;
  int steps = 8;
};

constexpr int kRounds = 3;

// One way of storing activations, and the seconds of its steps in all rounds.
struct Contender {
  Recipe recipe;
  PlannedModel planned;
  double feature_map_bytes = 0;
  std::vector<double> seconds;
  double first_loss = 0, last_loss = 0;

  Contender(const Recipe& of, Recipe::Dtype dtype) : recipe(of) {
    recipe.dtype = dtype;
    recipe.schedule.strategy = "none";
    const SolvedModel model = solve_model(recipe);
    planned = plan_model(model, request_of(model));
    feature_map_bytes = static_cast<double>(planned.packed_bytes);
  }
  void run_round(const Settings& settings) {
    PlanRun run(linux_port(), test::test_backend(), recipe, planned.plan, settings.threads);
    (void)run.step();  // touches the arena's pages
    first_loss = run.report().loss;
    for (int s = 1; s < settings.steps; ++s) seconds.push_back(run.step());
    last_loss = run.report().loss;
  }
  void print(const char* dtype) const {
    std::printf("  %-5s %9.1f %9.1f %9.4f %9.4f %12.5f %11.5f\n", dtype, feature_map_bytes / 1048576,
                static_cast<double>(planned.plan.arena_bytes) / 1048576,
                *std::min_element(seconds.begin(), seconds.end()), median(seconds), first_loss, last_loss);
  }
};

void compare(const Recipe& recipe, const Settings& settings) {
  Contender wide(recipe, Recipe::Dtype::kF32), narrow(recipe, Recipe::Dtype::kBf16);
  for (int round = 0; round < kRounds; ++round) {
    wide.run_round(settings);
    narrow.run_round(settings);
  }
  std::printf("\n%s\n        maps MiB arena MiB    best s  median s   first loss   last loss\n", recipe.name.c_str());
  wide.print("f32");
  narrow.print("bf16");
  std::printf("  ratio %9.3f %9.3f %9.3f %9.3f\n", narrow.feature_map_bytes / wide.feature_map_bytes,
              static_cast<double>(narrow.planned.plan.arena_bytes) / static_cast<double>(wide.planned.plan.arena_bytes),
              *std::min_element(narrow.seconds.begin(), narrow.seconds.end()) /
                  *std::min_element(wide.seconds.begin(), wide.seconds.end()),
              median(narrow.seconds) / median(wide.seconds));
  std::fflush(stdout);
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  CLI::App app("Whole steps with activations stored as f32 and as bf16", "bf16_bench");
  reprise::Settings settings;
  app.add_option("--threads", settings.threads, "0: as many as the machine has");
  app.add_option("--steps", settings.steps, "a round, the first of which is not counted")
      ->check(CLI::Range(2, 1000000));
  return reprise::bench::measure_recipes(app, argc, argv, {std::begin(reprise::kRecipes), std::end(reprise::kRecipes)},
                                         [&](const reprise::Recipe& recipe) { reprise::compare(recipe, settings); });
}
