// What a run measures of itself, for "measured" of the manifest (tools/FORMATS.md).
// Here because a plan only says what memory a program takes; that it takes so much and no more is seen in the memory itself.
#pragma once

#include <deque>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/formats/output.h"
#include "tools/session/compiled_plan.h"
#include "tools/session/session.h"
#include "tools/training/worker_stacks.h"

namespace reprise {

// Of one of the program's plans.
class PlanMeasurements {
 public:
  explicit PlanMeasurements(const CompiledPlan& compiled);

  // Around each step, and around whatever else runs programs. The observer between belongs into the trainer; there is none where nothing
  // new can be seen any more. The first step of a run, which paints the stacks and lays canaries, is slower.
  void begin_step(Session& session);
  void end_step(double seconds);
  void begin_program(Session& session, ProgramId id) { watch(session, {id}); }
  void end_program() { stop_watching(); }
  RowObserver observer();

  // "measured"; {} where the plan ran nothing.
  nlohmann::json measured() const;
  const char* plan_hash() const { return compiled_.hash; }

 private:
  void watch(Session& session, std::initializer_list<ProgramId> programs);
  void see_last_row(ProgramId id);
  void stop_watching();
  void measure_program(ProgramId id);
  nlohmann::json regions() const;
  double median_seconds() const;

  const CompiledPlan compiled_;
  Session* session_ = nullptr;
  WorkerStacks stacks_;
  std::vector<uint64_t> stack_bytes_;  // by worker
  std::optional<uint64_t> program_bytes_[kProgramCount];
  bool is_watching_ = false, has_generated_ = false;
  std::optional<uint64_t> calls_before_;
  uint64_t calls_ = 0, steps_ = 0;
  std::vector<double> seconds_;  // of the last steps, in turn; the first is there only until there is a second
};

class RunMeasurements {
 public:
  // Throws UserError where the file cannot be written, or the program has no manifest of its own plans.
  RunMeasurements(const Output& to, const CompiledPlan& compiled);

  // Of the plan in which the session runs.
  PlanMeasurements& of(const Session& session) { return plans_[session.plan_number()]; }

  void write();

 private:
  const Output to_;
  nlohmann::json manifest_;
  std::deque<PlanMeasurements> plans_;
};

}  // namespace reprise
