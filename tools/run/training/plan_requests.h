// Requests to continue a training with another plan of its program. They come from signals, a
// control file or, if enabled, the machine's memory pressure. They are for shared machines, where
// the memory that a training may use changes while it runs. The results of the training do not
// change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"
#include "tools/run/training/control_file.h"
#include "tools/run/training/memory_pressure.h"

namespace reprise {

// The plans of a program, ordered by the memory that they need.
class PlanSizes {
 public:
  explicit PlanSizes(const CompiledPlan& compiled);

  // Returns the plan that is `up` positions larger than `plan` (smaller if `up` is negative). At
  // the end of the order it returns the largest or smallest plan.
  uint32_t moved(uint32_t plan, int up) const;
  bool is_smaller(uint32_t plan, uint32_t other) const { return rank(plan) < rank(other); }
  // Returns the position of `plan` in the order of sizes; 0 is the smallest. plan_of_rank() returns
  // the plan at a position.
  uint32_t rank(uint32_t plan) const;
  uint32_t plan_of_rank(uint32_t rank) const { return by_size_[rank]; }

  // Returns the plan for `budget`: one digit is a plan's number in the recipe's order; otherwise it
  // is bytes, and the result is the largest plan that fits. Returns nothing and sets `problem` if
  // there is no such plan.
  std::optional<uint32_t> find(const std::string& budget, std::string& problem) const;

  // Returns a description with the plan's budget, for example "the plan of 3.0 GiB".
  const std::string& name(uint32_t plan) const { return plans_[plan].name; }
  std::optional<uint64_t> budget_bytes(uint32_t plan) const { return plans_[plan].budget_bytes; }

 private:
  struct Sized {
    uint64_t arena_bytes;
    std::optional<uint64_t> budget_bytes;
    std::string name;
  };
  std::vector<Sized> plans_;
  std::vector<uint32_t> by_size_;  // numbers of the plans, smallest first
};

// One request for a plan.
struct PlanRequest {
  uint32_t plan;            // number of the requested plan, which may be in use already
  std::string words;        // a message: the source of the request, and the requested plan
  bool is_warning = false;  // true: the request cannot be carried out, and `words` has the reason
};

// Collects the requests. Signals and the control file select a plan. Under memory pressure the
// training changes to the next smaller plan. When the pressure ends, it returns step by step to the
// selected plan.
class PlanRequests {
 public:
  // Borrows `sizes` and `control`; `control` is null if there is no control file. `plan` is the
  // plan with which the training begins.
  PlanRequests(const PlanSizes& sizes, const ProgramOptions& options, ControlFile* control, uint32_t plan);

  // Returns the latest request since the last call; nothing if there is none. Call it between
  // steps. `now` is the plan in use, and `seconds` the time of a monotonic clock.
  std::optional<PlanRequest> take(uint32_t now, double seconds);
  // Reports that the last request could not be carried out. If the request came from memory
  // pressure, it is repeated later.
  void refused(uint32_t now, double seconds);

 private:
  std::optional<PlanRequest> by_signal(uint32_t now);
  std::optional<PlanRequest> by_control(uint32_t now);
  std::optional<PlanRequest> by_pressure(uint32_t now, double seconds);

  const PlanSizes& sizes_;
  uint32_t said_;  // the plan that a signal or the control file selected last; at first the plan in which the run began
  ControlFile* control_;
  std::optional<PressureFile> pressure_file_;
  PressureJudge pressure_;
};

}  // namespace reprise
