// A plan that owns its arrays, with the names that reports need; view() returns the plain Plan that
// lib reads. Tests, compare and the trainer can pass it on, copy it and change it without compiling
// a header.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

constexpr uint32_t kNoAction = ~0u;

// The reason for a row, for reports.
struct RowOrigin {
  uint32_t action = kNoAction;  // index in the schedule; kNoAction in a program without one
  // True for a row of the first forward of its link, and in programs without a schedule. False for
  // rows of later forwards and of backwards.
  bool first_time = true;
  bool of_gradient = false;     // true if the row writes a gradient
};

// Returns the name of the second level of memory in recipes and reports.
inline const char* spill_name(SpillLevel level) { return level == SpillLevel::kHost ? "host" : "disk"; }

struct OwnedProgram {
  std::vector<Row> rows;
  std::vector<RowOrigin> origins;        // parallel to rows, unless a caller changes the rows
  std::vector<Ref> arguments;
  std::vector<Slot> slots;
  std::vector<std::string> slot_names;   // parallel to slots
  uint64_t bytes = 0;
  uint32_t input = kNoSlot, labels = kNoSlot, document_start = kNoSlot, output = kNoSlot, pairs = kNoSlot,
           token_types = kNoSlot;
  std::vector<Slot> spilled;
  std::vector<std::string> spilled_names;  // parallel to spilled

  Program view() const;
};

struct OwnedPlan {
  uint32_t format = kPlanFormat;
  std::string name, backend = "cpu";
  std::vector<StateTensor> state;         // names must come from keep()
  std::vector<float> numbers;             // numbers of the tables in `state`
  std::vector<Tensor> carried;
  std::vector<std::string> carried_names;
  OwnedProgram programs[kProgramCount];
  std::vector<std::string> link_names;
  AttributeTables attributes;
  LearningRate learning_rate;             // its milestones point into `milestones`
  std::vector<uint32_t> milestones;
  uint64_t state_bytes = 0, carried_bytes = 0, arena_bytes = 0, seed = 0;
  uint32_t accumulate = 1, ranks = 1;
  SpillLevel spill_level = SpillLevel::kDisk;
  uint64_t spill_bytes = 0, streamed_bytes = 0, shard_bytes = 0, worker_stack_bytes = 0, recipe_hash = 0;

  OwnedProgram& program(ProgramId id) { return programs[static_cast<size_t>(id)]; }
  const OwnedProgram& program(ProgramId id) const { return programs[static_cast<size_t>(id)]; }

  // Returns a copy of a state tensor's name that lives as long as this plan and its copies.
  const char* keep(const std::string& text);

  // Returns a view that is valid while this object lives and does not change.
  Plan view() const;

 private:
  std::vector<std::shared_ptr<const std::string>> kept_;
};

inline uint32_t runs_in_step(const OwnedPlan& plan, ProgramId id) {
  return runs_in_step(id, plan.accumulate, !plan.program(ProgramId::kMicroLast).rows.empty());
}

KernelCall kernel_call(const OwnedPlan& plan, const OwnedProgram& program, const Row& row);

// A function that for_each_step_row() calls for every row of a step, with the number of times that
// a step runs the row. These are the rows of micro-batches and of the update, not of the
// evaluation.
using StepRow = std::function<void(const OwnedProgram& program, const Row& row, uint32_t times)>;
void for_each_step_row(const OwnedPlan& plan, const StepRow& body);

template <typename T>
Span<T> span_of(const std::vector<T>& values) {
  return {values.data(), static_cast<uint32_t>(values.size())};
}

}  // namespace reprise
