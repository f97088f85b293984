// Functions for end-to-end tests: plan a recipe in memory, bind the plan, and train it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/reprise.h"
#include "tests/ports/test_machine.h"
#include "tools/plan/planning/planner.h"
#include "tools/run/data/dataset.h"

namespace reprise {

// Returns the text of a recipe on synthetic data, for a small ResNet or, by the second function,
// for a small GPT-2. `extra` is inserted as further keys (", \"key\": ...").
std::string resnet_recipe(const std::string& extra = "", const std::string& block = "basic");
std::string gpt_recipe(const std::string& extra = "", double dropout = 0.1);

Recipe recipe_from(const std::string& text);

struct PlannedRun {
  SolvedModel model;
  PlannedModel planned;
};
// Plans the recipe's model. `budget_share` is the position of the budget between the smallest that
// fits (0) and the one that stores everything (1); negative: no budget. Throws std::runtime_error
// if no plan fits.
//
// A strategy that uses a disk gets a disk of 1 GiB that is fast enough to be used, unless the
// recipe names a second level.
PlannedRun plan_run(const Recipe& recipe, const std::string& strategy, double budget_share = -1);
// Plans `network` with the recipe; the recipe's own model is ignored.
PlannedRun plan_run(const Recipe& recipe, const Graph& network, const std::string& strategy, double budget_share = -1);

struct RunOptions {
  int steps = 3;
  uint32_t workers = 1;  // 0: only the calling thread runs, without the port's pool
  bool poison = false;  // fills every slot with NaN when its lifetime begins and when it ends
  bool poison_gradients = false;  // fills Carried with NaN before every step
  const Backend* backend = &test::test_backend();
  Disk weights = {};  // needed if the plan streams weights
  Peers peers = {};   // needed if the plan is for several ranks
};

struct RunResult {
  std::vector<double> losses;
  std::vector<float> gradient_norms;
  std::vector<unsigned char> state;      // all of State, after the last step
  std::vector<unsigned char> gradients;  // all of Carried, after the last step
  uint64_t planned_bytes = 0, measured_bytes = 0;
  uint64_t planned_spill_bytes = 0, measured_spill_bytes = 0;  // in host memory; 0 for a disk
  EvaluationReport evaluation;           // evaluation of one batch after the last step
};
// Returns the values of the State tensor `name` in `result`. Throws std::runtime_error if no tensor
// has this name.
std::vector<float> state_values(const OwnedPlan& plan, const RunResult& result, const std::string& name);
// Returns the gradient of `parameter` in Carried after the last step. Throws std::runtime_error if
// it has none.
std::vector<float> gradient_values(const OwnedPlan& plan, const RunResult& result, const std::string& parameter);

// Trains the plan on the data of the recipe, or on the batches of `source`.
RunResult train_plan(const OwnedPlan& plan, const Recipe& recipe, const RunOptions& options);
RunResult train_plan(const OwnedPlan& plan, const BatchSource& source, const RunOptions& options);

// Calls bind() with a workspace that is freed when bind() returns.
Status bind_plan(const Plan& plan, const Backend& backend, const Workers& workers, Arena arena, Trainer& trainer,
                 const Disk& disk = {}, const Disk& weights = {}, const HostMemory& host_memory = {},
                 const Peers& peers = {});

// Returns a source that reads micro-batches from `data`. `data` must outlive the source.
BatchSource source_of(Dataset& data);

// Reads bytes of the arena with the backend's host operations. floats_of() returns a tensor of
// State, and measure() the measured bytes of the arena; both use the same operations. Throws
// std::runtime_error if the read fails.
std::vector<unsigned char> bytes_at(const Trainer& trainer, ArenaAddress from, uint64_t bytes);
std::vector<float> floats_of(const Trainer& trainer, uint32_t state_tensor);
uint64_t measure(const Trainer& trainer);

// Memory for an arena, followed by more memory, so that a write after the end of the plan does no
// harm and can be detected.
class TestArena {
 public:
  explicit TestArena(uint64_t bytes, uint64_t alignment = kAlignment);
  Arena get() const { return arena_; }

 private:
  std::vector<unsigned char> memory_;
  Arena arena_;
};

// Returns workers with two threads, which exist until the program ends, because the port has only
// one pool at a time.
const Workers& lasting_workers();

// A plan of the recipe that is bound to its own memory, with an initial State.
class BoundRecipe {
 public:
  explicit BoundRecipe(const Recipe& recipe, const std::string& strategy = "none", double budget_share = -1);
  BoundRecipe(const BoundRecipe&) = delete;
  BoundRecipe& operator=(const BoundRecipe&) = delete;

  const Recipe& recipe() const { return recipe_; }
  const Plan& plan() const { return view_; }
  // Returns the State tensor `name`. Throws std::runtime_error if there is none.
  const StateTensor& state(const std::string& name) const;
  // Evaluates one micro-batch of the training data, and returns its loss.
  double loss();

  Trainer trainer;

 private:
  const Recipe recipe_;
  const OwnedPlan plan_;
  const Plan view_;
  const TestArena arena_;
};

// Returns a schedule with kept tapes, which reverses the chain from its end. While a link runs
// backward, the schedule keeps the tape of the link before it. The input of that link is dropped
// meanwhile and computed again.
Schedule schedule_that_holds_tapes(const Chain& chain);

}  // namespace reprise
