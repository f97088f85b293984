// The tests of one family of ops: its cases, their data, the expected results in double, and
// functions for finite differences. Each family is one file, which defines an OpFamily; families.h
// lists them.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/backend.h"
#include "lib/cpu/cpu_machine.h"
#include "tests/ops/kernel_case.h"
#include "tests/ops/product_operands.h"
#include "tests/ops/stored_state.h"
#include "tests/ops/stored_weights.h"
#include "tests/ref/array.h"

namespace reprise::test {

using ref::Array;
using ref::Expected;

inline std::string str(uint64_t n) { return std::to_string(n); }

// ---- cases ----

// Collects the cases for tests or for benchmarks. A family adds the cases of all its passes for
// each shape.
class CaseTable {
 public:
  explicit CaseTable(CaseUse use) : use_(use) {}
  bool is_bench() const { return use_ == CaseUse::kBench; }
  std::vector<KernelCase>& cases() { return cases_; }

  template <typename K>
  KernelCase& add(const std::string& tag, CaseArguments<K> arguments, const CaseAttribute& attribute = {}) {
    KernelCase c = named_case<K>(arguments, attribute);
    c.use = use_;
    c.id = c.info().name;
    for (char& letter : c.id) {
      if (letter == '.') letter = '_';
    }
    c.id += "__" + tag;
    if (is_bench()) c.id += "_bench";
    cases_.push_back(std::move(c));
    return cases_.back();
  }
  // Adds the latest case again with `suffix`. The new case adds to the given outputs instead of
  // overwriting them.
  void again_accumulating(std::initializer_list<uint32_t> outputs, const char* suffix = "_accumulate") {
    if (is_bench()) return;
    KernelCase c = cases_.back();
    c.accumulate = 0;
    for (const uint32_t output : outputs) c.accumulate |= 1u << output;
    c.id += suffix;
    cases_.push_back(std::move(c));
  }
  // Adds each case of the shape named `tag` once more for every weight format in `formats` except
  // f32. Skips cases that accumulate or already have other formats, and cases that read no weights.
  void again_with_weights(const std::string& tag, WeightFormats formats) {
    if (is_bench()) return;
    const size_t count = cases_.size();
    for (size_t i = 0; i < count; ++i) {
      if (cases_[i].accumulate != 0 || cases_[i].id.find("__" + tag) == std::string::npos ||
          has_stored_weights(cases_[i]))
        continue;
      for (uint32_t type = 1; type < kDTypeCount; ++type) {
        if (!takes_weights(formats, static_cast<DType>(type))) continue;
        if (std::optional<KernelCase> stored = weights_as(cases_[i], static_cast<DType>(type)))
          cases_.push_back(std::move(*stored));
      }
    }
  }

 private:
  CaseUse use_;
  std::vector<KernelCase> cases_;
};

// ---- data ----

// The unit that multiplies the activations (SPEED 8.6). `tensor_cores` or `pairs` is set if
// activations stored as bf16 are multiplied as bf16: by a card's tensor cores, or by a CPU with a
// tile for pairs. Such a unit rounds intermediate products and folded values to bf16 before it
// multiplies them. If neither is set, products are in f32. `math` states how a card multiplies
// activations that are stored as f32.
struct Multiplier {
  bool tensor_cores = false;
  const CpuMachine* pairs = nullptr;
  ProductMath math = ProductMath::kF32;
};

// values[i] is the content of argument i before the call. It is empty for an output that the kernel
// overwrites.
struct CaseData {
  std::vector<Array> values;
  StepScalars scalars{};
  DataFault bad_data = DataFault::kNone;  // data fault that the kernel must record; kNone if all indices are good
  uint64_t bad_position = 0;              // the position that this fault must have
  Multiplier multiplier = {};
};

// The generator SplitMix64 (Steele, Lea & Flood 2014), seeded with a hash of the case's id.
class CaseRandom {
 public:
  explicit CaseRandom(const std::string& id) {
    for (const char letter : id) state_ = state_ * 1099511628211ull + static_cast<unsigned char>(letter);
  }
  uint64_t word() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(word() >> 11) * 0x1p-53; }
  uint64_t below(uint64_t n) { return word() % n; }

 private:
  uint64_t state_ = 14695981039346656037ull;
};

inline double as_f32(double value) { return static_cast<double>(static_cast<float>(value)); }
inline Array as_f32(Array a) {
  for (double& value : a) value = as_f32(value);
  return a;
}
inline double away_from_zero(double x) { return std::abs(x) < 0.02 ? as_f32(std::copysign(0.02, x)) : x; }
inline double not_finite(const KernelCase& c) {
  using Limits = std::numeric_limits<double>;
  return c.data == CaseValues::kNaN ? Limits::quiet_NaN() : Limits::infinity();
}

// The data of a case under construction. At first the data are uniform in [-1, 1); the family may
// change them. Every value is exactly an f32.
struct CaseDraft {
  const KernelCase& c;
  CaseRandom random;
  CaseData data;

  Array& value(uint32_t i) { return data.values[i]; }
  // Rounds argument `i` to values that its stored type can represent, so that the kernel and the
  // reference read equal numbers.
  void round_stored(uint32_t i) {
    if (!c.has(i) || value(i).size() == 0) return;
    if (is_stored_state(c.tensor(i).dtype)) return round_stored_state(c.tensor(i).dtype, value(i));
    if (is_stored_weight(c.tensor(i).dtype)) round_stored_weights(c.tensor(i).dtype, value(i));
  }
};

// Returns a random point at which to differentiate, in the shape of `tensor`.
inline Array random_like(const Tensor& tensor, const std::string& seed) {
  CaseRandom random(seed);
  Array a = Array(Array::shape_type(tensor.shape, tensor.shape + tensor.rank), 0.0);
  for (double& element : a) element = random.uniform(-1, 1);
  return a;
}

// ---- results ----

inline Expected number(double value, double magnitude, double terms) {
  return {Array(Array::shape_type{1}, value), Array(Array::shape_type{1}, magnitude), terms};
}
// Returns the expectation of a result that is rounded once per element.
inline Expected rounded(const Array& value) { return {value, ref::magnitudes(value), 1}; }
inline Expected exact(const Array& value) { return {value, ref::magnitudes(value), 0}; }

// The expected outputs of a case. outputs[i] is argument i; empty for an input. Counts and flags in
// `scalars` must be exact; the scalars listed as Expected have a tolerance.
struct CaseExpected {
  std::vector<Expected> outputs;
  StepScalars scalars{};
  Expected loss_sum, weighted_loss, gradient_norm, clip_factor, rewards[2];
  bool only_skip = false;  // the data are not finite, so only scalars.skip is checked
  // Smallest distance of a value from the point at which a count (labelled, correct) would change,
  // in units of the value's tolerance. Infinity if no count depends on rounding.
  double margin = std::numeric_limits<double>::infinity();
};

// A case, its data, and its expected outputs. A family sets `out` as if the kernel overwrites its
// outputs. If the case accumulates, the caller then adds the old values.
struct Oracle {
  const KernelCase& c;
  const CaseData& data;
  CaseExpected out;

  const Array& value(uint32_t i) const { return data.values[i]; }
  const Array* optional(uint32_t i) const { return c.has(i) ? &data.values[i] : nullptr; }
  double dimension(uint32_t argument, uint32_t d) const { return c.tensor(argument).shape[d]; }
  void expect(uint32_t i, Expected e) {
    if (c.has(i)) out.outputs[i] = std::move(e);
  }
};

// A scalar function of arrays, for finite differences. The case's outputs must be its derivatives.
struct Differentiable {
  std::vector<Array> variables;
  std::vector<uint32_t> outputs;  // for each variable, the argument that receives its gradient
  std::function<double(const std::vector<Array>&)> loss;
};
inline double dot(const Array& a, const Array& b) { return xt::sum(a * b)(); }

// A value that a reference computes, and the correct value from a calculation by hand or from a
// table. Such values test the forward of a reference; finite differences test only gradients.
struct KnownValue {
  const char* what;
  Array got, want;
  double tolerance = 0;
};

// A wrong kernel that at least one case of the family must reject. This shows that the cases detect
// faults.
struct WrongKernel {
  const char* name;
  Op op;
  Pass pass;
  void (*plant)(Backend&);  // replaces the correct kernel for f32
};
template <typename K, NamedKernel<K> kWrong>
constexpr WrongKernel wrong_kernel(const char* name) {
  return {name, K::kInfo.op, K::kInfo.pass, [](Backend& backend) { backend.set<K, float, kWrong>(); }};
}

// Returns output `argument` as the kernel stored it.
using StoredOutput = std::function<Array(uint32_t argument)>;

struct OpFamily {
  std::span<const Op> ops;
  bool multiplies = false;  // true if the kernels use the GEMM tile; they are then tested with each tile
  void (*add_cases)(CaseTable&);
  void (*fit_data)(CaseDraft&) = nullptr;  // null if uniform random data are suitable
  // Sets the expected outputs. Not called for a case with a bad index.
  void (*expect)(Oracle&);
  // Sets the expected outputs that a kernel computes from another of its outputs, as rounded for
  // storage. Null for most families.
  void (*expect_from_stored)(const KernelCase&, const StoredOutput&, CaseExpected&) = nullptr;
  // Returns the function whose gradient a backward kernel computes: sum(dy * forward). May replace
  // saved values in the data, for example statistics, by exact values. Null if the family has no
  // gradient check.
  Differentiable (*differentiable)(const KernelCase&, CaseData&) = nullptr;
  // Returns the indices of the weights that a CPU rounds to bf16 before it multiplies pairs of bf16
  // (SPEED 8.6). Null for most families.
  std::vector<uint32_t> (*rounded_weights)(const KernelCase&, const CpuMachine&) = nullptr;
  // Returns the indices of the arguments, stored as f32, that a card multiplies on tensor cores if
  // its math is not f32. Returns none if this case does not use tensor cores. Null if no case of
  // the family does.
  std::optional<std::vector<uint32_t>> (*tensor_operands)(const KernelCase&) = nullptr;
  std::vector<KnownValue> (*known_values)() = nullptr;
  std::span<const WrongKernel> wrong_kernels = {};  // each replaces one kernel of the CPU's backend
};

}  // namespace reprise::test
