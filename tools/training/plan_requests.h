// Who asks a training to go on in another of its program's plans: signals, a control file, and where it is wanted the machine's memory pressure.
// Here because a machine is shared: what a training may take of it changes while it runs, and what it computes does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"
#include "tools/training/control_file.h"
#include "tools/training/memory_pressure.h"

namespace reprise {

// The plans of a program by what they take.
class PlanSizes {
 public:
  explicit PlanSizes(const CompiledPlan& compiled);

  // So many plans up, or down, from that one, as far as there are some.
  uint32_t moved(uint32_t plan, int up) const;
  bool is_smaller(uint32_t plan, uint32_t other) const { return rank(plan) < rank(other); }
  // Its place among all by size, the smallest being 0; and the plan of such a place.
  uint32_t rank(uint32_t plan) const;
  uint32_t plan_of_rank(uint32_t rank) const { return by_size_[rank]; }

  // "1", a plan's number in the recipe's order, or bytes: the largest plan that these hold. Where there is none `problem` says why.
  std::optional<uint32_t> find(const std::string& budget, std::string& problem) const;

  // "the plan of 3.0 GiB": its budget.
  const std::string& name(uint32_t plan) const { return plans_[plan].name; }
  std::optional<uint64_t> budget_bytes(uint32_t plan) const { return plans_[plan].budget_bytes; }

 private:
  struct Sized {
    uint64_t arena_bytes;
    std::optional<uint64_t> budget_bytes;
    std::string name;
  };
  std::vector<Sized> plans_;
  std::vector<uint32_t> by_size_;  // plans' numbers, the smallest first
};

struct PlanRequest {
  uint32_t plan;           // may be the one in which the training runs
  std::string words;       // who asks for what
  bool is_warning = false;  // nothing that can be done was asked for
};

// Signals and the control file say what may be taken. Under pressure the training takes less, a plan at a time, and goes back to what was said
// last when the pressure is over.
class PlanRequests {
 public:
  // `control`: null where there is none. `plan`: in which the training begins.
  PlanRequests(const PlanSizes& sizes, const ProgramOptions& options, ControlFile* control, uint32_t plan);

  // Between steps; none: nothing was asked for since the last call. `seconds`: of a clock.
  std::optional<PlanRequest> take(uint32_t now, double seconds);
  // What was asked for could not be had. Where pressure is looked at it is asked for again when there has been none for a while.
  void refused(uint32_t now, double seconds);

 private:
  std::optional<PlanRequest> by_signal(uint32_t now);
  std::optional<PlanRequest> by_control(uint32_t now);
  std::optional<PlanRequest> by_pressure(uint32_t now, double seconds);

  const PlanSizes& sizes_;
  uint32_t said_;  // what a person said last, or the run began in
  ControlFile* control_;
  std::optional<PressureFile> pressure_file_;
  PressureJudge pressure_;
};

}  // namespace reprise
