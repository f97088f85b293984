// The plan: one State and several Programs, a plain value that an offline planner writes and lib
// runs (DESIGN 3). PLAN.md explains every field. A plan does not state why a slot is kept or what a
// checkpoint is. A recomputation is a row that occurs twice.
#pragma once

#include "lib/attributes.h"
#include "lib/tensor.h"

namespace reprise {

// The version of the structs below; bind() refuses a plan of another version.
constexpr uint32_t kPlanFormat = 2;
// The maximum number of ranks of a plan.
constexpr uint32_t kMaxRanks = 64;
// The value of StateTensor::owner for a tensor that every rank has.
constexpr uint32_t kEveryRank = ~0u;

// clang-format off
// The op of a kernel. Plans store the values of Op and Pass: add a new op or pass at the end.
enum class Op : uint8_t {
  kConv, kBatchNorm, kRelu, kAdd, kCopy, kMaxPool, kGlobalPool, kLinear, kLayerNorm, kGelu,
  kEmbedding, kAttention, kDropout, kLossHead, kGradNorm, kSgd, kAdamW, kMove, kTransfer,
  kNormConv, kNormRelu, kNormAddRelu, kRmsNorm, kSwiglu, kRope, kLion, kGroupNorm,
  kAdafactor, kApollo, kMuon, kDora, kLoad, kGather, kPreference, kGeglu, kColumns, kCap,
  kUnary, kMultiply, kBroadcastAdd,
  kPad, kConcat, kReshape, kTranspose, kResize,
  kAvgPool, kConvTranspose, kLearned,
  kTargetLoss, kClassLoss,
  kSoftmax, kProduct, kLearnedRows,
  kPairLoss,
  kShare, kShareInPlace,
};
// The part of an op that a kernel computes.
enum class Pass : uint8_t {
  kForward, kBackward, kBackwardData, kBackwardWeight, kBackwardBias,
  kStatistics, kRunning, kInference, kEvaluate, kReduce, kFinish, kUpdate, kStart, kWait, kDecode,
};
// clang-format on

// A reference to a tensor: its region in the two top bits, its index in the others.
using Ref = uint32_t;
// The region of a tensor. kProgram: a slot of the program. kCarried: a gradient in Carried. kState:
// a tensor of State. kSpill: a spilled block.
enum class Region : uint32_t { kProgram = 0, kCarried = 1, kState = 2, kSpill = 3 };
// An absent optional argument. Its bits would name the last possible spilled block, an index that
// no plan reaches.
constexpr Ref kNoRef = ~0u;

// Returns the reference to tensor `index` of `region`.
constexpr Ref make_ref(Region region, uint32_t index) { return static_cast<uint32_t>(region) << 30 | index; }
// Returns the region of a reference that is not kNoRef.
constexpr Region ref_region(Ref ref) { return static_cast<Region>(ref >> 30); }
// Returns the index of a reference that is not kNoRef.
constexpr uint32_t ref_index(Ref ref) { return ref & 0x3fffffffu; }

// One kernel call. kernel_info(op, pass) in op.h defines the number and the roles of its arguments;
// the row does not store them.
struct Row {
  Op op;
  Pass pass;
  uint8_t queue = 0;        // 0: a kernel; other queues: asynchronous transfers and loads
  uint16_t accumulate = 0;  // Bit n: output n is added to the slot's content instead of overwriting it.
  uint32_t attribute = 0;   // Index into the pool of the kernel's attribute kind.
  uint32_t link = 0;        // The link of the chain to which the row belongs; for reports only.
  uint32_t first_argument;  // Index of the row's first argument in the program's argument pool.
};

// The use of a slot. Only reports read it, except for kCache. The content of a cache lasts from one
// run of the generating program to the next, unless another program runs between. The trainer
// ensures that a kernel reads only positions of a cache that have been written.
enum class SlotKind : uint8_t {
  kInput,
  kLabel,
  kBoundary,
  kTape,
  kTransient,
  kGradient,
  kWeightGradient,
  kSmall,
  kScratch,
  kCache,
  kWeight
};
// The name that plan.h uses. It stays, because the id of a plan is a checksum of that text, and
// because older files of this format must compile.
using SlotUse = SlotKind;

// The index of "no slot".
constexpr uint32_t kNoSlot = ~0u;

// Planned memory of a program, live in rows [first_row, end_row). The slots of a program are in the
// order of their births.
struct Slot {
  Tensor tensor;                      // Its offset counts from the start of the program's region.
  uint32_t first_row = 0;             // First row of the slot's lifetime.
  uint32_t end_row = 0;               // Row after the last of the slot's lifetime.
  uint32_t below = kNoSlot;           // Nearest live slot below this one at its birth; a hint that check() verifies.
  SlotKind use = SlotKind::kTransient;  // For reports only, except kCache.
};

// Rows and the slots that they use. A program without rows is absent.
struct Program {
  Span<Row> rows;       // Run in order.
  Span<Ref> arguments;  // The pool of the rows' arguments.
  Span<Slot> slots;     // In the order of birth.
  uint64_t bytes = 0;   // Bytes of the program's region: the highest end of a slot.
  // The slot that the host fills before row 0 with images [N,H,W,C] in the activations' type, or
  // with tokens [B,T], i32.
  uint32_t input = kNoSlot;
  // The slot that the host fills with labels. They are classes, [N] or [B,T], i32, or u8 for maps;
  // or they are numbers, f32. is_labelled() (batch.h) tells which entries are labels.
  uint32_t labels = kNoSlot;
  // The slot that the host fills with document starts, [B,T] i32: for each position, the position
  // at which its document starts. kNoSlot if each sequence is one document.
  uint32_t document_start = kNoSlot;
  // The slot that the host reads after the last row: logits [1,P,V] of a generating program, or
  // log-probabilities [P,2], f64, of a program that evaluates pairs; else kNoSlot.
  uint32_t output = kNoSlot;
  // The slot that the host fills with P JudgedPairs, [P,8] f64; kNoSlot if the plan
  // judges no pairs.
  uint32_t pairs = kNoSlot;
  // The slot that the host fills with the type of each token, [B,T] i32: the number of the text in
  // its sequence that the token belongs to. kNoSlot if no row reads it.
  uint32_t token_types = kNoSlot;
  // Blocks of the second level, in the order of birth. They form a stack; `below` is unused.
  Span<Slot> spilled = {};
};

// The kind of a tensor of State.
//   kScalars     the StepScalars
//   kParameter   a weight
//   kBuffer      running statistics
//   kOptimizer   moments
//   kNorms       one f64 for each trained parameter: its gradient's sum of squares
//   kTable       numbers of the plan itself, which no snapshot contains
//   kStreamed    a frozen parameter in the file of weights, not in the arena. Its offset counts
//                from the start of the file. Load rows copy it into slots, from the file or from
//                the ranks' shards (Plan::shard_bytes).
//   kOffloaded   moments in memory of the host, not in the arena. Their offsets count from the
//                start of that memory, in which they precede all blocks. Transfers copy them
//                into slots and back.
enum class StateKind : uint8_t { kScalars, kParameter, kBuffer, kOptimizer, kNorms, kTable, kStreamed, kOffloaded };
// How bind() fills a tensor of State before the first step.
enum class InitKind : uint8_t { kConstant, kNormal, kUniform, kTable };

// A tensor that lives from step to step. Snapshots are written by name. State depends on model and
// optimizer, not on the budget.
struct StateTensor {
  Tensor tensor;  // Its offset counts from the start of State, or as StateKind states.
  StateKind kind = StateKind::kParameter;
  InitKind init = InitKind::kConstant;
  float init_scale = 0;       // The constant, the standard deviation (mean 0), or the bound of U(-bound, bound).
  const char* name = "";      // The tensor's key in snapshots.
  uint32_t first_number = 0;  // kTable: index of the tensor's first number in Plan::numbers.
  // kOptimizer: the rank that owns the tensor. Only this rank stores the tensor and runs the rows
  // that update it. The tensors of single owners follow those that all ranks have, and each rank's
  // own tensors begin at the same address.
  uint32_t owner = kEveryRank;
};

// The shape of the learning rate over the steps.
enum class LearningRateKind : uint8_t { kConstant, kStep, kCosine };

// The learning rate of step s, counted from 0. During warm-up (s < warmup_steps): base * (s + 1) /
// warmup_steps. Then kConstant: base. kStep: base * gamma^(number of milestones <= s). kCosine:
// base / 2 * (1 + cos(pi * (s - warmup_steps) / (steps - warmup_steps))).
struct LearningRate {
  LearningRateKind kind = LearningRateKind::kConstant;
  double base = 0;            // The rate after warm-up.
  double gamma = 0.1;         // Factor at each milestone of kStep.
  uint32_t warmup_steps = 0;  // 0: no warm-up.
  uint32_t steps = 0;         // The step at which kCosine ends; 0: unset, and train_step() fails.
  Span<uint32_t> milestones;  // Steps at which kStep multiplies by gamma, in increasing order.
};

// The programs of a plan. A step runs one program for each micro-batch and then kUpdate.
// kMicroFirst starts the sums of gradients; kMicroAdd, for each further micro-batch, adds to them.
// kMicroLast exists if each rank first adds the gradients of its own micro-batches. It then runs
// the rank's last micro-batch and ends with the sums over all ranks.
// kGenerate reads P tokens [1,P] of one sequence, of which the last ones may be padding, and
// computes their logits.
enum class ProgramId : uint8_t { kMicroFirst, kMicroAdd, kMicroLast, kUpdate, kEvaluate, kGenerate };
constexpr uint32_t kProgramCount = 6;

// True if the program runs one micro-batch of a step.
constexpr bool runs_micro_batch(ProgramId id) { return id <= ProgramId::kMicroLast; }

// Returns how often a rank runs a program in a step. `accumulate` is the number of the rank's
// micro-batches in a step. `has_last` is true if the plan has a kMicroLast.
constexpr uint32_t runs_in_step(ProgramId id, uint32_t accumulate, bool has_last) {
  switch (id) {
    case ProgramId::kMicroAdd: return accumulate - (has_last ? 2 : 1);
    case ProgramId::kMicroLast: return has_last ? 1 : 0;
    case ProgramId::kMicroFirst:
    case ProgramId::kUpdate: return 1;
    default: return 0;
  }
}

// The second level of memory, where programs spill blocks: a file, or memory of the host in
// addition to the arena. A plan uses one of them.
enum class SpillLevel : uint8_t { kDisk, kHost };

// Returns the FNV-1a hash, 64 bits, of a text that ends with a zero. The hash identifies the text
// that a plan was made from.
constexpr uint64_t text_hash(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

// Arena = [ State | Carried | the largest program's region ].
//
// The State of a plan that trains starts with the StepScalars. Then come the norms, one f64 for
// each trained parameter, and the trained parameters in the order of their norms. Frozen
// parameters, buffers and moments follow.
constexpr uint32_t kScalarsIndex = 0, kNormsIndex = 1, kFirstTrained = 2;  // indices into Plan::state

// One State and several programs, as tables. All pointers are borrowed and must outlive the plan.
struct Plan {
  uint32_t format = kPlanFormat;
  const char* name = "";  // The recipe's name.
  // The name of the backend with whose rules the plan was made; bind() refuses any other.
  const char* backend = "cpu";
  Span<StateTensor> state;  // Tensors that live from step to step.
  Span<float> numbers;      // Values of the tables in State.
  // Accumulated gradients, in the order of the parameters; empty with gradient release.
  Span<Tensor> carried;
  Program programs[kProgramCount];  // Indexed by ProgramId.
  AttributePools attributes;
  LearningRate learning_rate;
  // Sizes of the regions State and Carried, in bytes.
  uint64_t state_bytes = 0;
  uint64_t carried_bytes = 0;
  // The bytes that the port must provide: State, Carried and the largest program.
  uint64_t arena_bytes = 0;
  uint64_t seed = 0;                           // Seed of all random numbers.
  uint32_t accumulate = 1;                     // Micro-batches of each rank in a step.
  uint32_t ranks = 1;                          // Processes that run the plan, each on its own micro-batches.
  SpillLevel spill_level = SpillLevel::kDisk;  // The second level that the plan uses, if any.
  // Bytes that the plan uses of the second level: the highest end of an offloaded tensor or of a
  // block of any program; 0 if it does not use one.
  uint64_t spill_bytes = 0;
  // Bytes of the file of weights: the end of the last streamed parameter; 0 if no parameter is
  // streamed.
  uint64_t streamed_bytes = 0;
  // Bytes of a rank's shard of the streamed parameters, at the end of its State; 0 if loads read
  // the file. The shard of rank r has slice r of each parameter. If a parameter is at `offset` in
  // the file, its slice is at `offset / ranks` in the shard.
  uint64_t shard_bytes = 0;
  uint64_t worker_stack_bytes = 0;  // Stack bytes of a worker that the most demanding row needs.
  uint64_t recipe_hash = 0;         // text_hash() of the canonical recipe that the plan was made from; 0: none.

  // Returns program `id`, which has no rows if it is absent.
  constexpr const Program& program(ProgramId id) const { return programs[static_cast<uint32_t>(id)]; }
};

// One plan as plan.h contains it. An executable may contain several plans of one training, each for
// its own budget; their State is the same (same_state.h). All members are borrowed.
struct WrittenPlan {
  const Plan* plan;
  // `recipe`: the canonical recipe. `summary`: a few lines for people. `hash`: the plan's name in
  // manifests.
  const char *recipe, *summary, *hash;
  // Smaller budgets in bytes, in descending order, for which the same recipe has a plan.
  Span<uint64_t> smaller_budgets = {};
};

// Returns the number of micro-batches in a step, over all ranks.
constexpr uint64_t micro_batches_of_step(const Plan& plan) { return uint64_t{plan.accumulate} * plan.ranks; }

// Returns how often a rank runs program `id` in a step of the plan.
constexpr uint32_t runs_in_step(const Plan& plan, ProgramId id) {
  return runs_in_step(id, plan.accumulate, plan.program(ProgramId::kMicroLast).rows.count != 0);
}
// Returns the program that runs micro-batch number `turn`, counted from 0, of a rank in a step.
constexpr ProgramId program_of_micro_batch(const Plan& plan, uint32_t turn) {
  if (turn == 0) return ProgramId::kMicroFirst;
  return turn <= runs_in_step(plan, ProgramId::kMicroAdd) ? ProgramId::kMicroAdd : ProgramId::kMicroLast;
}

// True if the plan uses a second level, and this level is `level`.
constexpr bool spills_to(const Plan& plan, SpillLevel level) {
  return plan.spill_bytes > 0 && plan.spill_level == level;
}

// Returns the tensor of a reference that check.h has proved.
constexpr const Tensor& tensor_of(const Plan& plan, const Program& program, Ref ref) {
  const uint32_t index = ref_index(ref);
  switch (ref_region(ref)) {
    case Region::kState: return plan.state[index].tensor;
    case Region::kCarried: return plan.carried[index];
    case Region::kSpill: return program.spilled[index].tensor;
    default: return program.slots[index].tensor;
  }
}

// Returns the only rank that runs a row: the owner of its moments. Returns kEveryRank if all ranks
// run it. `arity` is the number of arguments of the row's kernel.
constexpr uint32_t owner_of(const Plan& plan, const Program& program, const Row& row, uint32_t arity) {
  for (uint32_t a = 0; a < arity; ++a) {
    const Ref ref = program.arguments[row.first_argument + a];
    if (ref != kNoRef && ref_region(ref) == Region::kState && plan.state[ref_index(ref)].owner != kEveryRank)
      return plan.state[ref_index(ref)].owner;
  }
  return kEveryRank;
}

// True if tensors of State of this kind are in the arena.
constexpr bool lies_in_arena(StateKind kind) { return kind != StateKind::kStreamed && kind != StateKind::kOffloaded; }
// True if the tensor of a reference is in the arena. Spilled blocks and streamed or offloaded
// tensors of State are not.
constexpr bool lies_in_arena(const Plan& plan, Ref ref) {
  if (ref_region(ref) == Region::kState) return lies_in_arena(plan.state[ref_index(ref)].kind);
  return ref_region(ref) != Region::kSpill;
}

// Returns the bytes of the offloaded tensors, which precede all blocks in the second level.
constexpr uint64_t offloaded_bytes(const Plan& plan) {
  uint64_t end = 0;
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kOffloaded) end = state.tensor.offset + state.tensor.bytes;
  }
  return end;
}

// A fault that a kernel finds in data, which cannot be known before the step.
enum class DataFault : uint32_t {
  kNone,
  kToken, kLabel,  // a token or a label is out of range
  // A document starts after its position, before 0, or inside another document.
  kDocument,
  kPair,  // the rows of an answer are not rows of the micro-batch
};
// The first fault of a step.
struct StepFault {
  DataFault code;
  uint32_t row;       // The row that was running, as an index in its program.
  uint64_t position;  // The position of the faulty data in the micro-batch.
};

// The scalars of a step, state[0]. They are one tensor in the arena, so that a recorded step can be
// replayed with new numbers.
struct StepScalars {
  // Seed of the plan's random numbers.
  uint64_t seed;
  uint32_t step;         // Number of the step, from 0.
  uint32_t micro_batch;  // Number of the micro-batch in the step, from 0, over all ranks.
  // 1 if the loss or the gradient is not finite, or if a kernel has found a fault; updates then
  // change nothing.
  uint32_t skip;
  float learning_rate;
  // `clip_factor`: factor of the gradients; 1 if nothing clips. `gradient_norm`: norm of all
  // gradients before clipping.
  float clip_factor;
  float gradient_norm;
  // Training: number of rows (samples or positions) with a label in all micro-batches of the step.
  // The host sets it before the step.
  uint64_t step_labelled;
  // Training: sum of loss / step_labelled over the labelled rows of the step. Evaluation: sum of
  // the losses over the labelled samples.
  double loss_sum;
  uint64_t labelled;  // Evaluation: samples with a label.
  // Evaluation: number of labelled samples whose label is the first of the largest logits; or
  // number of pairs that are judged right.
  uint64_t correct;
  StepFault fault;  // First fault of the step; kNone if there is none.
  // Training: total weight of the labelled rows, which the host sets before the step. For weighted
  // classes it is the sum of their weights (lib/ops/class_loss.h). For pairs it is the number of
  // labels in the whole conversations of preferred answers (lib/ops/preference.h).
  // Evaluation: for weighted classes, the sum of the labelled samples' weights; else 0.
  double step_weight;
  // For pairs: sums of the rewards of judged answers. [0]: preferred or desirable answers; [1]: the
  // others.
  double rewards[2];
  uint64_t judged[2];  // For pairs: numbers of judged answers, as in `rewards`.
  // Evaluation of weighted classes: sum of the weighted cross-entropies, to be divided by
  // step_weight. loss_sum does not include it.
  double weighted_loss;
};

// One entry of a program's `pairs`: two answers to one prompt, the preferred one first. If answers
// are judged singly, the second answer belongs to another prompt (lib/ops/preference.h, KTO).
// Counts are stored in f64, exactly.
struct JudgedPair {
  // Indices of the members if the pair is read as an array of numbers. `first`, `end` and
  // `reference` have two numbers each.
  enum : uint32_t { kWish, kWhole, kFirst, kEnd = 4, kReference = 6, kNumbers = 8 };
  // 1: a pair, or a desirable answer. -1: an undesirable answer. 0: no pair; all other members are
  // then 0.
  double wish;
  // The row at which the labels of the first answer's conversation start, including the labels of
  // the prompt.
  double whole;
  // The labels of answer i are those of rows [first[i], end[i]) of the micro-batch.
  double first[2];
  double end[2];
  double reference[2];  // Log-probabilities of the answers under the reference model.
};
static_assert(sizeof(JudgedPair) == JudgedPair::kNumbers * sizeof(double));

// The values that mean "no label": kIgnoredLabel for classes as i32, kIgnoredByte for classes as
// u8. For labels that are f32 numbers, a NaN means "no label".
constexpr int32_t kIgnoredLabel = -100;
constexpr uint8_t kIgnoredByte = 255;

}  // namespace reprise
