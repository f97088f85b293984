// A kernel case as a plan of one row.
// Here so that tests reach kernels by the library's own dispatch, and a case has shapes that check() accepts.
#pragma once

#include <vector>

#include "lib/backend.h"
#include "tests/ops/kernel_case.h"

namespace reprise::test {

class CasePlan {
 public:
  // Every tensor has kGuard bytes before it that belong to none; give the arena as many behind its end. A group's tensors lie end to end.
  static constexpr uint64_t kGuard = 4096;

  // In place: the kernel's in-place pair shares a slot.
  CasePlan(const Backend& backend, const KernelCase& c, bool in_place = false);
  CasePlan(const CasePlan&) = delete;
  CasePlan& operator=(const CasePlan&) = delete;

  // The plan speaks of this object and of the case.
  const Plan& plan() const { return plan_; }
  const Program& program() const { return plan_.program(case_program_); }
  const Row& row() const;

  // Where argument i lies from the arena's start. Scratch is the argument behind the case's own.
  uint64_t offset(uint32_t i) const;
  uint64_t scratch_bytes() const { return scratch_bytes_; }  // by the backend's rule; 0 where the kernel takes none

  // Adds what check() demands around the case's row: rows that write what it reads, or the rest of a whole step around a row that
  // reduces, finishes or updates. Dispatching them is not meant.
  void complete();

 private:
  Ref place(uint32_t i);
  Ref place_group(uint32_t i);
  void set_carried(std::vector<Tensor> tensors);
  Ref add_state(Tensor tensor, StateKind kind);
  Ref add_slot(Tensor tensor, SlotUse use);
  Ref add_scratch(uint64_t bytes);  // none for none
  void add_row(ProgramId program, Op op, Pass pass, const std::vector<Ref>& refs);
  void add_copy(Ref ref, const Tensor& tensor);  // from State, in the first program
  void write_before();
  void complete_step();
  static std::vector<Tensor> side_by_side(uint32_t count);
  void join();
  std::vector<Row>& rows_of(ProgramId program) { return rows_[static_cast<uint32_t>(program)]; }

  const KernelCase& case_;
  const ProgramId case_program_;
  uint64_t scratch_bytes_ = 0;
  uint32_t labels_ = kNoSlot, document_start_ = kNoSlot, pairs_ = kNoSlot;
  std::vector<StateTensor> state_;
  std::vector<Tensor> carried_;
  std::vector<Slot> slots_;  // of the case's program
  std::vector<Ref> refs_;    // the case's arguments
  std::vector<Row> rows_[kProgramCount];
  std::vector<Ref> arguments_[kProgramCount];
  uint64_t state_end_ = 0, carried_end_ = 0, slots_end_ = 0;
  GroupAttribute group_{};  // of the rows that complete a step
  ClipAttribute clip_{};
  UpdateAttribute update_{};
  const BackendRules& rules_;
  Plan plan_;
};

}  // namespace reprise::test
