// Measures the times of a recipe's kernel calls on this machine, inside real training steps. The
// states of caches and workers are then the same as in a training. A loop over one kernel would
// find its tensors in the cache.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lib/reprise.h"
#include "tools/run/data/data_feed.h"
#include "tools/run/profiling/profile.h"

namespace reprise {

// Runs steps of one plan in its own arena, with the recipe's training data (zeros if it has none).
// Throws UserError if the data, the workers or the memory are not available. The kernels must have
// been set up.
class PlanRun {
 public:
  // Starts the workers and binds the plan. `threads` is 0 for one per processor. If the port has
  // only one pool of workers, a process may have one PlanRun at a time. `backend` must outlive the
  // object. `weights` is the file of a plan that streams weights; its content does not matter.
  PlanRun(const Port& port, const Backend& backend, const Recipe& recipe, const OwnedPlan& plan, uint32_t threads,
          const Disk& weights = {});
  ~PlanRun();
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;

  // Runs one step and returns its seconds. Ignores a loss that is not finite; throws other errors
  // of the step as UserError.
  double step();
  const StepReport& report() const { return report_; }  // the report of the last step
  void observe(const RowObserver& observer) { trainer_.observer = observer; }
  const Trainer& trainer() const { return trainer_; }
  Trainer& trainer() { return trainer_; }
  const Workers& workers() const { return workers_; }
  const Port& port() const { return port_; }
  void finish() const;  // waits for all enqueued work

 private:
  void release();
  const Port& port_;
  const Plan plan_;
  std::unique_ptr<Dataset> data_;  // null if the steps use zeros
  std::optional<DataFeed> feed_;   // gives data_ to the trainer; unset without data
  Workers workers_;
  Arena arena_;
  HostMemory host_memory_;  // used if the plan spills to the host
  Trainer trainer_;
  StepReport report_;
};

// Returns the median; 0 for an empty list.
double median(std::vector<double> values);

struct MeasureOptions {
  uint32_t threads = 0;  // 0 for one per processor
  // A file on the disk that is measured; it is created and removed if the recipe has a disk, or
  // streams weights.
  const char* spill_file = nullptr;
  int rounds = 4;
  bool sums = false;             // true: measures sums of several ranks' gradients even if the recipe has no "parallel"
  double seconds_per_plan = 10;  // total of all rounds; a round ends after its share, but runs at least kMinSteps steps
  std::function<void()> after_round;  // called after each round, for the measurements of a benchmark; may be empty
  std::function<void(const std::string&)> say;  // prints a line of progress; may be empty
};

// Runs two plans of the recipe: the one that stores everything (left out if memory does not
// suffice) and the smallest. Together they contain every distinct call, with the cache states of
// both extremes. They alternate in several rounds, each in a new arena: the speed of a machine
// drifts, and depends on the pages that an arena gets. The seconds of a kernel are the mean over
// all its rows in the steps whose times are around the median.
// If the recipe has a disk or memory of the host, it is measured too, with blocks of the size of
// the largest boundary. Their number is the number that the plan may store there, but at most 512
// MiB are used. The page cache of the operating system may contain some of them, as in a training.
Profile measure_profile(const Port& port, const Recipe& recipe, const MeasureOptions& options);

}  // namespace reprise
