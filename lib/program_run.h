// Functions that several parts of the trainer share: they run a program's rows, read and write its
// scalars, and end a run. Steps, evaluation, generation and bind() use them. Applications do not
// call them.
#pragma once

#include "lib/trainer.h"

namespace reprise {

// Returns the smaller of two numbers.
constexpr uint64_t smaller_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Checks that the resources suffice for the plan and that the backend is the plan's; returns the
// first error. It does not prove the plan.
Status check_given(const Plan& plan, const Backend& backend, const Resources& given);

// Returns the address of this rank's shard. The plan must have shard_bytes.
inline ArenaAddress shard_of(const Trainer& trainer) {
  return trainer.arena.base + (trainer.plan->state_bytes - trainer.plan->shard_bytes);
}

// Runs the program's rows one by one. On an error, Status::row names the row. When it returns, a
// device may only have enqueued the rows.
Status run_rows(const Trainer& trainer, ProgramId id);
// Replays the program's recording if it has one and no observer is set; otherwise runs its rows.
// Denormals count as zero in the calling thread and in its workers, so that bits do not depend on
// the threads' modes.
Status run_program(const Trainer& trainer, ProgramId id);

// Writes the scalars of a run to state[0].
Status write_scalars(const Trainer& trainer, const StepScalars& scalars);
// Enqueues a copy of state[0] to `scalars`, which may be read after settle().
Status copy_scalars_out(const Trainer& trainer, StepScalars& scalars);
// Returns kIndexOutOfRange for a fault that a kernel found in data; ok if there is none.
Status fault_status(const StepFault& fault);

// Waits for all queued work. Returns `status` if it is an error, else the first error of the work.
// After an error it also waits for all transfers: the owner of the arena may take the arena back,
// and no transfer may then be in progress.
Status settle(const Trainer& trainer, Status status);

}  // namespace reprise
