// The interface of a kernel without its code: its arguments with their roles and storage, its
// properties, its shape contract. Each family of ops (lib/ops) declares its kernels as described
// here; lib/op.h joins them into one table, kOps.
//
// A kernel is declared as a struct with these members:
//   enum { kY, kX, ..., kArity }   the index of each argument, in the order of kInfo
//   fault(call)        returns kNone if the shapes obey the kernel's contract, else the fault
//   kSynopsis          a line that tools print; KernelInfo below describes it
//   kInfo              the kernel's entry of kOps
//   arguments(call)    returns the argument struct of a row; a row of a carrier has none
//
// Letters used for shapes, here and in the kernels' argument structs:
//   N images in a micro-batch   H W height and width of the input   P Q those of the output
//   C channels   K output channels   R S height and width of a window   B sequences   T positions
//   V vocabulary or classes   M rows: the product of all dimensions but the last
#pragma once

#include "lib/fault.h"
#include "lib/plan.h"
#include "lib/weight_format.h"

namespace reprise {

// How a row uses an argument. kUpdated: the row reads and writes it.
enum class Role : uint8_t { kNone, kOutput, kUpdated, kInput, kScratch };

// The kind of an argument, independent of the type of its tensor.
enum class Storage : uint8_t {
  kF32,  // always f32: statistics, small parameters, gradients of weights
  kF64,
  kI32,
  kI64,
  kU8,
  kActivation,  // Activations and their gradients: f32 or bf16. All activations of a row have one type.
  // A parameter matrix, in one of the formats that the backend's rules allow. The matrices of one
  // row may have different formats. Kernels get the matrix as a Weight.
  kWeight,
  kTrained,  // Parameters that an update changes: f32, or bf16 in a group of one tensor.
  // An optimizer's moments: the types of kTrained, or signed 8-bit codes (state_format.h).
  kMoment,
  kSquareMoment,  // Moments that are never negative: the types of kTrained, or unsigned 8-bit codes.
  kClasses,       // Labels of classes: i32, or u8 for maps (is_labelled in batch.h).
  kScalars,       // the StepScalars, state[0]
  // Scratch bytes, which no row reads later. FAMILY_rules.h of lib/cpu and cuda gives their number.
  // check_row.h proves that the plan provides them.
  kScratch,
  // Any type: the kernel only moves bytes. The contract of the kernel states which arguments have
  // equal types.
  kAny,
};

// True if a tensor of type `dtype` may be an argument of kind `storage`. check.h also requires that
// all activations of a row have one type.
constexpr bool may_store(Storage storage, DType dtype) {
  switch (storage) {
    case Storage::kF32: return dtype == DType::kF32;
    case Storage::kF64: return dtype == DType::kF64;
    case Storage::kI32: return dtype == DType::kI32;
    case Storage::kI64: return dtype == DType::kI64;
    case Storage::kActivation: return dtype == DType::kF32 || dtype == DType::kBf16;
    case Storage::kTrained: return dtype == DType::kF32 || dtype == DType::kBf16;
    case Storage::kMoment: return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kDynamic8;
    case Storage::kSquareMoment:
      return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kDynamic8Square;
    case Storage::kClasses: return dtype == DType::kI32 || dtype == DType::kU8;
    case Storage::kWeight: return takes_weights(kEveryWeight, dtype);
    case Storage::kU8:
    case Storage::kScalars:
    case Storage::kScratch: return dtype == DType::kU8;
    case Storage::kAny: return true;
  }
  return false;
}

// The slot of the host that an argument must name: labels, document starts or pairs. kAny: the
// argument must not name one of them.
enum class HostSlot : uint8_t { kAny, kLabels, kDocumentStart, kPairs };

// The carrier of an asynchronous row, which is started, continues while other rows run, and is
// waited for (carriers.h). kNone: a kernel computes the row.
enum class Carrier : uint8_t { kNone, kSpill, kWeights, kPeers };

// One argument of a kernel.
struct ArgumentInfo {
  const char* name = "";            // Name and shape: "x[N,H,W,C]".
  Role role = Role::kNone;          // kNone ends the list of arguments.
  Storage storage = Storage::kF32;  // The types of tensors that the argument may name.
  bool optional = false;            // True if the argument may be kNoRef.
  bool may_accumulate = false;      // True for an output to which a row may add.
  // For an f32 output to which a row adds. True: its old content is the first term of each sum.
  // False: each sum is completed in f32 and then added to the old content.
  bool running = false;
  bool group = false;              // True if the argument names the first tensor of a group of adjacent tensors.
  HostSlot host = HostSlot::kAny;  // The slot of the host that the argument must name.
};

// The capacity of a list of arguments; no kernel has more.
constexpr uint32_t kMaxArguments = 16;

struct ShapedCall;

// The interface of one kernel. Arguments are in the order outputs, updated, inputs, scratch.
//
// In addition to kInfo each kernel has kSynopsis: its computation in one line, which tools print
// (kSynopses in op.h). The line uses the names of the arguments and of the attribute's fields, and
// the letters of shapes. "where" defines other names, and two adjacent names are multiplied.
// kSynopsis is not a member of KernelInfo, so that a program that prints no synopsis does not
// contain the texts.
struct KernelInfo {
  // `op` and `pass` identify the kernel.
  Op op;
  Pass pass;
  const char* name;                        // "linear.forward", for example.
  AttributeKind attribute = kNoAttribute;  // Pool of the kernel's attributes.
  // Output `in_place_output` may have the same slot as input `in_place_input` (indices of
  // arguments); -1: no output may.
  int8_t in_place_output = -1;
  int8_t in_place_input = -1;
  bool copies = false;  // True if the output equals the input.
  // True if the kernel moves its input: an output whose lifetime begins with the row may overlap an
  // input whose lifetime ends with the row.
  bool moves = false;
  // The carrier of the kernel's rows, whose pass is a start or a wait; kNone: a kernel computes
  // them.
  Carrier carrier = Carrier::kNone;
  // True if the attribute may change cost, scratch or shape.
  bool attribute_is_cost = true;
  // Kinds of State that the updated arguments may name, as bits of update_bit().
  uint8_t updates = 0;
  ArgumentInfo arguments[kMaxArguments] = {};         // An entry with Role::kNone ends the list.
  Fault (*shape_fault)(const ShapedCall&) = nullptr;  // The kernel's shape contract.

  // Returns the number of arguments.
  constexpr uint32_t arity() const {
    uint32_t n = 0;
    while (n < kMaxArguments && arguments[n].role != Role::kNone) ++n;
    return n;
  }
  // True if a carrier runs the kernel's rows.
  constexpr bool asynchronous() const { return carrier != Carrier::kNone; }
  // Returns the index of the first input. For an asynchronous row the arguments before it are
  // destinations, and the inputs are their sources in the same order.
  constexpr uint32_t source() const {
    uint32_t n = 0;
    while (arguments[n].role != Role::kInput) ++n;
    return n;
  }
};

// Returns the bit of `kind` in KernelInfo::updates.
constexpr uint8_t update_bit(StateKind kind) { return static_cast<uint8_t>(1u << static_cast<uint32_t>(kind)); }

// A call of a kernel without its memory: the shapes and the attribute. The checker, the planner and
// the scratch rules use it. All pointers are borrowed.
struct ShapedCall {
  Op op;
  Pass pass;
  const Tensor* const* tensors;  // Indexed by argument; the entry of an absent argument is not read.
  uint32_t present;              // Bit n: argument n is present.
  const AttributePools* pools;   // Attributes of the plan.
  uint32_t attribute_index;      // Index into the pool of the kernel's attribute kind.

  // True if argument `i` is present.
  constexpr bool has(uint32_t i) const { return (present >> i & 1u) != 0; }
  // Returns the tensor of argument `i`, which must be present.
  constexpr const Tensor& operator[](uint32_t i) const { return *tensors[i]; }
  // Returns the call's attribute, of type A.
  template <typename A>
  constexpr const A& attribute() const {
    return pools->of<A>()[attribute_index];
  }
};
static_assert(kMaxArguments <= 32, "`present` has a bit for each argument");

// Functions by which a family declares its arguments.
namespace contract {
// Returns an output, which is overwritten.
constexpr ArgumentInfo out(const char* name, Storage storage = Storage::kF32) {
  return {.name = name, .role = Role::kOutput, .storage = storage};
}
// Returns an output to which a row may add.
constexpr ArgumentInfo sum(const char* name, Storage storage = Storage::kF32) {
  return {.name = name, .role = Role::kOutput, .storage = storage, .may_accumulate = true};
}
// Returns an output to which a row may add. The old content is the first term of each sum
// (ArgumentInfo::running).
constexpr ArgumentInfo running_sum(const char* name) {
  return {.name = name, .role = Role::kOutput, .storage = Storage::kF32, .may_accumulate = true, .running = true};
}
// Returns an argument that is read and written.
constexpr ArgumentInfo updated(const char* name, Storage storage = Storage::kF32) {
  return {.name = name, .role = Role::kUpdated, .storage = storage};
}
// Returns an input.
constexpr ArgumentInfo in(const char* name, Storage storage = Storage::kF32) {
  return {.name = name, .role = Role::kInput, .storage = storage};
}
// Returns `argument` as optional.
constexpr ArgumentInfo optional(ArgumentInfo argument) {
  argument.optional = true;
  return argument;
}
// Returns `argument` as the first of a group.
constexpr ArgumentInfo group(ArgumentInfo argument) {
  argument.group = true;
  return argument;
}
// Returns `argument` as required.
constexpr ArgumentInfo required(ArgumentInfo argument) {
  argument.optional = false;
  return argument;
}
// Returns an output for activations or their gradients. The next three return a sum, an updated
// argument and an input.
constexpr ArgumentInfo act_out(const char* name) { return out(name, Storage::kActivation); }
constexpr ArgumentInfo act_sum(const char* name) { return sum(name, Storage::kActivation); }
constexpr ArgumentInfo act_updated(const char* name) { return updated(name, Storage::kActivation); }
constexpr ArgumentInfo act_in(const char* name) { return in(name, Storage::kActivation); }
// Returns an input for a parameter matrix.
constexpr ArgumentInfo weight(const char* name) { return in(name, Storage::kWeight); }
// Returns an input that names the labels, as i32.
constexpr ArgumentInfo labels(const char* name) {
  return {.name = name, .role = Role::kInput, .storage = Storage::kI32, .host = HostSlot::kLabels};
}
// Returns an input that names the labels of classes, i32 or u8.
constexpr ArgumentInfo classes(const char* name) {
  return {.name = name, .role = Role::kInput, .storage = Storage::kClasses, .host = HostSlot::kLabels};
}
// Returns the input for labels in f32: numbers, not classes.
constexpr ArgumentInfo targets(const char* name) {
  return {.name = name, .role = Role::kInput, .storage = Storage::kF32, .host = HostSlot::kLabels};
}
// Returns the optional input for the starts of documents.
constexpr ArgumentInfo document_start() {
  return {.name = "document_start[B,T]",
          .role = Role::kInput,
          .storage = Storage::kI32,
          .optional = true,
          .host = HostSlot::kDocumentStart};
}
// Returns the input for pairs of answers.
constexpr ArgumentInfo pairs() {
  return {.name = "pairs[P,8]", .role = Role::kInput, .storage = Storage::kF64, .host = HostSlot::kPairs};
}
// Returns the StepScalars as an input.
constexpr ArgumentInfo scalars_in() { return in("scalars", Storage::kScalars); }
// Returns the StepScalars as an argument that is read and written.
constexpr ArgumentInfo scalars_updated() { return updated("scalars", Storage::kScalars); }
// Returns the argument for scratch.
constexpr ArgumentInfo scratch() {
  return {.name = "scratch", .role = Role::kScratch, .storage = Storage::kScratch, .optional = true};
}
}  // namespace contract

// Functions by which a family states its shape contract. An absent argument obeys every rule.
namespace shape {
// Returns kNone if `holds`, else `otherwise`.
constexpr Fault require(bool holds, Fault otherwise = Fault::kShape) { return holds ? Fault::kNone : otherwise; }
// True if argument `i` has `n` elements.
constexpr bool has_elements(const ShapedCall& c, uint32_t i, uint64_t n) { return !c.has(i) || c[i].elements() == n; }
// True if argument `i` is a matrix of `rows` x `columns`.
constexpr bool is_matrix(const ShapedCall& c, uint32_t i, uint64_t rows, uint64_t columns) {
  return !c.has(i) || (c[i].rank == 2 && c[i].shape[0] == rows && c[i].shape[1] == columns);
}
// True if the four dimensions of `t` are a, b, c and d.
constexpr bool is_shape(const Tensor& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return t.shape[0] == a && t.shape[1] == b && t.shape[2] == c && t.shape[3] == d;
}
// True if the two tensors have equal last dimensions and equal numbers of elements.
constexpr bool same_rows(const Tensor& a, const Tensor& b) {
  return a.last_dimension() == b.last_dimension() && a.elements() == b.elements();
}
// True if the `count` arguments from `first` on are vectors of `n` elements. The loop makes no
// function calls, because a compiler evaluates it thousands of times.
constexpr bool are_vectors(const ShapedCall& c, uint32_t first, uint32_t count, uint64_t n) {
  for (uint32_t i = first; i < first + count; ++i) {
    if ((c.present >> i & 1u) == 0) continue;
    const Tensor& t = *c.tensors[i];
    if (t.rank > 1 || t.shape[0] != n) return false;
  }
  return true;
}
// True if argument `i` is a vector of `n` elements.
constexpr bool is_vector(const ShapedCall& c, uint32_t i, uint64_t n) { return are_vectors(c, i, 1, n); }
// Returns kNone if the first `count` arguments have one type and equal numbers of elements.
constexpr Fault same_bytes(const ShapedCall& c, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    if (c[i].dtype != c[0].dtype) return Fault::kDType;
    if (c[i].elements() != c[0].elements()) return Fault::kShape;
  }
  return Fault::kNone;
}
// Returns kNone if the first `count` arguments have equal numbers of elements.
constexpr Fault all_alike(const ShapedCall& c, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    if (c[i].elements() != c[0].elements()) return Fault::kShape;
  }
  return Fault::kNone;
}
// True if `out` has the shape of the window's outputs over the images `in`.
constexpr bool slides(const WindowAttribute& a, const Tensor& in, const Tensor& out) {
  return in.rank == 4 && out.rank == 4 && in.shape[0] == out.shape[0] && out.shape[1] > 0 && out.shape[2] > 0 &&
         a.rows().outputs(in.shape[1]) == out.shape[1] && a.columns().outputs(in.shape[2]) == out.shape[2];
}
}  // namespace shape

}  // namespace reprise
