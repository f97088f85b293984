// bind, train_step, evaluate: runs a plan inside an arena.
// Here is all that an application calls after its port has given it memory and workers. Nothing is decided here: rows come in order,
// addresses are the plan's.
#pragma once

#include "lib/backend.h"
#include "lib/batch.h"
#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// Sees every row before and after it is called: profilers and tests. Both may be null. A backend may only have queued it: who wants
// its result, or its time, synchronises.
struct RowObserver {
  void* state = nullptr;
  void (*before)(void* state, ProgramId program, uint32_t row) = nullptr;
  void (*after)(void* state, ProgramId program, uint32_t row) = nullptr;
};

// Host memory that bind alone uses, aligned as malloc does. It may be the arena's own where that is the host's.
struct Workspace {
  void* base = nullptr;
  uint64_t bytes = 0;
};

// What a plan runs in. All but the workspace is the trainer's until it ends.
struct Resources {
  Arena arena = {};                  // plan.arena_bytes at least
  const Workers* workers = nullptr;  // must outlive the trainer
  Disk disk = {};                    // of a plan that spills to disk, of its spill_bytes
  Disk weights = {};                 // of a plan with streamed_bytes: the file of its weights, which is only read
  HostMemory host_memory = {};       // of a plan that spills to the host, of its spill_bytes
  Peers peers = {};                  // of a plan for several ranks, of as many
  Workspace workspace = {};          // check_marks(plan) marks of check.h, until bind has checked: they may lie in the arena, written after that
  bool eager = false;                // each row is called and waited for: slower on a device, but an error names its row
};

struct Trainer {
  const Plan* plan = nullptr;
  const Backend* backend = nullptr;
  KernelContext context;
  Arena arena;
  Disk disk, weights;
  HostMemory host_memory;
  Peers peers;
  uint64_t step = 0;  // steps done; a resumed run sets it
  uint64_t highest = 0;    // what measured_bytes had found when the canary was laid again
  uint64_t generated = 0;  // positions of a sequence that the caches hold; none once another program has run
  uint32_t found_by = kUnknownRank;  // of the last step: the rank that was the first to find its data, or its loss, wrong
  RowObserver observer;  // while there is one, rows are called one by one
  bool (*stops)() = nullptr;  // asked before each row that is called by itself: true ends the program there, with Code::kStopped
  bool eager = false;
  void* recordings[kProgramCount] = {};  // of the backend's recorder; null: the program's rows are called one by one

  ArenaAddress region(Region which) const {
    return arena.base + (which == Region::kState ? 0 : which == Region::kCarried ? plan->state_bytes : plan->state_bytes + plan->carried_bytes);
  }
  // Of one that lies in the arena.
  ArenaAddress state_tensor(uint32_t index) const { return arena.base + plan->state[index].tensor.offset; }

  // Between steps or rows: bytes of the host into the arena, and back. `read` waits for what is queued.
  Status write(ArenaAddress to, const void* from, uint64_t bytes) const { return backend->host.copy_in(context, to, from, bytes); }
  Status read(void* to, ArenaAddress from, uint64_t bytes) const {
    REPRISE_RETURN_IF_ERROR(backend->host.copy_out(context, to, from, bytes));
    return backend->host.synchronise(context);
  }
  // The same of a tensor of State that is not streamed, `at` bytes from its start, wherever it lies.
  Status write_state(uint32_t index, uint64_t at, const void* from, uint64_t bytes) const;
  Status read_state(uint32_t index, uint64_t at, void* to, uint64_t bytes) const;
};

// Checks the plan (check.h), that the backend has every kernel it calls, and that the arena holds it; clears State, fills Carried and the
// rest of the arena with the canary, and draws the weights from the plan's seed: each parameter from its own
// random stream, by InitKind; buffers get their constants. Where the backend can, the programs are recorded. `plan` and `backend` must
// outlive the trainer.
Status bind(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer);
Status bind(const Plan& plan, Backend&& backend, const Resources& resources, Trainer& trainer) = delete;  // would not outlive it

// bind without the proof, for a plan that the compiler has proved in this program: the very constant that PlanIsSafe held. A plan that came any
// other way is bind's. `resources.workspace` is not used.
Status bind_proved(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer);
Status bind_proved(const Plan& plan, Backend&& backend, const Resources& resources, Trainer& trainer) = delete;

// What bind looks at before it touches the arena, the proof above all: of a plan that may take over later.
Status check_plan(const Plan& plan, const Backend& backend, const Resources& resources);

// Another plan takes over between steps. State is the same in both (same_state.h) and stays as it lies; behind it all is as after bind: canary,
// nothing measured, no sequence begun, the programs recorded anew. `resources` are those of bind but for the arena, which begins at the same
// address and has the plan's arena_bytes. What bind_proved refuses, and another State, is refused before anything is touched, and the trainer
// goes on in the plan that it has; a device that fails later leaves a trainer that runs nothing. The plan is proved, by the compiler or by check_plan.
Status rebind(const Plan& plan, const Resources& resources, Trainer& trainer);

// Gives back the recordings that bind made, and nothing on a backend without a recorder. After it the trainer runs nothing.
void unbind(Trainer& trainer);

// What pairs came to: means over answers, 0 where there is none.
struct JudgedAnswers {
  double rewards[2] = {};  // of those preferred or wished for, and of the others
  double accuracy = 0;     // the share that is judged right (lib/ops/preference.h)
  double margin() const { return rewards[0] - rewards[1]; }
};

struct StepReport {
  double loss = 0;  // mean over the step's labelled rows, before the update
  float gradient_norm = 0;
  float learning_rate = 0;
  JudgedAnswers answers;  // of a plan that judges pairs
};

// One optimizer step over plan.accumulate micro-batches, of which one label at least is not kIgnoredLabel. On an error no weight has changed and trainer.step stays. What kernels find
// wrong in data is known when the step is over: its other micro-batches are asked for all the same.
// (With gradient release a loss that is not finite, or a fault in the data, changes nothing either; but a disk that fails in the middle
// of the step leaves some weights updated and others not: such a state must not be saved.)
// However it ends, no transfer is under way when it returns.
Status train_step(Trainer& trainer, const BatchSource& source, StepReport& report);

struct EvaluationReport {
  double loss = 0;  // mean over the labelled samples
  uint64_t labelled = 0;
  uint64_t correct = 0;
  JudgedAnswers answers;  // of a plan that judges pairs
};

// The evaluation program over `batches` micro-batches; the source gets the batch's number as `step`.
Status evaluate(Trainer& trainer, const BatchSource& source, uint64_t batches, EvaluationReport& report);

// Whether the plan judges pairs, and how many a micro-batch has room for.
uint64_t pair_count(const Plan& plan);
// The evaluation program over micro-batch `batch` of a plan that judges pairs: the log-probabilities of both answers of each of its pair_count()
// pairs, 0 where there is none.
Status log_probabilities(Trainer& trainer, const BatchSource& source, uint64_t batch, double (*answers)[2]);

// Positions of a sequence that the plan's caches have room for, and tokens that generate() takes at once; 0 without such a program.
struct GenerationLimits {
  uint64_t positions = 0;
  uint32_t tokens = 0, vocabulary = 0;
};
GenerationLimits generation_limits(const Plan& plan);

// Puts `count` tokens at `position`, `position` + 1, ... of a sequence and answers, in logits[vocabulary], the logits of what follows the last of
// them. 0 begins a sequence; any other must lie within what the caches hold or right behind, so that a sequence goes on where it was, or again
// from an earlier place. A step or an evaluation takes the caches' memory: after it a sequence begins anew.
Status generate(Trainer& trainer, const int32_t* tokens, uint32_t count, uint64_t position, float* logits);

double learning_rate_at(const LearningRate& rate, uint64_t step);

// Highest byte of the arena ever written since bind, rounded up to kAlignment: found by the canary, not from the plan.
Status measured_bytes(const Trainer& trainer, uint64_t& bytes);

// The same of one region, from its start, and found in its own bytes: of State what bind or a row has written, of Carried what rows have, and of
// the region that the programs share what has been written since bind, or since the canary was laid there again; of
// memory of the host what has been spilled there. A disk has no canary.
Status measured_bytes(const Trainer& trainer, Region region, uint64_t& bytes);

// Lays the canary again in the region that the programs share, and behind it: what the next one writes is then seen alone. Between programs,
// where nothing lives there; a sequence that generate has begun must begin anew. measured_bytes still counts what was written before.
Status lay_canary(Trainer& trainer);

// The one switch from row to kernel (dispatch.cpp). `probe`: only says whether the backend has the kernel.
Status dispatch(const Trainer& trainer, const Program& program, const Row& row, bool probe);

}  // namespace reprise
