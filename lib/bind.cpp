// bind(): proves the plan again at run time, then calls bind_proved(). It has a file of its own, so
// that a program whose compiler has proved the plan need not link the proof.
#include "lib/check.h"
#include "lib/program_run.h"

namespace reprise {

Status check_plan(const Plan& plan, const Backend& backend, const Resources& given) {
  REPRISE_RETURN_IF_ERROR(check_given(plan, backend, given));
  if (!backend.rules->proves)
    return {Code::kUnsupported,
            "this backend has no rules to prove a plan by: bind_proved binds what the compiler has proved", 0};
  const uint64_t marks_bytes = uint64_t{check_marks(plan)} * sizeof(CheckMark);
  const bool aligned = reinterpret_cast<uintptr_t>(given.workspace.base) % alignof(CheckMark) == 0;
  if (marks_bytes > given.workspace.bytes || !aligned) {
    return {Code::kArenaTooSmall, "the workspace must hold the checker's marks, aligned as they are", marks_bytes};
  }
  const Verdict verdict = check(plan, static_cast<CheckMark*>(given.workspace.base), *backend.rules);
  if (!verdict.ok()) return {Code::kBadPlan, fault_text(verdict.fault), uint64_t{verdict.program} << 32 | verdict.row};
  return ok_status();
}

Status bind(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer) {
  REPRISE_RETURN_IF_ERROR(check_plan(plan, backend, resources));
  return bind_proved(plan, backend, resources, trainer);
}

}  // namespace reprise
