// What the trainer's parts have in common: a program's rows called in turn, the scalars that go with a run, and its end.
// Here because steps, evaluation, generation and bind run programs alike. It is no part of what an application calls.
#pragma once

#include "lib/trainer.h"

namespace reprise {

constexpr uint64_t smaller_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Whether what bind is given is what the plan needs; the plan itself is the proof's to judge.
Status check_given(const Plan& plan, const Backend& backend, const Resources& given);

// Of a plan with shard_bytes: where this rank's slices lie.
inline ArenaAddress shard_of(const Trainer& trainer) { return trainer.arena.base + (trainer.plan->state_bytes - trainer.plan->shard_bytes); }

// The rows, called one by one.
Status run_rows(const Trainer& trainer, ProgramId id);
// The same, or the recording of them. Denormals count as zero, for the caller and its workers alike, so that bits depend on neither.
Status run_program(const Trainer& trainer, ProgramId id);

Status write_scalars(const Trainer& trainer, const StepScalars& scalars);
// Queued: `scalars` are read when the run has settled.
Status copy_scalars_out(const Trainer& trainer, StepScalars& scalars);
// What the kernels found wrong in the data.
Status fault_status(const StepFault& fault);

// Waits for all that is queued, and where something failed for what is carried too: nothing may be under way in an arena that its owner
// may take back.
Status settle(const Trainer& trainer, Status status);

}  // namespace reprise
