// What a kernel is to everybody who does not run it: its arguments, their roles and storage, its facts, its shape contract.
// Each family of ops (lib/ops) declares its kernels with these words; lib/op.h joins them into one table, kOps.
//
// Letters used for shapes, here and in the kernels' argument structs:
//   N images in a micro-batch   H W height and width of the input   P Q of the output   C channels   K output channels
//   R S height and width of a window   B sequences   T positions   V vocabulary or classes   M rows (all leading dimensions)
#pragma once

#include "lib/fault.h"
#include "lib/plan.h"
#include "lib/weight_format.h"

namespace reprise {

enum class Role : uint8_t { kNone, kOutput, kUpdated, kInput, kScratch };  // updated: read and written

// What an argument is, apart from how its tensor is stored.
enum class Storage : uint8_t {
  kF32,         // numbers that are always f32: statistics, small parameters, gradients of weights
  kF64,
  kI32,
  kI64,
  kU8,
  kActivation,  // activations and their gradients: f32 or bf16, all of a row alike
  kWeight,      // a matrix of parameters, tensor by tensor in a format that the backend's rules name; kernels take a Weight
  kTrained,     // parameters that an update changes: f32, or bf16 for one tensor alone
  kMoment,      // what an optimizer keeps of each parameter: as kTrained, or in codes of 8 bits with a sign (state_format.h)
  kSquareMoment,  // the same where it is never negative: codes without a sign
  kClasses,     // labels of classes: i32, or of maps u8 (is_labelled in batch.h)
  kScalars,     // the StepScalars, state[0]
  kScratch,     // bytes whose content is nobody's value; how many FAMILY_rules.h of lib/cpu and cuda says, and check_row.h proves
  kAny,         // whatever it is: bytes that somebody else gives a meaning; the row's contract says which arguments are of one type
};

// Whether a tensor of that type may stand where the argument is. All activations of a row are alike, which check.h sees to.
constexpr bool may_store(Storage storage, DType dtype) {
  switch (storage) {
    case Storage::kF32: return dtype == DType::kF32;
    case Storage::kF64: return dtype == DType::kF64;
    case Storage::kI32: return dtype == DType::kI32;
    case Storage::kI64: return dtype == DType::kI64;
    case Storage::kActivation: return dtype == DType::kF32 || dtype == DType::kBf16;
    case Storage::kTrained: return dtype == DType::kF32 || dtype == DType::kBf16;
    case Storage::kMoment: return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kDynamic8;
    case Storage::kSquareMoment: return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kDynamic8Square;
    case Storage::kClasses: return dtype == DType::kI32 || dtype == DType::kU8;
    case Storage::kWeight: return takes_weights(kEveryWeight, dtype);
    case Storage::kU8:
    case Storage::kScalars:
    case Storage::kScratch: return dtype == DType::kU8;
    case Storage::kAny: return true;
  }
  return false;
}

// Labels, starts of documents and pairs are read from the slots that the host fills with them, and nothing else is.
enum class HostSlot : uint8_t { kAny, kLabels, kDocumentStart, kPairs };

// Who carries out an asynchronous row, which is started, goes on while other rows run, and is waited for (carriers.h). None: a kernel computes it.
enum class Carrier : uint8_t { kNone, kSpill, kWeights, kPeers };

struct ArgumentInfo {
  const char* name = "";
  Role role = Role::kNone;
  Storage storage = Storage::kF32;
  bool optional = false;
  bool may_accumulate = false;  // an output that a row may add to
  bool running = false;         // of an f32 output: what is added to is the first term of its sums; else these are complete, as f32, before they are added
  bool group = false;           // names the first of a group of tensors that lie side by side
  HostSlot host = HostSlot::kAny;
};

constexpr uint32_t kMaxArguments = 16;  // more than any kernel has

struct ShapedCall;

// Arguments stand as outputs, updated, inputs; scratch is last.
//
// Beside its kInfo each kernel has kSynopsis: what it computes, in a line that tools print (kSynopses in op.h). Its names are those of the
// arguments and of the attribute's fields, letters those of shapes, "where" defines others; two names side by side are multiplied. It is no
// member, because kInfo is read at run time: a program that prints no synopsis holds none.
struct KernelInfo {
  Op op;
  Pass pass;
  const char* name;
  AttributeKind attribute = kNoAttribute;
  // Output `in_place_output` may share its slot with input `in_place_input` (arguments' indices); -1 for never.
  int8_t in_place_output = -1;
  int8_t in_place_input = -1;
  bool copies = false;             // the output is the input: nothing is computed
  bool moves = false;              // the output, born with the row, may overlap an input that dies with it
  Carrier carrier = Carrier::kNone;  // of an asynchronous row: its pass is a start or a wait
  bool attribute_is_cost = true;   // another attribute may mean another price, scratch or shape
  uint8_t updates = 0;             // kinds of State that its updated arguments may name: bits of update_bit()
  ArgumentInfo arguments[kMaxArguments] = {};
  Fault (*shape_fault)(const ShapedCall&) = nullptr;

  constexpr uint32_t arity() const {
    uint32_t n = 0;
    while (n < kMaxArguments && arguments[n].role != Role::kNone) ++n;
    return n;
  }
  constexpr bool asynchronous() const { return carrier != Carrier::kNone; }
  // Of an asynchronous row, whose first arguments are where something comes to and whose others are, in the same order, where it comes from: the
  // first of these.
  constexpr uint32_t source() const {
    uint32_t n = 0;
    while (arguments[n].role != Role::kInput) ++n;
    return n;
  }
};

constexpr uint8_t update_bit(StateKind kind) { return static_cast<uint8_t>(1u << static_cast<uint32_t>(kind)); }

// A kernel's call as far as shapes tell it, without memory: what checker, planner and scratch rules decide from.
struct ShapedCall {
  Op op;
  Pass pass;
  const Tensor* const* tensors;  // in the order of kOps; the entry of an absent argument is not looked at
  uint32_t present;              // bit n: argument n is there
  const AttributePools* pools;
  uint32_t attribute_index;

  constexpr bool has(uint32_t i) const { return (present >> i & 1u) != 0; }
  constexpr const Tensor& operator[](uint32_t i) const { return *tensors[i]; }
  template <typename A>
  constexpr const A& attribute() const {
    return pools->of<A>()[attribute_index];
  }
};
static_assert(kMaxArguments <= 32, "`present` has a bit for each argument");

// The words in which a family declares its arguments.
namespace contract {
constexpr ArgumentInfo out(const char* name, Storage storage = Storage::kF32) { return {.name = name, .role = Role::kOutput, .storage = storage}; }
constexpr ArgumentInfo sum(const char* name, Storage storage = Storage::kF32) {
  return {.name = name, .role = Role::kOutput, .storage = storage, .may_accumulate = true};
}
constexpr ArgumentInfo running_sum(const char* name) {
  return {.name = name, .role = Role::kOutput, .storage = Storage::kF32, .may_accumulate = true, .running = true};
}
constexpr ArgumentInfo updated(const char* name, Storage storage = Storage::kF32) {
  return {.name = name, .role = Role::kUpdated, .storage = storage};
}
constexpr ArgumentInfo in(const char* name, Storage storage = Storage::kF32) { return {.name = name, .role = Role::kInput, .storage = storage}; }
constexpr ArgumentInfo optional(ArgumentInfo argument) {
  argument.optional = true;
  return argument;
}
constexpr ArgumentInfo group(ArgumentInfo argument) {
  argument.group = true;
  return argument;
}
constexpr ArgumentInfo required(ArgumentInfo argument) {
  argument.optional = false;
  return argument;
}
// Activations and their gradients.
constexpr ArgumentInfo act_out(const char* name) { return out(name, Storage::kActivation); }
constexpr ArgumentInfo act_sum(const char* name) { return sum(name, Storage::kActivation); }
constexpr ArgumentInfo act_updated(const char* name) { return updated(name, Storage::kActivation); }
constexpr ArgumentInfo act_in(const char* name) { return in(name, Storage::kActivation); }
constexpr ArgumentInfo weight(const char* name) { return in(name, Storage::kWeight); }
constexpr ArgumentInfo labels(const char* name) {
  return {.name = name, .role = Role::kInput, .storage = Storage::kI32, .host = HostSlot::kLabels};
}
constexpr ArgumentInfo classes(const char* name) {
  return {.name = name, .role = Role::kInput, .storage = Storage::kClasses, .host = HostSlot::kLabels};
}
constexpr ArgumentInfo targets(const char* name) {
  return {.name = name, .role = Role::kInput, .storage = Storage::kF32, .host = HostSlot::kLabels};
}
constexpr ArgumentInfo document_start() {
  return {.name = "document_start[B,T]", .role = Role::kInput, .storage = Storage::kI32, .optional = true, .host = HostSlot::kDocumentStart};
}
constexpr ArgumentInfo pairs() { return {.name = "pairs[P,8]", .role = Role::kInput, .storage = Storage::kF64, .host = HostSlot::kPairs}; }
constexpr ArgumentInfo scalars_in() { return in("scalars", Storage::kScalars); }
constexpr ArgumentInfo scalars_updated() { return updated("scalars", Storage::kScalars); }
constexpr ArgumentInfo scratch() { return {.name = "scratch", .role = Role::kScratch, .storage = Storage::kScratch, .optional = true}; }
}  // namespace contract

// The words in which a family states its shape contract. An absent argument obeys every rule.
namespace shape {
constexpr Fault require(bool holds, Fault otherwise = Fault::kShape) { return holds ? Fault::kNone : otherwise; }
constexpr bool has_elements(const ShapedCall& c, uint32_t i, uint64_t n) { return !c.has(i) || c[i].elements() == n; }
constexpr bool is_matrix(const ShapedCall& c, uint32_t i, uint64_t rows, uint64_t columns) {
  return !c.has(i) || (c[i].rank == 2 && c[i].shape[0] == rows && c[i].shape[1] == columns);
}
constexpr bool is_shape(const Tensor& t, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return t.shape[0] == a && t.shape[1] == b && t.shape[2] == c && t.shape[3] == d;
}
constexpr bool same_rows(const Tensor& a, const Tensor& b) {
  return a.last_dimension() == b.last_dimension() && a.elements() == b.elements();
}
// Vectors of n at arguments first, first + 1, ... Written without calls: a compiler proves thousands of these.
constexpr bool are_vectors(const ShapedCall& c, uint32_t first, uint32_t count, uint64_t n) {
  for (uint32_t i = first; i < first + count; ++i) {
    if ((c.present >> i & 1u) == 0) continue;
    const Tensor& t = *c.tensors[i];
    if (t.rank > 1 || t.shape[0] != n) return false;
  }
  return true;
}
constexpr bool is_vector(const ShapedCall& c, uint32_t i, uint64_t n) { return are_vectors(c, i, 1, n); }
// The same bytes, whatever they are: so many arguments of one type and as many elements.
constexpr Fault same_bytes(const ShapedCall& c, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    if (c[i].dtype != c[0].dtype) return Fault::kDType;
    if (c[i].elements() != c[0].elements()) return Fault::kShape;
  }
  return Fault::kNone;
}
// All present arguments before the scratch have as many elements as the first.
constexpr Fault all_alike(const ShapedCall& c, uint32_t count) {
  for (uint32_t i = 1; i < count; ++i) {
    if (c[i].elements() != c[0].elements()) return Fault::kShape;
  }
  return Fault::kNone;
}
// The window's outputs over images.
constexpr bool slides(const WindowAttribute& a, const Tensor& in, const Tensor& out) {
  return in.rank == 4 && out.rank == 4 && in.shape[0] == out.shape[0] && out.shape[1] > 0 && out.shape[2] > 0 &&
         a.rows().outputs(in.shape[1]) == out.shape[1] && a.columns().outputs(in.shape[2]) == out.shape[2];
}
}  // namespace shape

}  // namespace reprise
