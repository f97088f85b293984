// Makes a plan with one row from a kernel case. Tests then call kernels through the library's own
// dispatch, and check() verifies the shapes of a case.
#pragma once

#include <vector>

#include "lib/backend.h"
#include "tests/ops/kernel_case.h"

namespace reprise::test {

class CasePlan {
 public:
  // Bytes of the guard before every tensor. The caller also allocates a guard after the end of the
  // arena. Tensors of a group are adjacent, without guards between them.
  static constexpr uint64_t kGuard = 4096;

  // Plans one row for the case. If `in_place`, the two arguments that kOps permits share a slot.
  CasePlan(const Backend& backend, const KernelCase& c, bool in_place = false);
  CasePlan(const CasePlan&) = delete;
  CasePlan& operator=(const CasePlan&) = delete;

  // Returns the plan. The plan points into this object and into the case.
  const Plan& plan() const { return plan_; }
  const Program& program() const { return plan_.program(case_program_); }
  const Row& row() const;

  // Returns the offset of argument `i` in the arena. The index of the scratch is one after the last
  // argument of the case.
  uint64_t offset(uint32_t i) const;
  // Returns the bytes that the backend's rule states; 0 if the kernel needs no scratch.
  uint64_t scratch_bytes() const { return scratch_bytes_; }

  // Adds the rows that check() requires around the case's row. Before most kernels these are rows
  // that write its inputs. Around a reduce, finish or update they are the other rows of a step's
  // end. Tests never run the added rows.
  void complete();

 private:
  Ref place(uint32_t i);
  Ref place_group(uint32_t i);
  void set_carried(std::vector<Tensor> tensors);
  Ref add_state(Tensor tensor, StateKind kind);
  Ref add_slot(Tensor tensor, SlotKind use);
  Ref add_scratch(uint64_t bytes);  // returns kNoRef if `bytes` is 0
  void add_row(ProgramId program, Op op, Pass pass, const std::vector<Ref>& refs);
  void add_copy(Ref ref, const Tensor& tensor);  // adds a row to micro_first that copies a new buffer of State to `ref`
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
  std::vector<Slot> slots_;  // slots of the program that contains the case's row
  std::vector<Ref> refs_;    // arguments of the case's row
  std::vector<Row> rows_[kProgramCount];
  std::vector<Ref> arguments_[kProgramCount];
  uint64_t state_end_ = 0, carried_end_ = 0, slots_end_ = 0;
  GroupAttribute group_{};  // for the rows that complete a step
  ClipAttribute clip_{};
  UpdateAttribute update_{};
  const BackendRules& rules_;
  Plan plan_;
};

}  // namespace reprise::test
