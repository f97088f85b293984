// The plan: one State and several Programs, a plain value that an offline planner writes.
// Here because it is the seam between tools and lib (DESIGN 3); PLAN.md explains every field.
// It must not know why a slot is kept, nor what a checkpoint is: recomputation is a repeated row.
#pragma once

#include "lib/attributes.h"
#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kPlanFormat = 2;
constexpr uint32_t kMostRanks = 64;
constexpr uint32_t kEveryRank = ~0u;

// clang-format off
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
  kShare, kSpread,
};
enum class Pass : uint8_t {
  kForward, kBackward, kBackwardData, kBackwardWeight, kBackwardBias,
  kStatistics, kRunning, kInference, kEvaluate, kReduce, kFinish, kUpdate, kStart, kWait, kDecode,
};
// clang-format on

// A reference to a tensor: the region in the two top bits, the index in the rest.
using Ref = uint32_t;
enum class Region : uint32_t { kProgram = 0, kCarried = 1, kState = 2, kSpill = 3 };
constexpr Ref kNoRef = ~0u;  // an optional argument that is absent: the last block, which no plan reaches

constexpr Ref make_ref(Region region, uint32_t index) { return static_cast<uint32_t>(region) << 30 | index; }
constexpr Region ref_region(Ref ref) { return static_cast<Region>(ref >> 30); }
constexpr uint32_t ref_index(Ref ref) { return ref & 0x3fffffffu; }

// One kernel call. Arity and roles come from kernel_info(op, pass) in op.h; the row never states them.
struct Row {
  Op op;
  Pass pass;
  uint8_t queue = 0;        // 0 computes; others carry asynchronous transfers
  uint16_t accumulate = 0;  // bit n: output n is added to what the slot holds, instead of overwriting it
  uint32_t attribute = 0;   // index into the pool of the kernel's attribute kind
  uint32_t link = 0;        // of the chain; for reports only
  uint32_t first_argument;  // into the program's argument pool
};

// For reports, but for kCache: what a program that generates holds from one of its runs to the next, while no other program runs. The trainer
// sees to it that a row of a cache is written before a kernel is told to read it.
enum class SlotUse : uint8_t { kInput, kLabel, kBoundary, kTape, kTransient, kGradient, kWeightGradient, kSmall, kScratch, kCache, kWeight };

constexpr uint32_t kNoSlot = ~0u;

// Planned memory of a program, live in rows [first_row, end_row). Slots stand in the order of their birth.
struct Slot {
  Tensor tensor;  // offset counts from the start of the program's region
  uint32_t first_row = 0;
  uint32_t end_row = 0;
  uint32_t below = kNoSlot;  // the live slot next below at birth; a hint that check() verifies
  SlotUse use = SlotUse::kTransient;
};

struct Program {
  Span<Row> rows;
  Span<Ref> arguments;
  Span<Slot> slots;
  uint64_t bytes = 0;         // of its region: the highest end of a slot
  uint32_t input = kNoSlot;   // slot the host fills before the first row: images [N,H,W,C], stored as activations are, or tokens [B,T] i32
  uint32_t labels = kNoSlot;  // slot the host fills: classes, [N] or [B,T] i32 or of maps u8, or numbers, f32; is_labelled() says where there is one
  uint32_t document_start = kNoSlot;  // slot the host fills: [B,T] i32, the position at which t's document starts; absent where a sequence is one
  uint32_t output = kNoSlot;  // slot the host reads after the last row: the logits [1,P,V] of a program that generates; log-probabilities
                              // [P,2] f64 of one that evaluates pairs
  uint32_t pairs = kNoSlot;   // slot the host fills: [P,8] f64, JudgedPairs; absent where labels alone are learned
  uint32_t token_types = kNoSlot;  // slot the host fills: [B,T] i32, to which of a row's texts each token belongs; absent where nothing reads it
  Span<Slot> spilled = {};    // blocks of the second level, in the order of their birth; a stack: `below` is unused
};

// Table: numbers of the plan's own, in no snapshot. Streamed: a frozen parameter that lies in the file of weights and not in the arena; its
// offset counts from the start of that file, and load rows bring it into slots, from there or from the ranks (shard_bytes). Offloaded: moments that lie in memory of the host and not in the
// arena; their offset counts from its start, they stand in front of all blocks there, and transfers bring them into slots and take them back.
enum class StateKind : uint8_t { kScalars, kParameter, kBuffer, kOptimizer, kNorms, kTable, kStreamed, kOffloaded };
enum class InitKind : uint8_t { kConstant, kNormal, kUniform, kTable };

// What lives between steps; snapshots are written by name. Depends on model and optimizer, never on budget.
struct StateTensor {
  Tensor tensor;
  StateKind kind = StateKind::kParameter;
  InitKind init = InitKind::kConstant;
  float init_scale = 0;  // the constant, the standard deviation (mean 0), or the bound of U(-bound, bound)
  const char* name = "";
  uint32_t first_number = 0;  // kTable: of the plan's numbers, the tensor's first
  // kOptimizer: the rank that alone has it. Rows that update it run there, and on no other rank. Behind what all ranks have, each has its own, from
  // the same address on.
  uint32_t keeper = kEveryRank;
};

enum class LearningRateKind : uint8_t { kConstant, kStep, kCosine };

// The learning rate of step s (from 0). Warm-up: lr * (s + 1) / warmup_steps while s < warmup_steps. Then constant;
// lr * gamma^(milestones <= s); or lr/2 * (1 + cos(pi * (s - warmup_steps) / (steps - warmup_steps))).
struct LearningRate {
  LearningRateKind kind = LearningRateKind::kConstant;
  double base = 0;
  double gamma = 0.1;
  uint32_t warmup_steps = 0;
  uint32_t steps = 0;
  Span<uint32_t> milestones;
};

// A step runs a program for each micro-batch, the first of which begins the sums of gradients while others add to them, and kUpdate. kMicroLast is
// there where ranks add their own micro-batches before each other's: it runs the last of several, and ends with the sums of all ranks.
// kGenerate takes P tokens [1,P] of one sequence, the last of them perhaps padding, and answers their logits.
enum class ProgramId : uint8_t { kMicroFirst, kMicroAdd, kMicroLast, kUpdate, kEvaluate, kGenerate };
constexpr uint32_t kProgramCount = 6;

constexpr bool runs_micro_batch(ProgramId id) { return id <= ProgramId::kMicroLast; }

// How often a step of `accumulate` micro-batches runs a program.
constexpr uint32_t runs_in_step(ProgramId id, uint32_t accumulate, bool has_last) {
  switch (id) {
    case ProgramId::kMicroAdd: return accumulate - (has_last ? 2 : 1);
    case ProgramId::kMicroLast: return has_last ? 1 : 0;
    case ProgramId::kMicroFirst:
    case ProgramId::kUpdate: return 1;
    default: return 0;
  }
}

// The second level of memory, in which blocks lie that programs spill: a file, or memory of the host beside the arena. A plan has one of them.
enum class SpillLevel : uint8_t { kDisk, kHost };

// FNV-1a, 64 bits: ties a text to what was made from it.
constexpr uint64_t text_hash(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

// Arena = [ State | Carried | the largest program's region ]. A program without rows is absent.
//
// The State of a plan that trains begins with the StepScalars, then the norms (one f64 for each trained parameter), then the trained
// parameters themselves, in the order of their norms. Frozen parameters, buffers and moments follow.
constexpr uint32_t kScalarsIndex = 0, kNormsIndex = 1, kFirstTrained = 2;  // into state

struct Plan {
  uint32_t format = kPlanFormat;
  const char* name = "";
  const char* backend = "cpu";  // the table whose scratch rules the plan was made with
  Span<StateTensor> state;
  Span<float> numbers;          // of the tables in State
  Span<Tensor> carried;         // accumulated gradients, in the order of the parameters; empty with gradient release
  Program programs[kProgramCount];
  AttributePools attributes;
  LearningRate learning_rate;
  uint64_t state_bytes = 0;
  uint64_t carried_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t seed = 0;
  uint32_t accumulate = 1;  // micro-batches per step, of each rank
  uint32_t ranks = 1;       // processes that run the plan, each on micro-batches of its own
  SpillLevel spill_level = SpillLevel::kDisk;
  uint64_t spill_bytes = 0;         // of the second level: the highest end of an offloaded tensor, or of a block of any program
  uint64_t streamed_bytes = 0;      // of the file of weights: the end of the last streamed parameter
  // Of ranks that hold the file's content among them: what is behind the tensors of State in each one's arena, its slice of every streamed
  // parameter. Slice r of one that lies at `offset` is that of rank r, and lies `offset / ranks` behind the shard's start. 0: loads read the file.
  uint64_t shard_bytes = 0;
  uint64_t worker_stack_bytes = 0;  // what the most demanding row needs of a worker's stack
  uint64_t recipe_hash = 0;         // text_hash() of the canonical recipe that the plan was made from; 0: from none

  constexpr const Program& program(ProgramId id) const { return programs[static_cast<uint32_t>(id)]; }
};

// What plan.h holds of one plan. A program may have several of one training, each for a budget of its own: their State is the same (same_state.h).
struct WrittenPlan {
  const Plan* plan;
  const char *recipe, *summary, *hash;  // the canonical recipe; a few lines for a person; the name of the plan in manifests
  Span<uint64_t> smaller_budgets = {};  // for which the same recipe has a plan that takes so many bytes, the largest first
};

constexpr uint64_t micro_batches_of_step(const Plan& plan) { return uint64_t{plan.accumulate} * plan.ranks; }

constexpr uint32_t runs_in_step(const Plan& plan, ProgramId id) {
  return runs_in_step(id, plan.accumulate, plan.program(ProgramId::kMicroLast).rows.count != 0);
}
// What runs a rank's micro-batch of that number in a step, from 0.
constexpr ProgramId program_of_micro_batch(const Plan& plan, uint32_t turn) {
  if (turn == 0) return ProgramId::kMicroFirst;
  return turn <= runs_in_step(plan, ProgramId::kMicroAdd) ? ProgramId::kMicroAdd : ProgramId::kMicroLast;
}

constexpr bool spills_to(const Plan& plan, SpillLevel level) { return plan.spill_bytes > 0 && plan.spill_level == level; }

// Of a reference that check.h has proved.
constexpr const Tensor& tensor_of(const Plan& plan, const Program& program, Ref ref) {
  const uint32_t index = ref_index(ref);
  switch (ref_region(ref)) {
    case Region::kState: return plan.state[index].tensor;
    case Region::kCarried: return plan.carried[index];
    case Region::kSpill: return program.spilled[index].tensor;
    default: return program.slots[index].tensor;
  }
}

// The rank on which alone a row runs; kEveryRank: on all. `arity`: of its kernel.
constexpr uint32_t keeper_of(const Plan& plan, const Program& program, const Row& row, uint32_t arity) {
  for (uint32_t a = 0; a < arity; ++a) {
    const Ref ref = program.arguments[row.first_argument + a];
    if (ref != kNoRef && ref_region(ref) == Region::kState && plan.state[ref_index(ref)].keeper != kEveryRank) return plan.state[ref_index(ref)].keeper;
  }
  return kEveryRank;
}

constexpr bool lies_in_arena(StateKind kind) { return kind != StateKind::kStreamed && kind != StateKind::kOffloaded; }
// Whether what a reference names has an address in the arena: not a block of the second level, nor what is streamed or offloaded of State.
constexpr bool lies_in_arena(const Plan& plan, Ref ref) {
  if (ref_region(ref) == Region::kState) return lies_in_arena(plan.state[ref_index(ref)].kind);
  return ref_region(ref) != Region::kSpill;
}

// Of the second level's memory, what offloaded tensors take in front of all blocks.
constexpr uint64_t offloaded_bytes(const Plan& plan) {
  uint64_t end = 0;
  for (const StateTensor& state : plan.state) {
    if (state.kind == StateKind::kOffloaded) end = state.tensor.offset + state.tensor.bytes;
  }
  return end;
}

// What a kernel finds wrong in data, which nobody can know before the step.
enum class DataFault : uint32_t {
  kNone,
  kToken, kLabel,  // an index that its table does not have
  kDocument,       // the start of a position's document is no position at or before it, or lies inside of another document
  kPair,           // rows of an answer that are none of the micro-batch's
};
struct StepFault {
  DataFault code;
  uint32_t row;       // of the program that was running
  uint64_t position;  // in the micro-batch
};

// The per-step scalars, state[0]: one slot, so that a captured step can be replayed with new numbers.
struct StepScalars {
  uint64_t seed;
  uint32_t step;         // from 0
  uint32_t micro_batch;  // from 0, within the step, among those of all ranks
  uint32_t skip;         // 1: loss or gradient not finite, or a fault; updates leave the weights alone
  float learning_rate;
  float clip_factor;
  float gradient_norm;
  uint64_t step_labelled;  // training: rows with a label in all micro-batches of the step, which the host knows before it
  double loss_sum;       // training: sum over the step's labelled rows of loss / step_labelled; evaluation: sum over labelled samples
  uint64_t labelled;     // evaluation: samples with a real label
  uint64_t correct;      // evaluation: of these, those whose label is the first of the largest logits; of pairs those that are judged right
  StepFault fault;       // the step's first
  double step_weight;    // training: what these rows weigh together, which the host knows before it, too: of classes the sum of their weights
                         // (lib/ops/class_loss.h), of pairs the labels of their whole preferred conversations (lib/ops/preference.h)
  // Of a training on pairs:
  double rewards[2];     // sums over judged answers: of those preferred or wished for, and of the others
  uint64_t judged[2];    // how many
};

// What a program's `pairs` holds, P of them: two answers to one prompt, the preferred one first. Of an answer that is judged alone the second
// one is that of another prompt (lib/ops/preference.h, KTO). Counts are exact in f64.
struct JudgedPair {
  enum : uint32_t { kWish, kWhole, kFirst, kEnd = 4, kReference = 6, kNumbers = 8 };  // as numbers of the tensor; the last three have two each
  double wish;          // 0: no pair, all else is 0; 1: a pair, or an answer that is wished for; -1: one that is not
  double whole;         // the row of the first answer's conversation with which its labels begin, the prompt's included
  double first[2];      // the answers' labels are those of rows [first, end) of the micro-batch
  double end[2];
  double reference[2];  // their log-probabilities under the model that the training is to stay near
};
static_assert(sizeof(JudgedPair) == JudgedPair::kNumbers * sizeof(double));

// What stands where a label is none: of classes stored as i32 and as u8; of numbers, f32, a NaN.
constexpr int32_t kIgnoredLabel = -100;
constexpr uint8_t kIgnoredByte = 255;

}  // namespace reprise
