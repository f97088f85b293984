// bind, train_step, evaluate: runs a plan inside an arena.
// Here is all that an application calls after its port has given it memory and workers.
// It must not decide anything: rows come in order, addresses are the plan's.
#pragma once

#include "lib/backend.h"
#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// Sees every row before and after it runs: profilers and tests. Both may be null.
struct RowObserver {
  void* state = nullptr;
  void (*before)(void* state, ProgramId program, uint32_t row) = nullptr;
  void (*after)(void* state, ProgramId program, uint32_t row) = nullptr;
};

struct Trainer {
  const Plan* plan = nullptr;
  const Backend* backend = nullptr;
  KernelContext context;
  Arena arena;
  Disk disk;
  uint64_t step = 0;  // steps done; a resumed run sets it
  RowObserver observer;

  unsigned char* region(Region which) const {
    return arena.base + (which == Region::kState ? 0 : which == Region::kCarried ? plan->state_bytes : plan->state_bytes + plan->carried_bytes);
  }
  void* state_tensor(uint32_t index) const { return arena.base + plan->state[index].tensor.offset; }
  StepScalars& scalars() const { return *static_cast<StepScalars*>(state_tensor(0)); }
};

// Checks the plan (check.h), that the backend has every kernel it calls, and that the arena holds it; clears State and
// Carried, fills the rest of the arena with the canary, and sets the weights by initialise_state. `plan`, `backend` and
// `workers` must outlive the trainer. The arena serves as the checker's workspace before it is cleared. A plan with disk_bytes
// needs a disk that holds them.
Status bind(const Plan& plan, const Backend& backend, const Workers& workers, Arena arena, Trainer& trainer, const Disk& disk = {});

// Draws parameters from the plan's seed: each from its own random stream, by InitKind. Buffers get their constants.
void initialise_state(const Trainer& trainer);

// Writes one micro-batch: input as the plan's input slot has it, labels i32. Called before every micro-batch.
struct BatchSource {
  void* state = nullptr;
  Status (*fill)(void* state, uint64_t step, uint32_t micro_batch, void* input, int32_t* labels) = nullptr;
};

struct StepReport {
  double loss = 0;  // mean over micro-batches, before the update
  float gradient_norm = 0;
  float learning_rate = 0;
};

// One optimizer step over plan.accumulate micro-batches. On an error no weight has changed and trainer.step stays.
// (With gradient release a non-finite loss changes nothing either; a bad label in a later micro-batch cannot occur; but a disk
// that fails in the middle of the step leaves some weights updated and others not: such a state must not be saved.)
// However it ends, no transfer is under way when it returns.
Status train_step(Trainer& trainer, const BatchSource& source, StepReport& report);

struct EvaluationReport {
  double loss = 0;  // mean over the labelled samples
  uint64_t labelled = 0;
  uint64_t correct = 0;
};

// The evaluation program over `batches` micro-batches; source.fill gets the batch's number as `step`.
Status evaluate(Trainer& trainer, const BatchSource& source, uint64_t batches, EvaluationReport& report);

double learning_rate_at(const LearningRate& rate, uint64_t step);

// Highest byte of the arena ever written since bind, rounded up to kAlignment: found by the canary, not from the plan.
uint64_t measured_bytes(const Trainer& trainer);

// The one switch from row to kernel (dispatch.cpp). `probe`: only says whether the backend has the kernel.
Status dispatch(const Trainer& trainer, const Program& program, const Row& row, bool probe);

}  // namespace reprise
