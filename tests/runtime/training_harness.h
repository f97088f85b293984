// Plans a recipe in memory, binds it and trains: what the end-to-end tests share.
// Here so that a test says only which recipe, which schedule and what must hold.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/reprise.h"
#include "tests/ports/test_machine.h"
#include "tools/data/dataset.h"
#include "tools/planning/planner.h"

namespace reprise {

// A small ResNet and a small GPT-2 on synthetic data, as recipe texts; `extra` is spliced in as further keys (", \"key\": ...").
std::string resnet_recipe(const std::string& extra = "", const std::string& block = "basic");
std::string gpt_recipe(const std::string& extra = "", double dropout = 0.1);

Recipe recipe_from(const std::string& text);

struct PlannedRun {
  SolvedModel model;
  PlannedModel planned;
};
// A strategy that takes a disk gets one of 1 GiB, so fast that it uses it, unless the recipe names a second level.
// `budget_share`: from 0, the smallest budget that fits, to 1, what storing everything needs; negative: no budget. Throws where
// it does not fit.
PlannedRun plan_run(const Recipe& recipe, const std::string& strategy, double budget_share = -1);
// The same of a network that is not the recipe's own model.
PlannedRun plan_run(const Recipe& recipe, const Graph& network, const std::string& strategy, double budget_share = -1);

struct RunOptions {
  int steps = 3;
  uint32_t workers = 1;  // 0: the calling thread alone, without the port's pool
  bool poison = false;  // every slot is filled with NaN when it is born and when it dies
  bool poison_gradients = false;  // Carried is filled with NaN before every step
  const Backend* backend = &test::test_backend();
  Disk weights = {};  // of a plan that streams
  Peers peers = {};   // of a plan for several ranks
};

struct RunResult {
  std::vector<double> losses;
  std::vector<float> gradient_norms;
  std::vector<unsigned char> state;      // all of it, after the last step
  std::vector<unsigned char> gradients;  // Carried
  uint64_t planned_bytes = 0, measured_bytes = 0;
  uint64_t planned_spill_bytes = 0, measured_spill_bytes = 0;  // of memory of the host; of a disk nothing is measured
  EvaluationReport evaluation;           // over one batch, after the last step
};
// The values of one state tensor in `result`; throws where there is none of that name.
std::vector<float> state_values(const OwnedPlan& plan, const RunResult& result, const std::string& name);
// Those of the parameter's gradient in Carried, after the last step.
std::vector<float> gradient_values(const OwnedPlan& plan, const RunResult& result, const std::string& parameter);

RunResult train_plan(const OwnedPlan& plan, const Recipe& recipe, const RunOptions& options);  // on the recipe's data
RunResult train_plan(const OwnedPlan& plan, const BatchSource& source, const RunOptions& options);

// bind() with a workspace for the time of the call.
Status bind_plan(const Plan& plan, const Backend& backend, const Workers& workers, Arena arena, Trainer& trainer, const Disk& disk = {}, const Disk& weights = {},
                 const HostMemory& host_memory = {}, const Peers& peers = {});

// A data set as a source of micro-batches.
BatchSource source_of(Dataset& data);

// From the arena, by the backend's host operations; throw where they fail.
std::vector<unsigned char> bytes_at(const Trainer& trainer, ArenaAddress from, uint64_t bytes);
std::vector<float> floats_of(const Trainer& trainer, uint32_t state_tensor);
uint64_t measure(const Trainer& trainer);

// Memory for an arena with room behind it, so that writing past the plan's end is seen and not felt.
class TestArena {
 public:
  explicit TestArena(uint64_t bytes, uint64_t alignment = kAlignment);
  Arena get() const { return arena_; }

 private:
  std::vector<unsigned char> memory_;
  Arena arena_;
};

// Two threads that last until the program ends: the port has one pool at a time.
const Workers& lasting_workers();

// A plan of the recipe, bound to memory of its own, with its state drawn.
class BoundRecipe {
 public:
  explicit BoundRecipe(const Recipe& recipe, const std::string& strategy = "none", double budget_share = -1);
  BoundRecipe(const BoundRecipe&) = delete;
  BoundRecipe& operator=(const BoundRecipe&) = delete;

  const Recipe& recipe() const { return recipe_; }
  const Plan& plan() const { return view_; }
  // Throws where there is none of that name.
  const StateTensor& state(const std::string& name) const;
  // Of an evaluation over a micro-batch of the training data.
  double loss();

  Trainer trainer;

 private:
  const Recipe recipe_;
  const OwnedPlan plan_;
  const Plan view_;
  const TestArena arena_;
};

// Always holds a tape while its link's input is dropped and made again, wherever there are three links.
Schedule schedule_that_holds_tapes(const Chain& chain);

}  // namespace reprise
