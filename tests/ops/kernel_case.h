// A kernel case: a kernel, the shapes of its arguments, its attribute, and what is peculiar about its data.
// Here so that reference comparison, finite differences, worker counts, CPU against CUDA and benchmarks see the same cases.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "tools/graph/named_arguments.h"

namespace reprise::test {

// What is peculiar about a case's data; kPlain is uniform in [-1, 1).
enum class CaseValues : uint8_t {
  kPlain,
  kOffset,      // x lies around 100 with a spread of 1: a variance from E[x^2] - E[x]^2 in f32 fails
  kConstant,    // every x is 3.25: the variance is zero
  kTies,        // small integers: equal values in one window
  kNegative,    // all below -1: a padding of zero would win
  kLarge,       // values eight times as large: exponentials overflow unless shifted
  kEqual,       // the head's weights are zero: every logit is the same
  kAllLabelled,
  kAllIgnored,
  kBadLow,      // one label, token or start of a document is below the range
  kBadHigh,     // one label, token or start of a document is the first above the range
  kNonFinite,   // an input holds an infinity
  kNaN,         // an input holds a NaN
  kTiny,        // values a thousand times as small
  kSkip,        // scalars.skip is set before the call
  kSingles,     // every document has one position
  kScattered,   // a position attends from any place before it, as no documents make it
};

enum class CaseUse : uint8_t { kTest, kBench };

// The one attribute of the kernel's kind.
template <typename List>
struct AnyOf;
template <typename... A>
struct AnyOf<TypeList<A...>> {
  using Type = std::variant<std::monostate, A...>;
};
using CaseAttribute = AnyOf<AttributeTypes>::Type;

// Makes `attribute` the pool of its type. The pool points to it.
template <typename A>
void set_pool(AttributePools& pools, const A& attribute) {
  static_cast<attribute_list::Pool<A>&>(pools).entries = {&attribute, 1};
}
// The pools of a plan that has this attribute alone, at index 0. They point into it.
inline AttributePools pools_of(const CaseAttribute& attribute) {
  AttributePools pools;
  std::visit([&pools]<typename A>(const A& value) {
    if constexpr (!std::is_same_v<A, std::monostate>) set_pool(pools, value);
  }, attribute);
  return pools;
}

struct KernelCase {
  std::string id;  // letters, digits, underscores: a part of the GoogleTest name, so it replays by --gtest_filter
  CaseUse use = CaseUse::kTest;
  Op op{};
  Pass pass{};
  std::vector<std::optional<Tensor>> arguments;  // in kOps order, scratch left out; absent optional arguments are empty
  CaseAttribute attribute;
  uint32_t accumulate = 0;     // bit n: output n is added to, as in Row
  std::vector<Tensor> group;   // grad_norm.reduce: the tensors of its group, offsets from the first one's start
  CaseValues data = CaseValues::kPlain;
  uint32_t other_labels = 0;   // rows with a label in the other micro-batches of the step that the scalars speak of
  uint64_t multiply_adds = 0;  // what a benchmark divides by; 0 where bytes matter instead

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

// A case of K, without an id: named_case<LinearForward>({{A::kX, x}, ...}), with using A = LinearForward. What in_order refuses is refused.
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

// Whether the case's activations are bf16.
inline bool stores_bf16(const KernelCase& c) {
  const uint32_t i = first_activation(c.info());
  return i < c.arguments.size() && c.has(i) && c.tensor(i).dtype == DType::kBf16;
}

// The same case with its arguments of that storage class stored as `type`; nothing for a case without any, or with rows that are no whole blocks.
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
inline std::optional<KernelCase> stored_as_bf16(const KernelCase& c) { return stored_as(c, Storage::kActivation, DType::kBf16, "_bf16"); }
inline std::optional<KernelCase> weights_as(const KernelCase& c, DType type) {
  return stored_as(c, Storage::kWeight, type, std::string("_") + dtype_info(type).name + "_weights");
}
// Whether it reads weights that are not stored as f32.
inline bool has_stored_weights(const KernelCase& c) {
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.info().arguments[i].storage == Storage::kWeight && c.has(i) && c.tensor(i).dtype != DType::kF32) return true;
  }
  return false;
}

}  // namespace reprise::test
