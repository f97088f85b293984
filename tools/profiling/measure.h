// Measures what the kernel calls of a recipe take on this machine, inside real training steps.
// Here because caches and workers are then as a training has them; a loop over one kernel would find its tensors warm.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lib/reprise.h"
#include "tools/data/data_feed.h"
#include "tools/profiling/profile.h"

namespace reprise {

// A plan bound in an arena of its own, fed with the recipe's training data (zeros where the recipe has none). Throws UserError
// where the data, the workers or the memory cannot be had; the kernels must have been set up.
class PlanRun {
 public:
  // `threads`: 0 for one per processor. One at a time in a process, where the port has one pool of workers.
  // `backend` must outlive it.
  // `weights`: the file of a plan that streams, whatever it holds.
  PlanRun(const Port& port, const Backend& backend, const Recipe& recipe, const OwnedPlan& plan, uint32_t threads, const Disk& weights = {});
  ~PlanRun();
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;

  // Seconds of one step. A loss that is not finite does not matter here; another error of the step is thrown.
  double step();
  const StepReport& report() const { return report_; }  // of the last step
  void observe(const RowObserver& observer) { trainer_.observer = observer; }
  const Trainer& trainer() const { return trainer_; }
  Trainer& trainer() { return trainer_; }
  const Workers& workers() const { return workers_; }
  const Port& port() const { return port_; }
  void finish() const;  // what is queued

 private:
  void release();
  const Port& port_;
  const Plan plan_;
  std::unique_ptr<Dataset> data_;  // null: zeros
  std::optional<DataFeed> feed_;   // of the data, where there are some
  Workers workers_;
  Arena arena_;
  HostMemory host_memory_;  // of a plan that keeps moments there
  Trainer trainer_;
  StepReport report_;
};

double median(std::vector<double> values);

struct MeasureOptions {
  uint32_t threads = 0;          // 0: one per processor
  const char* spill_file = nullptr;  // made and removed where the recipe has a disk, or streams, on the disk to be measured
  int rounds = 4;
  bool sums = false;  // of the gradients of several ranks, too; those of a recipe with "parallel" are measured anyway
  double seconds_per_plan = 10;  // over all rounds; a round stops after its share, but not before kLeastSteps
  std::function<void()> after_round;  // what a benchmark measures in the same minutes; may be empty
  std::function<void(const std::string&)> say;  // a line of progress; may be empty
};

// Runs two plans of the recipe, the one that stores all (left out where memory does not suffice) and the smallest; together
// they hold every distinct call, in the cache states of both ends. They take turns in several rounds, each in an arena of its own: a
// machine's speed drifts, and with the pages that an arena gets. A kernel's seconds are the mean over all its rows in the steps
// whose times lie around the median. A recipe with a disk, or with memory of the host, has that measured too, with blocks of its largest
// boundary, as many as the plan may keep there but at most 512 MiB: what the kernel's page cache holds of so much is as fast in a training.
Profile measure_profile(const Port& port, const Recipe& recipe, const MeasureOptions& options);

}  // namespace reprise
