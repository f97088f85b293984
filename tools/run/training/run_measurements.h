// Measures memory, stack and time while a training runs, for the manifest's "measured"
// (tools/FILES.md). A plan states how much memory a program uses; the measurement checks it.
#pragma once

#include <deque>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/io/output.h"
#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/session.h"
#include "tools/run/training/worker_stacks.h"

namespace reprise {

// The measurements of one plan of the program.
class PlanMeasurements {
 public:
  explicit PlanMeasurements(const CompiledPlan& compiled);

  // Starts the measurement of a step; end_step() ends it. In between, the trainer
  // must use observer(). begin_program() and end_program() do the same for other programs. The
  // first step of a run is slower, because stacks are painted and canaries are written.
  void begin_step(Session& session);
  void end_step(double seconds);
  void begin_program(Session& session, ProgramId id) { watch(session, {id}); }
  void end_program() { stop_watching(); }
  // Returns the observer for the trainer; an empty one if there is nothing new to measure.
  RowObserver observer();

  // Returns the value of "measured"; {} if the plan has run no program.
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
  std::vector<uint64_t> stack_bytes_;  // one element for each worker
  std::optional<uint64_t> program_bytes_[kProgramCount];
  bool is_watching_ = false, has_generated_ = false;
  std::optional<uint64_t> calls_before_;
  uint64_t calls_ = 0, steps_ = 0;
  // Seconds of the last steps, a ring buffer. The first step's time is dropped as soon as there is
  // a second step.
  std::vector<double> seconds_;
};

// The measurements of all plans of a program, and the manifest to which they are added.
class RunMeasurements {
 public:
  // Reads the program's manifest. Throws UserError if the output cannot be written, or if there is
  // no manifest of the program's plans.
  RunMeasurements(const Output& to, const CompiledPlan& compiled);

  // Returns the measurements of the plan that the session uses now.
  PlanMeasurements& of(const Session& session) { return plans_[session.plan_number()]; }

  // Writes the manifest with the measurements of all plans.
  void write();

 private:
  const Output to_;
  nlohmann::json manifest_;
  std::deque<PlanMeasurements> plans_;
};

}  // namespace reprise
