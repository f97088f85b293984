// bind, train_step, evaluate and the other functions that an application calls after its port has
// provided memory and workers. They run a plan inside an arena. They decide nothing: rows run in
// order, at the plan's addresses.
#pragma once

#include "lib/backend.h"
#include "lib/batch.h"
#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// Functions that are called before and after each row, for profilers and tests; both may be null. A
// device may only have enqueued the row: call synchronise() before you read its result or a clock.
struct RowObserver {
  void* state = nullptr;  // Passed to both functions.
  void (*before)(void* state, ProgramId program, uint32_t row) = nullptr;
  void (*after)(void* state, ProgramId program, uint32_t row) = nullptr;
};

// Memory of the host that bind() uses until it returns, aligned as by malloc. It may be inside an
// arena that is memory of the host.
struct Workspace {
  void* base = nullptr;
  uint64_t bytes = 0;
};

// The resources in which a plan runs. bind() borrows everything for the trainer's lifetime except
// `workspace`, which it uses only until it returns.
struct Resources {
  Arena arena = {};                  // At least plan.arena_bytes bytes.
  const Workers* workers = nullptr;  // Must outlive the trainer.
  Disk disk = {};                    // For a plan that spills to disk: at least its spill_bytes.
  Disk weights = {};                 // For a plan with streamed_bytes: the file of its weights, read-only.
  HostMemory host_memory = {};       // For a plan that spills to the host: at least its spill_bytes.
  Peers peers = {};                  // For a plan for several ranks: as many peers.
  // Space for at least check_marks(plan) marks (check.h). The space may be inside the arena, which
  // bind() initialises after the check.
  Workspace workspace = {};
  // True: synchronise after each row. This is slower on a device, but an error then names its row.
  bool eager = false;
};

// A plan that is bound to a backend and an arena. bind() sets it up; an application may set `step`,
// `observer` and `stops`.
struct Trainer {
  const Plan* plan = nullptr;        // Borrowed; must outlive the trainer.
  const Backend* backend = nullptr;  // Borrowed; must outlive the trainer.
  KernelContext context;             // Passed to every kernel.
  Arena arena;                       // Borrowed, like the resources below.
  Disk disk, weights;
  HostMemory host_memory;
  Peers peers;
  uint64_t step = 0;       // Number of steps done. A resumed run sets it.
  uint64_t highest = 0;    // Result of measured_bytes() when lay_canary() was last called; 0: it was not called.
  uint64_t generated = 0;  // Number of positions in the caches; 0 after any other program has run.
  // The first rank that found its data or its loss faulty in the last step; kUnknownRank: none.
  uint32_t found_by = kUnknownRank;
  RowObserver observer;  // If either function is set, rows are called one by one.
  // Called before each row that is not part of a recording. If it returns true, the program ends
  // there with Code::kStopped. Null: the program is never stopped.
  bool (*stops)() = nullptr;
  bool eager = false;  // Resources::eager as passed to bind().
  // Recordings of the backend's recorder, indexed by ProgramId; null: rows are called one by one.
  void* recordings[kProgramCount] = {};

  // Returns the address of region `which`, which must not be kSpill.
  ArenaAddress region(Region which) const {
    return arena.base + (which == Region::kState     ? 0
                         : which == Region::kCarried ? plan->state_bytes
                                                     : plan->state_bytes + plan->carried_bytes);
  }
  // Returns the address of State tensor `index`, which must be in the arena.
  ArenaAddress state_tensor(uint32_t index) const { return arena.base + plan->state[index].tensor.offset; }

  // Copies `bytes` bytes of the host into the arena. Call this function between steps or rows. The
  // caller may reuse `from` when the function returns.
  Status write(ArenaAddress to, const void* from, uint64_t bytes) const {
    return backend->host.copy_in(context, to, from, bytes);
  }
  // Copies `bytes` bytes of the arena to the host, after all queued work.
  Status read(void* to, ArenaAddress from, uint64_t bytes) const {
    REPRISE_RETURN_IF_ERROR(backend->host.copy_out(context, to, from, bytes));
    return backend->host.synchronise(context);
  }
  // Copies `bytes` bytes to State tensor `index`, `at` bytes from its start. The tensor must not be
  // streamed. Does nothing on a rank that does not have the tensor.
  Status write_state(uint32_t index, uint64_t at, const void* from, uint64_t bytes) const;
  // Copies `bytes` bytes from State tensor `index`, `at` bytes from its start. If a single rank
  // owns the tensor, all ranks must call this function, and all get the bytes.
  Status read_state(uint32_t index, uint64_t at, void* to, uint64_t bytes) const;
};

// Sets up a trainer.
// Checks the plan (check.h), that the backend has every kernel that the plan calls, and that the
// resources suffice. Clears State and fills Carried and the rest of the arena with the canary.
// Draws the weights from the plan's seed: each parameter from its own random stream, as its
// InitKind states. Sets buffers to their constants. Records the programs if the backend has a
// recorder. `plan` and `backend` must outlive the trainer.
// Returns kBadPlan, kArenaTooSmall, kUnsupported, or an error of the backend or the port.
Status bind(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer);
// Refuses a temporary backend, which would not outlive the trainer.
Status bind(const Plan& plan, Backend&& backend, const Resources& resources, Trainer& trainer) = delete;

// Binds as bind() does, but without the proof and without `resources.workspace`. The plan must be
// the constant that the compiler has proved in this program (PlanIsSafe). Any other plan needs
// bind().
Status bind_proved(const Plan& plan, const Backend& backend, const Resources& resources, Trainer& trainer);
Status bind_proved(const Plan& plan, Backend&& backend, const Resources& resources, Trainer& trainer) = delete;

// Checks the plan and the resources as bind() does, but writes nothing to the arena. Use this
// function for a plan that is bound later.
Status check_plan(const Plan& plan, const Backend& backend, const Resources& resources);

// Replaces the trainer's plan between steps. State is the same in both plans (same_state.h) and
// stays in place. The memory after State is as after bind(): it has the canary, nothing is
// measured, no sequence is in the caches, and the programs are recorded again.
// `resources` are those of bind() except the arena, which must begin at the same address and have
// the new plan's arena_bytes. The compiler or check_plan() must have accepted the plan.
// Returns kUnsupported, or another error of bind_proved(), before anything changes; the trainer
// then keeps its plan. If the device fails later, the trainer can run nothing more.
Status rebind(const Plan& plan, const Resources& resources, Trainer& trainer);

// Frees the recordings that bind() made; does nothing without a recorder. The trainer must not run
// anything afterwards.
void unbind(Trainer& trainer);

// The results of judged pairs. Means are over the answers; a mean over none is 0.
struct JudgedAnswers {
  double rewards[2] = {};  // Mean rewards. [0]: preferred or desirable answers; [1]: the others.
  double accuracy = 0;     // Share of pairs that are judged right (lib/ops/preference.h).
  // Returns the difference of the two mean rewards.
  double margin() const { return rewards[0] - rewards[1]; }
};

// The results of one step.
struct StepReport {
  double loss = 0;          // Mean over the step's labelled rows, before the update.
  float gradient_norm = 0;  // Norm of all gradients before clipping.
  float learning_rate = 0;
  JudgedAnswers answers;  // For a plan that judges pairs.
};

// Runs one optimizer step over plan.accumulate micro-batches of each rank. At least one label of
// the step must count (is_labelled). On an error trainer.step is not incremented.
// If kernels find a fault in the data, or if the loss or the gradient is not finite, no weight has
// changed. Such faults are reported after the step, so that all its micro-batches are still
// requested. With gradient release there is one exception: if the loss is finite but the gradient
// is not, some weights have changed.
// After an error of a device, a disk or a peer, or after kStopped, some weights may be updated and
// others not. Such a State must not be saved.
// When the function returns, no transfer is in progress.
Status train_step(Trainer& trainer, const BatchSource& source, StepReport& report);

// The results of an evaluation.
struct EvaluationReport {
  // Mean over the labelled samples, weighted if the classes have weights. It does not depend on the
  // batch size.
  double loss = 0;
  uint64_t labelled = 0;  // Number of samples with a label, or of pairs if the plan judges pairs.
  uint64_t correct = 0;   // Number of samples or pairs that are judged right.
  JudgedAnswers answers;  // For a plan that judges pairs.
};

// Runs the evaluation program on `batches` micro-batches. The source gets the micro-batch's number,
// from 0, as `step`. Returns kUnsupported if the plan has no such program.
Status evaluate(Trainer& trainer, const BatchSource& source, uint64_t batches, EvaluationReport& report);

// Returns the number of pairs in a micro-batch of the evaluation; 0 if the plan judges no pairs.
uint64_t pair_count(const Plan& plan);
// Runs the evaluation program on micro-batch `batch`. Writes to answers[pair_count()] the
// log-probabilities of both answers of each pair, and 0 for an entry without a pair. Returns
// kUnsupported if the plan judges no pairs.
Status log_probabilities(Trainer& trainer, const BatchSource& source, uint64_t batch, double (*answers)[2]);

// The sizes of a plan's generating program; all 0 if the plan has none.
struct GenerationLimits {
  uint64_t positions = 0;               // Positions of a sequence that the caches can store.
  uint32_t tokens = 0, vocabulary = 0;  // Tokens that generate() accepts at once; size of the vocabulary.
};
// Returns the sizes of the plan's generating program.
GenerationLimits generation_limits(const Plan& plan);

// Appends `count` tokens to a sequence, at the positions `position`, `position` + 1, ... Writes to
// logits[vocabulary] the logits of the token that follows the last one.
// Position 0 starts a sequence. Any other position must be one of the positions in the caches, or
// directly follow them. So a sequence continues, or restarts at an earlier position. A step or an
// evaluation overwrites the caches: a new sequence must start afterwards. Returns kUnsupported if
// the arguments exceed generation_limits().
Status generate(Trainer& trainer, const int32_t* tokens, uint32_t count, uint64_t position, float* logits);

// Returns the learning rate of step `step`, counted from 0.
double learning_rate_at(const LearningRate& rate, uint64_t step);

// Finds the end of the highest byte of the arena that was written since bind(), rounded up to
// kAlignment. Searches for the canary; the result is not computed from the plan.
Status measured_bytes(const Trainer& trainer, uint64_t& bytes);

// Finds the end of the highest written byte of one region, counted from the region's start.
// Searches only the bytes of that region. State: bytes that bind() or a row has written. Carried:
// bytes that rows have written. kProgram, the region that programs share: bytes written since
// bind() or lay_canary(). kSpill: bytes written to memory of the host; returns kUnsupported for a
// disk, which has no canary.
Status measured_bytes(const Trainer& trainer, Region region, uint64_t& bytes);

// Fills the programs' shared region, and the arena after it, with the canary again. Writes of the
// next program can then be measured alone. Call this function between programs, when no value in
// that region is needed. A sequence of generate() must start again at position 0. measured_bytes()
// of the complete arena still includes earlier writes.
Status lay_canary(Trainer& trainer);

// Runs one row: converts its references to tensors and addresses, and calls its kernel or carrier.
// If `probe` is true, it only checks that the backend has the kernel.
Status dispatch(const Trainer& trainer, const Program& program, const Row& row, bool probe);

}  // namespace reprise
