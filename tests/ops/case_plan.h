// A kernel case as a plan whose first program ends in one row.
// Here so that tests reach kernels by the library's own dispatch, and a case has shapes that check() accepts.
#pragma once

#include <vector>

#include "lib/backend.h"
#include "tests/ops/kernel_case.h"

namespace reprise::test {

class CasePlan {
 public:
  // Every tensor has kGuard bytes before and behind it that belong to none.
  static constexpr uint64_t kGuard = 4096;

  // In place: the kernel's in-place pair shares a slot.
  CasePlan(const Backend& backend, const KernelCase& c, bool in_place = false);
  CasePlan(const CasePlan&) = delete;
  CasePlan& operator=(const CasePlan&) = delete;

  // The plan speaks of this object and of the case.
  const Plan& plan() const { return plan_; }
  const Program& program() const { return plan_.programs[0]; }
  const Row& row() const { return rows_.back(); }

  // Where argument i lies from the arena's start. Scratch is the argument behind the case's own.
  uint64_t offset(uint32_t i) const;
  uint64_t scratch_bytes() const { return scratch_bytes_; }  // by the backend's rule; 0 where the kernel takes none

  // Puts rows before the case's that write what it reads, as check() demands. Dispatching them is not meant.
  void write_before();

 private:
  Ref place(uint32_t i);
  Ref place_group(uint32_t i);
  Ref add_state(Tensor tensor, StateKind kind);
  Ref add_slot(Tensor tensor, SlotKind kind);
  void join();

  const KernelCase& case_;
  uint64_t scratch_bytes_ = 0;
  std::vector<StateTensor> state_;
  std::vector<Tensor> carried_;
  std::vector<Slot> slots_;
  std::vector<Ref> arguments_;
  std::vector<Row> rows_;
  uint64_t state_end_ = kGuard, carried_end_ = kGuard, slots_end_ = kGuard;
  Plan plan_;
};

}  // namespace reprise::test
