// check: proves that a plan is safe to run (DESIGN 3), at compile time in plan.h and again, on the same code, in bind.
// Here because a plan is never trusted: not the planner's addresses, not its hints, not its lifetimes.
// It must not know why a slot is kept or what a kernel computes: wrong values are the replay's business.
#pragma once

#include "lib/op.h"

namespace reprise {

// What is wrong with a plan; each value is one rule.
enum class Fault : uint8_t {
  kNone,             // the plan is safe
  kFormat,           // another format version, no micro-batch, or a program without the one it follows
  kScalars,          // state[0] is not the StepScalars, or a scalars argument names something else
  kSlotOrder,        // slots not in the order of their first rows, or a lifetime empty or outside the program
  kMisaligned,       // an offset, a size or a region is not a multiple of kAlignment
  kOutOfRegion,      // a tensor ends past its region
  kTooFewBytes,      // a tensor reserves fewer bytes than its shape and type need
  kDType,            // a tensor's type is not the one the kernel takes
  kShape,            // shapes break the kernel's contract, or a tensor's own shape makes no sense
  kArenaBytes,       // State, Carried and a program's region do not fit the arena
  kHint,             // `below` does not name the nearest live slot below
  kOverlap,          // two tensors that live at the same time share bytes
  kUnknownKernel,    // no such kernel
  kArgumentPool,     // the row's arguments reach past the pool
  kBadReference,     // an argument names a tensor that does not exist
  kMissingArgument,  // a required argument, or every output, is absent
  kAttribute,        // no such attribute, or its values make no sense for the kernel
  kNotLive,          // a row touches a slot outside its lifetime
  kReadBeforeWrite,  // a row reads what nothing has written
  kReadOnly,         // a row writes what its kernel or program may not write
  kAliasing,         // two arguments of a row name the same tensor and are not the kernel's in-place pair
  kAccumulate,       // adding where the kernel cannot, or overwriting a carried gradient that already holds a sum
  kScratch,          // less scratch than the backend's rule asks for
  kInFlight,         // a slot is touched, or dies, between transfer.start and transfer.wait; or a kernel is off queue 0
  kGroup,            // a group's tensors are not contiguous, not of one kind, or do not match their partners
  kUnused,           // no row touches the slot
  kDisk,             // a row other than a transfer to or from memory touches a disk block
};

constexpr const char* fault_text(Fault fault) {
  switch (fault) {
    case Fault::kNone: return "the plan is safe";
    case Fault::kFormat: return "format version, micro-batch count or set of programs is not one this library runs";
    case Fault::kScalars: return "state[0] must be the StepScalars, and every scalars argument must name it";
    case Fault::kSlotOrder: return "slots must be sorted by first row, with non-empty lifetimes inside the program";
    case Fault::kMisaligned: return "offsets, sizes and regions must be multiples of 256 bytes";
    case Fault::kOutOfRegion: return "a tensor must end inside its region";
    case Fault::kTooFewBytes: return "a tensor must reserve at least the bytes of its shape and type";
    case Fault::kDType: return "an argument must have the type its kernel takes, all activations of a row the same";
    case Fault::kShape: return "shapes must obey the kernel's contract";
    case Fault::kArenaBytes: return "State, Carried and the largest program must fit the arena";
    case Fault::kHint: return "below must name the nearest live slot below";
    case Fault::kOverlap: return "tensors that live at the same time must not share bytes";
    case Fault::kUnknownKernel: return "op and pass must name a kernel";
    case Fault::kArgumentPool: return "a row's arguments must lie in the pool";
    case Fault::kBadReference: return "an argument must name an existing tensor";
    case Fault::kMissingArgument: return "required arguments, and one output at least, must be present";
    case Fault::kAttribute: return "a row must name an existing attribute with values its kernel understands";
    case Fault::kNotLive: return "a row may touch a slot only during its lifetime";
    case Fault::kReadBeforeWrite: return "a row may read only what was written";
    case Fault::kReadOnly: return "a row may write only what its kernel and its program may write";
    case Fault::kAliasing: return "only a kernel's in-place pair may name the same tensor twice";
    case Fault::kAccumulate: return "a row may add only where its kernel can, and may not overwrite a carried sum";
    case Fault::kScratch: return "scratch must have the bytes of the backend's rule";
    case Fault::kInFlight: return "nothing may touch a slot between transfer.start and transfer.wait";
    case Fault::kGroup: return "a group's tensors must be contiguous, of one kind, and match their partners";
    case Fault::kUnused: return "every slot must be used";
    case Fault::kDisk: return "only a transfer to or from memory may touch a disk block";
  }
  return "unknown fault";
}

constexpr uint32_t kNoRow = ~0u;

// Where the first fault lies. `slot` is a Ref: a program's slot shows as its plain index, Carried as 2^30 + i, State as
// 2^31 + i, a disk block as 2^31 + 2^30 + i, none as kNoRef. A fault outside the programs has program == kProgramCount; outside the rows, row == kNoRow.
struct Verdict {
  Fault fault = Fault::kNone;
  uint32_t program = kProgramCount;
  uint32_t row = kNoRow;
  uint32_t slot = kNoRef;

  constexpr bool ok() const { return fault == Fault::kNone; }
};

// The checker's notes on one tensor. The caller gives check_marks(plan) of them, of any content.
struct CheckMark {
  uint32_t above = kNoSlot;  // address-ordered list of the slots not yet seen to be dead; of a disk block the one beneath
  uint32_t touched = 0;      // row + 1 of the latest row that names it
  uint32_t filled_from = 0;  // in flight as a destination: the source's mark + 1
  uint32_t drained_by = 0;   // in flight as a source: transfers under way
  bool written = false;
  bool linked = false;  // in the list
};

// Marks stand in the order State, Carried, the slots of the program being checked, its disk blocks.
constexpr uint32_t check_marks(const Plan& plan) {
  uint32_t most = 0;
  for (const Program& program : plan.programs) {
    const uint32_t own = program.slots.count + program.disk.count;
    most = own > most ? own : most;
  }
  return plan.state.count + plan.carried.count + most;
}

// The backend's scratch function: bytes that the kernel needs for these arguments (kOps order, null where absent).
using ScratchRule = uint64_t (*)(Op op, Pass pass, const Tensor* const* tensors);

namespace proof {

constexpr uint32_t kOpCount = static_cast<uint32_t>(Op::kNormAddRelu) + 1;
constexpr uint32_t kPassCount = static_cast<uint32_t>(Pass::kWait) + 1;

// kOps turned into what a walk over many rows looks up: a search per row would be most of the proof's time.
struct KernelIndex {
  uint8_t kernel[kOpCount][kPassCount] = {};
  uint8_t arity[kKernelCount] = {};
};
constexpr KernelIndex index_kernels() {
  KernelIndex index;
  for (auto& passes : index.kernel) {
    for (uint8_t& kernel : passes) kernel = kKernelCount;
  }
  for (uint8_t i = 0; i < kKernelCount; ++i) {
    index.kernel[static_cast<uint32_t>(kOps[i].op)][static_cast<uint32_t>(kOps[i].pass)] = i;
    index.arity[i] = static_cast<uint8_t>(kOps[i].arity());
  }
  return index;
}
inline constexpr KernelIndex kIndex = index_kernels();

constexpr uint32_t attribute_count(const AttributePools& pools, AttributeKind kind) {
  switch (kind) {
    case AttributeKind::kNone: return ~0u;
    case AttributeKind::kWindow: return pools.window.count;
    case AttributeKind::kNorm: return pools.norm.count;
    case AttributeKind::kLinear: return pools.linear.count;
    case AttributeKind::kGelu: return pools.gelu.count;
    case AttributeKind::kAttention: return pools.attention.count;
    case AttributeKind::kDropout: return pools.dropout.count;
    case AttributeKind::kGroup: return pools.group.count;
    case AttributeKind::kClip: return pools.clip.count;
    case AttributeKind::kUpdate: return pools.update.count;
  }
  return 0;
}

constexpr uint64_t kMostElements = uint64_t{1} << 56;  // below it no product of a size can wrap around

// A tensor on its own: type, rank, dimensions, alignment, bytes, and its place in a region of `region_bytes`.
constexpr Fault tensor_fault(const Tensor& tensor, uint64_t region_bytes) {
  const uint64_t unit = dtype_bytes(tensor.dtype);
  if (unit == 0) return Fault::kDType;
  if (tensor.rank > kMaxRank) return Fault::kShape;
  for (uint32_t d = tensor.rank; d < kMaxRank; ++d) {
    if (tensor.shape[d] != 1) return Fault::kShape;
  }
  const uint64_t outer = uint64_t{tensor.shape[0]} * tensor.shape[1],
                 inner = uint64_t{tensor.shape[2]} * tensor.shape[3];
  if (outer == 0 || inner == 0 || outer > kMostElements / inner) return Fault::kShape;
  if (tensor.offset % kAlignment != 0 || tensor.bytes % kAlignment != 0) return Fault::kMisaligned;
  if (tensor.bytes < outer * inner * unit) return Fault::kTooFewBytes;
  if (tensor.bytes > region_bytes || tensor.offset > region_bytes - tensor.bytes) return Fault::kOutOfRegion;
  return Fault::kNone;
}

// ---- the shape contract of every kernel; letters as in op.h ----

// Stands for an absent argument: no tensor of a plan has no bytes. (A null pointer would do, but g++ cannot compare an
// address with null in a constant expression under -fsanitize=undefined.)
inline constexpr Tensor kAbsent;
constexpr bool is_absent(const Tensor* t) { return t->bytes == 0; }

constexpr Fault require(bool holds, Fault otherwise = Fault::kShape) { return holds ? Fault::kNone : otherwise; }
constexpr bool has_elements(const Tensor* t, uint64_t n) { return is_absent(t) || t->elements() == n; }
constexpr bool is_vector(const Tensor* t, uint64_t n) { return is_absent(t) || (t->rank <= 1 && t->shape[0] == n); }
constexpr bool is_matrix(const Tensor* t, uint64_t rows, uint64_t columns) {
  return is_absent(t) || (t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns);
}
constexpr bool is_shape(const Tensor* t, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return t->shape[0] == a && t->shape[1] == b && t->shape[2] == c && t->shape[3] == d;
}
constexpr bool same_rows(const Tensor* a, const Tensor* b) {
  return a->last_dimension() == b->last_dimension() && a->elements() == b->elements();
}

// Windows slide from -pad in steps of `stride` while they end inside the padded input.
constexpr bool slides(uint64_t in, uint64_t kernel, uint64_t stride, uint64_t pad, uint64_t out) {
  return in + 2 * pad >= kernel && (in + 2 * pad - kernel) / stride + 1 == out;
}
constexpr bool slides(const WindowAttribute& a, const Tensor* in, const Tensor* out) {
  return in->rank == 4 && out->rank == 4 && in->shape[0] == out->shape[0] &&
         slides(in->shape[1], a.kernel_h, a.stride, a.pad, out->shape[1]) &&
         slides(in->shape[2], a.kernel_w, a.stride, a.pad, out->shape[2]);
}
constexpr bool is_window(const WindowAttribute& a) { return a.kernel_h > 0 && a.kernel_w > 0 && a.stride > 0; }

constexpr Fault conv_fault(const WindowAttribute& a, const Tensor* in, const Tensor* out, const Tensor* w) {
  if (!is_window(a)) return Fault::kAttribute;
  return require(slides(a, in, out) && w->rank == 4 &&
                 is_shape(w, out->shape[3], a.kernel_h, a.kernel_w, in->shape[3]));
}

// Statistics of y are both wanted or neither.
constexpr Fault conv_forward_fault(const WindowAttribute& a, const Tensor* const* t) {
  if (is_absent(t[1]) != is_absent(t[2])) return Fault::kMissingArgument;
  if (!is_absent(t[1]) && !(a.epsilon > 0)) return Fault::kAttribute;
  if (!is_vector(t[1], t[0]->last_dimension()) || !is_vector(t[2], t[0]->last_dimension())) return Fault::kShape;
  return conv_fault(a, t[3], t[0], t[4]);
}

// A window that lies wholly in the padding has no maximum, and the index of one must fit a byte.
constexpr Fault max_pool_fault(const WindowAttribute& a, const Tensor* in, const Tensor* out, const Tensor* index) {
  if (!is_window(a) || a.pad >= a.kernel_h || a.pad >= a.kernel_w || uint32_t{a.kernel_h} * a.kernel_w > 256)
    return Fault::kAttribute;
  return require(slides(a, in, out) && in->shape[3] == out->shape[3] && same_shape(*index, *out));
}

// Channels are the last dimension; means, rstds, scales and offsets hold one value per channel.
constexpr Fault batch_norm_fault(Pass pass, const NormAttribute& a, const Tensor* const* t) {
  if (pass == Pass::kRunning) {
    const uint64_t C = t[0]->elements();
    if (a.count == 0) return Fault::kAttribute;
    return require(is_vector(t[0], C) && is_vector(t[1], C) && is_vector(t[2], 1) && is_vector(t[3], C) &&
                   is_vector(t[4], C));
  }
  const Tensor* x = pass == Pass::kStatistics ? t[2] : pass == Pass::kBackward ? t[3] : t[1];
  const uint64_t C = x->last_dimension();
  if (a.count != x->leading_elements()) return Fault::kAttribute;
  switch (pass) {
    case Pass::kStatistics: return require(is_vector(t[0], C) && is_vector(t[1], C));
    case Pass::kBackward:
      return require(same_rows(t[0], x) && same_rows(t[7], x) && is_vector(t[1], C) && is_vector(t[2], C) &&
                     is_vector(t[4], C) && is_vector(t[5], C) && is_vector(t[6], C));
    default:  // forward and inference
      return require(same_rows(t[0], x) && is_vector(t[2], C) && is_vector(t[3], C) && is_vector(t[4], C) &&
                     is_vector(t[5], C));
  }
}

// Mean, rstd, gamma, beta.
constexpr bool are_norm_vectors(const Tensor* const* t, uint64_t C) {
  return is_vector(t[0], C) && is_vector(t[1], C) && is_vector(t[2], C) && is_vector(t[3], C);
}

constexpr bool is_linear(const LinearAttribute& a, const Tensor* x, const Tensor* y, const Tensor* w) {
  const uint64_t C = x->last_dimension(), K = y->last_dimension();
  return x->leading_elements() == y->leading_elements() &&
         (a.input_major != 0 ? is_matrix(w, C, K) : is_matrix(w, K, C));
}
constexpr Fault linear_fault(Pass pass, const AttributePools& pools, uint32_t attribute, const Tensor* const* t) {
  switch (pass) {
    case Pass::kForward:
      return require(is_linear(pools.linear[attribute], t[1], t[0], t[2]) && is_vector(t[3], t[0]->last_dimension()));
    case Pass::kBackwardData: return require(is_linear(pools.linear[attribute], t[0], t[1], t[2]));
    case Pass::kBackwardWeight: return require(is_linear(pools.linear[attribute], t[1], t[2], t[0]));
    default: return require(is_vector(t[0], t[1]->last_dimension()));
  }
}

constexpr Fault layer_norm_fault(Pass pass, const Tensor* const* t) {
  const Tensor* x = t[3];
  const uint64_t C = x->last_dimension(), M = x->leading_elements();
  if (!same_rows(t[0], x)) return Fault::kShape;
  if (pass == Pass::kForward) {
    return require(has_elements(t[1], M) && has_elements(t[2], M) && is_vector(t[4], C) && is_vector(t[5], C));
  }
  return require(is_vector(t[1], C) && is_vector(t[2], C) && has_elements(t[4], M) && has_elements(t[5], M) &&
                 is_vector(t[6], C) && same_rows(t[7], x));
}

constexpr Fault embedding_fault(const Tensor* y, const Tensor* tokens, const Tensor* table, const Tensor* positions) {
  const uint64_t B = tokens->shape[0], T = tokens->shape[1], C = y->last_dimension();
  return require(tokens->rank == 2 && y->rank == 3 && is_shape(y, B, T, C, 1) &&
                 (is_absent(table) || is_matrix(table, table->shape[0], C)) &&
                 (is_absent(positions) || (positions->shape[0] >= T && is_matrix(positions, positions->shape[0], C))));
}

constexpr Fault attention_fault(const AttentionAttribute& a, const Tensor* y, const Tensor* lse, const Tensor* qkv) {
  const uint64_t B = y->shape[0], T = y->shape[1], C = y->shape[2];
  if (a.heads == 0 || C % a.heads != 0 || !(a.dropout >= 0 && a.dropout < 1)) return Fault::kAttribute;
  return require(y->rank == 3 && qkv->rank == 3 && is_shape(qkv, B, T, 3 * C, 1) && lse->rank == 3 &&
                 is_shape(lse, B, a.heads, T, 1));
}

constexpr Fault loss_head_fault(const Tensor* x, const Tensor* w, const Tensor* b, const Tensor* labels) {
  const uint64_t V = w->shape[0];
  return require(is_matrix(w, V, x->last_dimension()) && is_vector(b, V) &&
                 has_elements(labels, x->leading_elements()));
}

// Norms are doubles, each in the place of two floats.
constexpr bool holds_norms(const Tensor* norms, uint64_t count) { return norms->elements() / 2 >= count; }

// Groups have a rule of their own (Checker::check_group); everything else about the shapes of a row is here.
constexpr Fault shape_fault(const AttributePools& pools, const Row& row, const Tensor* const* t) {
  const uint32_t a = row.attribute;
  const bool forward = row.pass == Pass::kForward;
  switch (row.op) {
    case Op::kConv:
      if (forward) return conv_forward_fault(pools.window[a], t);
      if (row.pass == Pass::kBackwardData) return conv_fault(pools.window[a], t[0], t[1], t[2]);
      return conv_fault(pools.window[a], t[1], t[2], t[0]);
    case Op::kNormConv:
      if (!are_norm_vectors(t + (forward ? 5 : 3), t[forward ? 3 : 1]->last_dimension())) return Fault::kShape;
      return forward ? conv_forward_fault(pools.window[a], t) : conv_fault(pools.window[a], t[1], t[2], t[0]);
    case Op::kNormRelu:
      if (pools.norm[a].count != t[3]->leading_elements()) return Fault::kAttribute;
      return require(same_rows(t[0], t[3]) && same_rows(t[8], t[3]) && are_norm_vectors(t + 4, t[3]->last_dimension()) &&
                     is_vector(t[1], t[3]->last_dimension()) && is_vector(t[2], t[3]->last_dimension()));
    case Op::kNormAddRelu:
      if (pools.norm[a].count != t[1]->leading_elements()) return Fault::kAttribute;
      return require(same_rows(t[0], t[1]) && same_rows(t[2], t[1]) && are_norm_vectors(t + 3, t[1]->last_dimension()));
    case Op::kBatchNorm: return batch_norm_fault(row.pass, pools.norm[a], t);
    case Op::kRelu:
    case Op::kGelu:
      return require(t[0]->elements() == t[1]->elements() && (forward || t[0]->elements() == t[2]->elements()));
    case Op::kAdd: return require(t[0]->elements() == t[1]->elements() && t[0]->elements() == t[2]->elements());
    case Op::kCopy:
    case Op::kMove:
    case Op::kTransfer: return require(t[0]->elements() == t[1]->elements());
    case Op::kMaxPool:
      if (forward) return max_pool_fault(pools.window[a], t[2], t[0], t[1]);
      return max_pool_fault(pools.window[a], t[0], t[2], t[1]);
    case Op::kGlobalPool: {
      const Tensor *in = forward ? t[1] : t[0], *out = forward ? t[0] : t[1];
      return require(in->rank == 4 && is_matrix(out, in->shape[0], in->shape[3]));
    }
    case Op::kLinear: return linear_fault(row.pass, pools, a, t);
    case Op::kLayerNorm: return layer_norm_fault(row.pass, t);
    case Op::kEmbedding:
      return forward ? embedding_fault(t[0], t[1], t[2], t[3]) : embedding_fault(t[3], t[2], t[0], t[1]);
    case Op::kAttention:
      if (forward) return attention_fault(pools.attention[a], t[0], t[1], t[2]);
      if (!same_shape(*t[0], *t[1]) || !same_shape(*t[2], *t[4])) return Fault::kShape;
      return attention_fault(pools.attention[a], t[2], t[3], t[1]);
    case Op::kDropout:
      if (!(pools.dropout[a].probability >= 0 && pools.dropout[a].probability < 1)) return Fault::kAttribute;
      return require(t[0]->elements() == t[1]->elements());
    case Op::kLossHead:
      if (row.pass == Pass::kEvaluate) return loss_head_fault(t[1], t[2], t[3], t[4]);
      if (!same_rows(t[0], t[4]) || (!is_absent(t[1]) && !same_shape(*t[1], *t[5]))) return Fault::kShape;
      return !is_vector(t[2], t[5]->shape[0]) ? Fault::kShape : loss_head_fault(t[4], t[5], t[6], t[7]);
    case Op::kGradNorm:
      if (row.pass == Pass::kFinish) return require(pools.clip[a].max_norm >= 0, Fault::kAttribute);
      return require(holds_norms(t[0], uint64_t{pools.group[a].first_norm} + pools.group[a].tensors));
    case Op::kSgd:
    case Op::kAdamW: return Fault::kNone;
  }
  return Fault::kUnknownKernel;
}

// ---- the walk ----

class Checker {
 public:
  constexpr Checker(const Plan& plan, CheckMark* marks, ScratchRule scratch_rule)
      : plan_(plan),
        marks_(marks),
        scratch_rule_(scratch_rule),
        carried_base_(plan.state.count),
        slot_base_(plan.state.count + plan.carried.count) {}

  constexpr Verdict check() {
    if (!check_plan()) return verdict_;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      if (!check_program(p)) return verdict_;
    }
    return {};
  }

 private:
  constexpr bool fail(Fault fault, Ref slot = kNoRef) {
    verdict_ = {fault, program_, row_, slot};
    return false;
  }

  // What holds for all programs together: State, Carried, and the arena's division.
  constexpr bool check_plan() {
    if (plan_.format != kPlanFormat || plan_.accumulate == 0) return fail(Fault::kFormat);
    const Span<Row>& first = plan_.program(ProgramId::kMicroFirst).rows;
    const Span<Row>& add = plan_.program(ProgramId::kMicroAdd).rows;
    const bool trains = first.count != 0;
    if (!trains && (add.count != 0 || plan_.program(ProgramId::kUpdate).rows.count != 0)) return fail(Fault::kFormat);
    if (trains && plan_.accumulate > 1 && add.count == 0) return fail(Fault::kFormat);
    if (plan_.state_bytes % kAlignment != 0 || plan_.carried_bytes % kAlignment != 0 || plan_.disk_bytes % kAlignment != 0) {
      return fail(Fault::kMisaligned);
    }
    if (plan_.state_bytes > plan_.arena_bytes || plan_.carried_bytes > plan_.arena_bytes - plan_.state_bytes) {
      return fail(Fault::kArenaBytes);
    }
    return check_scalars() && check_state() && check_carried();
  }

  constexpr bool check_scalars() {
    if (plan_.state.count == 0) return fail(Fault::kScalars);
    const StateTensor& scalars = plan_.state[0];
    const bool whole = scalars.tensor.dtype == DType::kU8 && scalars.tensor.elements() >= sizeof(StepScalars);
    return scalars.kind == StateKind::kScalars && whole ? true : fail(Fault::kScalars, make_ref(Region::kState, 0));
  }

  constexpr bool check_state() {
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan_.state.count; ++i) {
      marks_[i] = {};
      marks_[i].written = true;
      if (!check_resident(plan_.state[i].tensor, plan_.state_bytes, end, make_ref(Region::kState, i))) return false;
    }
    return true;
  }

  constexpr bool check_carried() {
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan_.carried.count; ++i) {
      marks_[carried_base_ + i] = {};
      if (!check_resident(plan_.carried[i], plan_.carried_bytes, end, make_ref(Region::kCarried, i))) return false;
    }
    return true;
  }

  // Tensors of State and Carried live for ever and stand in the order of their addresses.
  constexpr bool check_resident(const Tensor& tensor, uint64_t region_bytes, uint64_t& end, Ref ref) {
    const Fault fault = tensor_fault(tensor, region_bytes);
    if (fault != Fault::kNone) return fail(fault, ref);
    if (tensor.offset < end) return fail(Fault::kOverlap, ref);
    end = tensor.offset + tensor.bytes;
    return true;
  }

  constexpr bool check_program(uint32_t index) {
    program_ = index;
    row_ = kNoRow;
    here_ = &plan_.programs[index];
    slots_ = here_->slots.data;
    slot_count_ = here_->slots.count;
    notes_ = marks_ + slot_base_;
    disk_base_ = slot_base_ + slot_count_;
    if (here_->bytes % kAlignment != 0) return fail(Fault::kMisaligned);
    if (here_->bytes > plan_.arena_bytes - plan_.state_bytes - plan_.carried_bytes) return fail(Fault::kArenaBytes);
    lowest_ = kNoSlot;
    born_ = 0;
    disk_top_ = kNoSlot;
    disk_born_ = 0;
    open_transfers_ = 0;
    start_marks();
    if (!check_slots(here_->slots, here_->bytes, Region::kProgram) || !check_slots(here_->disk, plan_.disk_bytes, Region::kDisk)) return false;
    if (!check_host_slot(here_->input, true) || !check_host_slot(here_->labels, false)) return false;
    for (row_ = 0; row_ < here_->rows.count; ++row_) {
      if (!check_row(here_->rows[row_])) return false;
    }
    row_ = kNoRow;
    return check_end();
  }

  // Gradients of the previous step are stale: only what micro_first writes may be read by micro_add and update.
  constexpr void start_marks() {
    const bool between_steps = program_ == static_cast<uint32_t>(ProgramId::kMicroFirst) ||
                               program_ == static_cast<uint32_t>(ProgramId::kEvaluate);
    for (uint32_t i = 0; i < slot_base_; ++i) {
      marks_[i].touched = 0;
      if (between_steps && i >= carried_base_) marks_[i].written = false;
    }
  }

  constexpr bool check_slots(const Span<Slot>& slots, uint64_t region_bytes, Region region) {
    uint32_t previous = 0;
    for (uint32_t i = 0; i < slots.count; ++i) {
      const Slot& slot = slots[i];
      mark(make_ref(region, i)) = {};
      if (slot.first_row < previous || slot.end_row <= slot.first_row || slot.end_row > here_->rows.count) {
        return fail(Fault::kSlotOrder, make_ref(region, i));
      }
      previous = slot.first_row;
      const Fault fault = tensor_fault(slot.tensor, region_bytes);
      if (fault != Fault::kNone) return fail(fault, make_ref(region, i));
    }
    return true;
  }

  // The host writes inputs and labels before the first row, so they must be there by then.
  constexpr bool check_host_slot(uint32_t index, bool may_be_activation) {
    if (index == kNoSlot) return true;
    if (index >= slot_count_) return fail(Fault::kBadReference, index);
    const Slot& slot = slots_[index];
    if (slot.first_row != 0) return fail(Fault::kSlotOrder, index);
    if (slot.tensor.dtype != DType::kI32 && !(may_be_activation && is_activation(slot.tensor.dtype)))
      return fail(Fault::kDType, index);
    if (notes_[index].written) return fail(Fault::kAliasing, index);
    notes_[index].written = true;
    return true;
  }

  constexpr bool check_row(const Row& row) {
    if (!find_kernel(row) || !check_births(row) || !check_disk_births() || !check_arguments(row)) return false;
    const Fault fault = shape_fault(plan_.attributes, row, tensors_);
    if (fault != Fault::kNone) return fail(fault);
    if (grouped_ && !check_group(row)) return false;
    if (info_->arguments[arity_ - 1].role == Role::kScratch && !check_scratch(row)) return false;
    return row.op != Op::kTransfer || check_transfer(row);
  }

  // The kernel, its attribute and where its arguments lie; nothing is read through the row before this has passed.
  constexpr bool find_kernel(const Row& row) {
    const uint32_t op = static_cast<uint32_t>(row.op), step = static_cast<uint32_t>(row.pass);
    const uint32_t kernel = op < kOpCount && step < kPassCount ? kIndex.kernel[op][step] : kKernelCount;
    if (kernel == kKernelCount) return fail(Fault::kUnknownKernel);
    info_ = &kOps[kernel];
    arity_ = kIndex.arity[kernel];
    if (row.first_argument > here_->arguments.count || here_->arguments.count - row.first_argument < arity_) {
      return fail(Fault::kArgumentPool);
    }
    if (row.attribute >= attribute_count(plan_.attributes, info_->attribute)) return fail(Fault::kAttribute);
    if (row.queue != 0 && row.op != Op::kTransfer) return fail(Fault::kInFlight);
    refs_ = here_->arguments.data + row.first_argument;
    group_ = group_attribute(row);
    grouped_ = info_->attribute == AttributeKind::kGroup || info_->attribute == AttributeKind::kUpdate;
    const bool in_place = info_->in_place_output >= 0 && refs_[info_->in_place_output] == refs_[info_->in_place_input];
    in_place_ = in_place ? refs_[info_->in_place_output] : kNoRef;
    return true;
  }

  constexpr bool resolve(Ref ref, const Tensor*& tensor) const {
    if (ref < slot_count_) {  // region 0: the reference is the index
      tensor = &slots_[ref].tensor;
      return true;
    }
    const uint32_t index = ref_index(ref);
    const Region region = ref_region(ref);
    if (region == Region::kCarried && index < plan_.carried.count) {
      tensor = &plan_.carried[index];
      return true;
    }
    if (region == Region::kState && index < plan_.state.count) {
      tensor = &plan_.state[index].tensor;
      return true;
    }
    if (region == Region::kDisk && index < here_->disk.count) {
      tensor = &here_->disk[index].tensor;
      return true;
    }
    return false;
  }

  // ---- overlap: an address-ordered list of the live slots; the dead are unlinked when a newcomer meets them ----

  constexpr bool check_births(const Row& row) {
    if (born_ == slot_count_ || slots_[born_].first_row != row_) return true;
    moved_ = row.op == Op::kMove ? moved_slot() : kNoSlot;
    for (; born_ < slot_count_ && slots_[born_].first_row == row_; ++born_) {
      if (!insert(born_)) return false;
    }
    return true;
  }

  // The source of a move row that dies with it: its destination, born there, may overlap it (memmove semantics).
  constexpr uint32_t moved_slot() const {
    if (refs_[0] >= slot_count_ || refs_[1] >= slot_count_) return kNoSlot;
    return slots_[refs_[0]].first_row == row_ && slots_[refs_[1]].end_row == row_ + 1 ? refs_[1] : kNoSlot;
  }

  static constexpr bool disjoint(const Tensor& a, const Tensor& b) {
    return a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
  }

  // Invariant: the list holds every live slot, and those live in it are disjoint and in the order of their addresses.
  constexpr bool insert(uint32_t index) {
    const Tensor& tensor = slots_[index].tensor;
    const uint32_t below = slots_[index].below;
    if (below != kNoSlot && !check_below(index, below)) return false;
    uint32_t next = below == kNoSlot ? lowest_ : notes_[below].above;
    while (next != kNoSlot && (slots_[next].end_row <= row_ || next == moved_)) {
      notes_[next].linked = false;
      next = notes_[next].above;
    }
    if (next != kNoSlot && slots_[next].tensor.offset < tensor.offset + tensor.bytes)
      return fail_neighbour(index, next);
    if (moved_ != kNoSlot && index != refs_[0] && !disjoint(slots_[moved_].tensor, tensor))
      return fail(Fault::kOverlap, index);
    notes_[index].above = next;
    notes_[index].linked = true;
    (below == kNoSlot ? lowest_ : notes_[below].above) = index;
    return true;
  }

  // Disk blocks are a stack: each begins at or past the end of every live one. Invariant: the live ones are in the list from
  // disk_top_ down, each at or past the end of the next.
  constexpr bool check_disk_births() {
    for (; disk_born_ < here_->disk.count && here_->disk[disk_born_].first_row == row_; ++disk_born_) {
      while (disk_top_ != kNoSlot && here_->disk[disk_top_].end_row <= row_) disk_top_ = marks_[disk_base_ + disk_top_].above;
      if (disk_top_ != kNoSlot) {
        const Tensor& top = here_->disk[disk_top_].tensor;
        if (here_->disk[disk_born_].tensor.offset < top.offset + top.bytes) return fail(Fault::kOverlap, make_ref(Region::kDisk, disk_born_));
      }
      marks_[disk_base_ + disk_born_].above = disk_top_;
      disk_top_ = disk_born_;
    }
    return true;
  }

  constexpr bool check_below(uint32_t index, uint32_t below) {
    if (below >= index || !notes_[below].linked || slots_[below].end_row <= row_) return fail(Fault::kHint, index);
    const Tensor& tensor = slots_[below].tensor;
    return tensor.offset + tensor.bytes <= slots_[index].tensor.offset || fail_neighbour(index, below);
  }
  // Either the two overlap, or the hint named a neighbour that is none.
  constexpr bool fail_neighbour(uint32_t index, uint32_t other) {
    return fail(disjoint(slots_[other].tensor, slots_[index].tensor) ? Fault::kHint : Fault::kOverlap, index);
  }

  // ---- arguments: presence, type, life, and who may read and write what ----

  constexpr bool check_arguments(const Row& row) {
    const uint32_t arity = arity_, accumulate = row.accumulate;
    if (accumulate >> arity != 0) return fail(Fault::kAccumulate);
    bool writes = false;
    const Tensor* stored = nullptr;  // the row's first activation, whose type is that of all
    for (uint32_t i = 0; i < arity; ++i) {
      const ArgumentInfo& argument = info_->arguments[i];
      const Ref ref = refs_[i];
      const bool adds = accumulate != 0 && (accumulate >> i & 1) != 0;
      if (adds && (!argument.may_accumulate || ref == kNoRef)) return fail(Fault::kAccumulate, ref);
      if (ref == kNoRef) {
        if (!argument.optional) return fail(Fault::kMissingArgument);
        tensors_[i] = &kAbsent;
        continue;
      }
      const Role role = argument.role;
      const Tensor* tensor = nullptr;
      if (!touch(row, i, ref, role, adds, tensor)) return false;
      tensors_[i] = tensor;
      if (argument.activation) {
        if (stored == nullptr) stored = tensor;
        if (tensor->dtype != stored->dtype || !is_activation(tensor->dtype)) return fail(Fault::kDType, ref);
      } else if (argument.dtype != tensor->dtype && role != Role::kScratch) {
        return fail(Fault::kDType, ref);
      }
      if (argument.dtype == contract::kScalars && !check_bytes(row, role, ref)) return false;
      if (grouped_ && is_group(row.op, i) && !touch_group(row, i, ref, role)) return false;
      if (role == Role::kOutput || role == Role::kUpdated) writes = true;
    }
    return writes || fail(Fault::kMissingArgument);
  }

  static constexpr bool is_activation(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16; }

  // Arguments of type kU8: scratch, the max pool's index, and everywhere else the StepScalars.
  constexpr bool check_bytes(const Row& row, Role role, Ref ref) {
    if (role == Role::kScratch) return ref_region(ref) == Region::kProgram || fail(Fault::kReadOnly, ref);
    return row.op == Op::kMaxPool || ref == make_ref(Region::kState, 0) || fail(Fault::kScalars, ref);
  }

  constexpr const GroupAttribute* group_attribute(const Row& row) const {
    if (info_->attribute == AttributeKind::kGroup) return &plan_.attributes.group[row.attribute];
    return info_->attribute == AttributeKind::kUpdate ? &plan_.attributes.update[row.attribute].group : nullptr;
  }
  static constexpr bool is_group(Op op, uint32_t argument) {
    return op == Op::kGradNorm ? argument == 1 : argument <= last_group(op);
  }
  // The gradients, which come after the groups that they change.
  static constexpr uint32_t last_group(Op op) { return op == Op::kAdamW ? 3 : op == Op::kSgd ? 2 : 1; }

  constexpr bool touch_group(const Row& row, uint32_t argument, Ref first, Role role) {
    const Tensor* tensor = nullptr;
    for (uint32_t t = 1; t < group_->tensors; ++t) {
      if (!touch(row, argument, first + t, role, false, tensor)) return false;
    }
    return true;
  }

  // Existence, life, aliasing, transfers under way, and reading what was written: of one tensor of an argument.
  constexpr bool touch(const Row& row, uint32_t argument, Ref ref, Role role, bool adds, const Tensor*& tensor) {
    if (!resolve(ref, tensor)) return fail(argument_exists(argument) ? Fault::kGroup : Fault::kBadReference, ref);
    bool is_slot = ref < slot_count_;
    CheckMark& note = is_slot ? notes_[ref] : mark(ref);
    if (is_slot && (ref >= born_ || slots_[ref].end_row <= row_)) {
      return fail(in_flight(note, Role::kOutput) ? Fault::kInFlight : Fault::kNotLive, ref);
    }
    if (!is_slot && ref_region(ref) == Region::kDisk) {
      if (!check_disk(row, ref, note)) return false;
      is_slot = true;  // it may be written like one
    }
    const uint32_t now = row_ + 1;
    if (note.touched == now && (ref != in_place_ || argument != static_cast<uint32_t>(info_->in_place_input))) {
      return fail(Fault::kAliasing, ref);
    }
    note.touched = now;
    if (open_transfers_ != 0 && row.op != Op::kTransfer && in_flight(note, role)) return fail(Fault::kInFlight, ref);
    const bool written = note.written;
    if (!written && (role == Role::kInput || role == Role::kUpdated || adds || ref == in_place_)) {
      return fail(Fault::kReadBeforeWrite, ref);
    }
    if (role == Role::kInput) return true;
    if (!is_slot && !check_write(row, ref, role, adds, written)) return false;
    const bool holds_value = role != Role::kScratch;  // what a kernel leaves in its scratch is nobody's value
    if (written != holds_value) note.written = holds_value;
    return true;
  }

  static constexpr bool is_disk(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kDisk; }

  // A block is touched by transfers to or from memory alone, while it lives.
  constexpr bool check_disk(const Row& row, Ref ref, const CheckMark& note) {
    const uint32_t index = ref_index(ref);
    if (row.op != Op::kTransfer || (is_disk(refs_[0]) && is_disk(refs_[1]))) return fail(Fault::kDisk, ref);
    if (index < disk_born_ && here_->disk[index].end_row > row_) return true;
    return fail(in_flight(note, Role::kOutput) ? Fault::kInFlight : Fault::kNotLive, ref);
  }

  // Whether the argument's own tensor has been found: what is missing then is a later one of its group.
  constexpr bool argument_exists(uint32_t argument) const {
    const Tensor* tensor = nullptr;
    return resolve(refs_[argument], tensor);
  }

  // A transfer's destination may not be touched, its source not be written.
  static constexpr bool in_flight(const CheckMark& note, Role role) {
    return note.filled_from != 0 || (note.drained_by != 0 && role != Role::kInput);
  }

  constexpr bool check_write(const Row& row, Ref ref, Role role, bool adds, bool written) {
    if (ref_region(ref) == Region::kState) {
      return (role == Role::kUpdated && updates(row.op, plan_.state[ref_index(ref)].kind)) ||
             fail(Fault::kReadOnly, ref);
    }
    const ProgramId program = static_cast<ProgramId>(program_);
    if (program == ProgramId::kUpdate || program == ProgramId::kEvaluate) return fail(Fault::kReadOnly, ref);
    const bool overwrites_sum = !adds && (written || program == ProgramId::kMicroAdd);
    return !overwrites_sum || fail(Fault::kAccumulate, ref);
  }

  // Which ops may change which part of State; evaluation counts, and changes nothing else.
  constexpr bool updates(Op op, StateKind kind) const {
    if (kind == StateKind::kScalars) return op == Op::kLossHead || op == Op::kGradNorm;
    if (program_ == static_cast<uint32_t>(ProgramId::kEvaluate)) return false;
    switch (kind) {
      case StateKind::kBuffer: return op == Op::kBatchNorm;
      case StateKind::kNorms: return op == Op::kGradNorm;
      default: return op == Op::kSgd || op == Op::kAdamW;
    }
  }

  // ---- groups, scratch, transfers ----

  constexpr bool check_group(const Row& row) {
    if (group_->tensors == 0) return fail(Fault::kGroup);
    const uint32_t gradients = last_group(row.op);
    // A reduction walks the group's Tensors, which stand side by side in Carried alone; State holds no gradients.
    const Region region = ref_region(refs_[gradients]);
    const bool reduces_many = row.op == Op::kGradNorm && group_->tensors > 1;
    if (region == Region::kState || (reduces_many && region != Region::kCarried))
      return fail(Fault::kGroup, refs_[gradients]);
    for (uint32_t i = 0; i <= gradients; ++i) {
      if (refs_[i] == kNoRef || !is_group(row.op, i)) continue;
      const StateKind kind = i == 0 ? StateKind::kParameter : StateKind::kOptimizer;
      if (!check_group_argument(*group_, refs_[gradients], refs_[i], kind)) return false;
    }
    return true;
  }

  // The tensors lie end to end, each shaped like its partner among the gradients, and `elements` covers them all.
  constexpr bool check_group_argument(const GroupAttribute& attribute, Ref gradients, Ref first, StateKind kind) {
    const Tensor *tensor = nullptr, *partner = nullptr;
    uint64_t start = 0, end = 0, used = 0;
    for (uint32_t t = 0; t < attribute.tensors; ++t) {
      const Ref ref = first + t;
      if (!resolve(ref, tensor) || !resolve(gradients + t, partner)) return fail(Fault::kGroup, ref);
      if (ref_region(ref) == Region::kState && plan_.state[ref_index(ref)].kind != kind)
        return fail(Fault::kGroup, ref);
      if (tensor->dtype != DType::kF32 || !same_shape(*tensor, *partner) || tensor->bytes != partner->bytes) {
        return fail(Fault::kGroup, ref);
      }
      if (t == 0) start = tensor->offset;
      if (t != 0 && tensor->offset != end) return fail(Fault::kGroup, ref);
      end = tensor->offset + tensor->bytes;
      used = tensor->offset + tensor->elements() * sizeof(float) - start;
    }
    const bool covers =
        attribute.elements >= used / sizeof(float) && attribute.elements <= (end - start) / sizeof(float);
    return covers ? true : fail(Fault::kGroup, first);
  }

  constexpr bool check_scratch(const Row& row) {
    if (info_->arguments[arity_ - 1].role != Role::kScratch) return true;
    const Tensor* arguments[kMaxArguments] = {};
    for (uint32_t i = 0; i < arity_; ++i) {
      if (refs_[i] != kNoRef) arguments[i] = tensors_[i];
    }
    return tensors_[arity_ - 1]->bytes >= scratch_rule_(row.op, row.pass, arguments) ||
           fail(Fault::kScratch, refs_[arity_ - 1]);
  }

  // touch() has left transfers alone: a start asks what any other row must ask, a wait must find its own pair.
  constexpr bool check_transfer(const Row& row) {
    CheckMark& destination = mark(refs_[0]);
    CheckMark& source = mark(refs_[1]);
    const uint32_t source_id = static_cast<uint32_t>(&source - marks_) + 1;
    if (row.pass == Pass::kStart) {
      if (in_flight(destination, Role::kOutput)) return fail(Fault::kInFlight, refs_[0]);
      if (in_flight(source, Role::kInput)) return fail(Fault::kInFlight, refs_[1]);
      destination.filled_from = source_id;
      ++source.drained_by;
      ++open_transfers_;
      return true;
    }
    if (destination.filled_from != source_id) return fail(Fault::kInFlight, refs_[0]);
    destination.filled_from = 0;
    --source.drained_by;
    --open_transfers_;
    return true;
  }

  constexpr CheckMark& mark(Ref ref) {
    const Region region = ref_region(ref);
    const uint32_t base = region == Region::kProgram   ? slot_base_
                          : region == Region::kCarried ? carried_base_
                          : region == Region::kDisk    ? disk_base_
                                                       : 0;
    return marks_[base + ref_index(ref)];
  }

  constexpr bool check_end() {
    for (uint32_t i = 0; i < slot_count_ + here_->disk.count; ++i) {
      const CheckMark& note = notes_[i];
      const Ref ref = i < slot_count_ ? i : make_ref(Region::kDisk, i - slot_count_);
      if (note.filled_from != 0) return fail(Fault::kInFlight, ref);
      if (note.touched == 0) return fail(Fault::kUnused, ref);
    }
    return open_transfers_ == 0 ? true : fail(Fault::kInFlight);
  }

  // Hot members first: g++ finds a member of a constant by walking over those before it.
  uint32_t row_ = kNoRow;
  const Slot* slots_ = nullptr;  // of the program being walked
  uint32_t slot_count_ = 0;
  CheckMark* notes_ = nullptr;  // the marks of these slots
  uint32_t born_ = 0;           // slots before it have been inserted

  const Ref* refs_ = nullptr;  // of the row being checked, as down to group_
  const KernelInfo* info_ = nullptr;
  uint32_t arity_ = 0;
  Ref in_place_ = kNoRef;  // the tensor that the in-place pair shares, where it does
  const Tensor* tensors_[kMaxArguments] = {};
  const GroupAttribute* group_ = nullptr;
  bool grouped_ = false;  // whether group_ names one

  uint32_t open_transfers_ = 0;
  uint32_t disk_top_ = kNoSlot;  // the latest disk block not yet seen to be dead
  uint32_t disk_born_ = 0;       // disk blocks before it have been born
  uint32_t disk_base_ = 0;       // their first mark
  uint32_t lowest_ = kNoSlot;      // head of the address-ordered list
  uint32_t moved_ = kNoSlot;       // source of the row's move, while its births are looked at
  const Program* here_ = nullptr;  // the program being walked
  uint32_t program_ = kProgramCount;

  const Plan& plan_;
  CheckMark* marks_;
  ScratchRule scratch_rule_;
  uint32_t carried_base_;
  uint32_t slot_base_;
  Verdict verdict_;
};

}  // namespace proof

// Proves the plan, or names its first fault. Time is near-linear in rows and slots. `marks`: check_marks(plan) of them.
constexpr Verdict check(const Plan& plan, CheckMark* marks, ScratchRule scratch_rule) {
  return proof::Checker(plan, marks, scratch_rule).check();
}

// The same with a workspace of its own, for the compiler: plan.h says
//   constexpr Verdict kVerdict = prove<kMarks>(kPlan, scratch_rule);
//   static_assert(PlanIsSafe<kVerdict.fault, kVerdict.program, kVerdict.row, kVerdict.slot>::value);
template <uint32_t marks>
constexpr Verdict prove(const Plan& plan, ScratchRule scratch_rule) {
  CheckMark workspace[marks] = {};
  return check_marks(plan) > marks ? Verdict{Fault::kFormat} : check(plan, workspace, scratch_rule);
}

// Stops the build of a faulty plan with the fault in the message: PlanIsSafe<Fault::kOverlap, program, row, slot>.
template <Fault fault, uint32_t program, uint32_t row, uint32_t slot>
struct PlanIsSafe {
  static_assert(fault == Fault::kNone, "this plan is not safe: PlanIsSafe<fault, program, row, slot>, see lib/check.h");
  static constexpr bool value = fault == Fault::kNone;
};

}  // namespace reprise
