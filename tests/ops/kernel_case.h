// A kernel case: a kernel, the shapes of its arguments, its attribute, and the kind of its data.
// Each case is compared with a reference and with finite differences, runs with several numbers of
// workers and on CPU and CUDA, and serves benchmarks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "tools/plan/graph/named_arguments.h"

namespace reprise::test {

// The kind of a case's data; kPlain is uniform in [-1, 1).
enum class CaseValues : uint8_t {
  kPlain,
  kOffset,      // x is in [99, 101): computing the variance as E[x^2] - E[x]^2 in f32 then fails
  kConstant,    // every element of x is 3.25, so the variance is zero
  kTies,        // small integers, so that the maximum of a window often occurs twice
  kNegative,    // all below -1: a kernel that counts padding as zero finds a wrong maximum
  kLarge,       // large values: exponentials overflow unless the maximum is subtracted
  kEqual,       // all logits, losses or vectors are equal, so that maxima are ties
  kAllLabelled,
  kAllIgnored,
  kBadLow,      // one label, token, pair or start of a document is below the range
  kBadHigh,     // one label, token, pair or start of a document is above the range
  kNonFinite,   // an input contains an infinity
  kNaN,         // an input contains a NaN
  kTiny,        // values much smaller than usual
  kSkip,        // scalars.skip is set before the call
  kSingles,     // every document has one position
  kScattered,   // each position's start is a random earlier position; no division into documents has such starts
};

enum class CaseUse : uint8_t { kTest, kBench };

// std::variant of all attribute types, or std::monostate for a kernel without an attribute.
template <typename List>
struct AnyOf;
template <typename... A>
struct AnyOf<TypeList<A...>> {
  using Type = std::variant<std::monostate, A...>;
};
using CaseAttribute = AnyOf<AttributeTypes>::Type;

// Makes `attribute` the only entry of its pool. The pool then points to `attribute`.
template <typename A>
void set_pool(AttributePools& pools, const A& attribute) {
  static_cast<attribute_list::Pool<A>&>(pools).entries = {&attribute, 1};
}
// Returns the pools of a plan whose only attribute, at index 0, is `attribute`. The pools point to
// `attribute`.
inline AttributePools pools_of(const CaseAttribute& attribute) {
  AttributePools pools;
  std::visit([&pools]<typename A>(const A& value) {
    if constexpr (!std::is_same_v<A, std::monostate>) set_pool(pools, value);
  }, attribute);
  return pools;
}

struct KernelCase {
  // Letters, digits and underscores. The GoogleTest's name contains `id`, so --gtest_filter selects
  // the case.
  std::string id;
  CaseUse use = CaseUse::kTest;
  Op op{};
  Pass pass{};
  std::vector<std::optional<Tensor>> arguments;  // in kOps order, without scratch; absent optional arguments are empty
  CaseAttribute attribute;
  uint32_t accumulate = 0;     // bit n is set if the kernel adds to output n, as in Row
  std::vector<Tensor> group;   // tensors of the group, with offsets from the first one; only for grad_norm.reduce
  CaseValues data = CaseValues::kPlain;
  uint32_t other_labels = 0;   // labels in the step's other micro-batches, which step_labelled also counts
  uint64_t multiply_adds = 0;  // operations, for a benchmark's rate; 0: the benchmark reports bytes per second

  const KernelInfo& info() const { return kernel_info(op, pass); }
  const Tensor& tensor(uint32_t i) const { return *arguments[i]; }
  bool has(uint32_t i) const { return i < arguments.size() && arguments[i].has_value(); }
  bool adds(uint32_t i) const { return (accumulate >> i & 1u) != 0; }
  template <typename Attribute>
  const Attribute& as() const {
    return std::get<Attribute>(attribute);
  }
  bool expects_bad_index() const { return data == CaseValues::kBadLow || data == CaseValues::kBadHigh; }
  bool is_non_finite() const { return data == CaseValues::kNonFinite || data == CaseValues::kNaN; }
};

template <typename K>
using CaseArguments = std::initializer_list<NamedArgument<K, std::optional<Tensor>>>;

// Returns a case of K without an id: named_case<LinearForward>({{A::kX, x}, ...}), where A is an
// alias of LinearForward. Fails if in_order() does.
template <typename K>
KernelCase named_case(CaseArguments<K> arguments, const CaseAttribute& attribute = {}) {
  std::vector<PlacedArgument<Tensor>> placed;
  for (const auto& [argument, tensor] : arguments) placed.push_back({argument, tensor});
  KernelCase c;
  c.op = K::kInfo.op, c.pass = K::kInfo.pass, c.attribute = attribute;
  c.arguments = in_order(K::kInfo, placed);
  return c;
}

inline std::optional<Tensor> shaped(std::initializer_list<uint32_t> shape, DType dtype = DType::kF32) {
  Tensor tensor;
  tensor.dtype = dtype;
  for (const uint32_t dimension : shape) tensor.shape[tensor.rank++] = dimension;
  tensor.bytes = align_up(tensor.used_bytes());
  return tensor;
}
inline std::optional<Tensor> scalars_tensor() { return shaped({uint32_t{sizeof(StepScalars)}}, DType::kU8); }

inline bool is_scalars(const KernelCase& c, uint32_t i) { return c.info().arguments[i].storage == Storage::kScalars; }

// True if the case stores activations as bf16.
inline bool stores_bf16(const KernelCase& c) {
  const uint32_t i = first_activation(c.info());
  return i < c.arguments.size() && c.has(i) && c.tensor(i).dtype == DType::kBf16;
}

// Returns a copy of the case in which all arguments of class `storage` have type `type`, with
// `suffix` added to the id. Returns none if the case has no such argument, or if the rows of such
// an argument are not whole blocks of `type`.
inline std::optional<KernelCase> stored_as(KernelCase c, Storage storage, DType type, const std::string& suffix) {
  bool has_any = false;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.info().arguments[i].storage != storage || !c.has(i)) continue;
    if (!are_whole_blocks(type, c.tensor(i).last_dimension())) return std::nullopt;
    c.arguments[i]->dtype = type;
    c.arguments[i]->bytes = align_up(c.arguments[i]->used_bytes());
    has_any = true;
  }
  c.id += suffix;
  return has_any ? std::optional(std::move(c)) : std::nullopt;
}
inline std::optional<KernelCase> stored_as_bf16(const KernelCase& c) {
  return stored_as(c, Storage::kActivation, DType::kBf16, "_bf16");
}
inline std::optional<KernelCase> weights_as(const KernelCase& c, DType type) {
  return stored_as(c, Storage::kWeight, type, std::string("_") + dtype_info(type).name + "_weights");
}
// True if the case reads weights that are not stored as f32.
inline bool has_stored_weights(const KernelCase& c) {
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.info().arguments[i].storage == Storage::kWeight && c.has(i) && c.tensor(i).dtype != DType::kF32) return true;
  }
  return false;
}

}  // namespace reprise::test
