// What the tests know of one family of ops: its cases, their data, their results in double, and what finite differences must agree.
// Here so that each family stands in one file, which fills in an OpFamily; families.h joins them.
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

// Collects the cases of one use; a family turns a line of shapes into the cases of all its passes.
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
  // The latest case again, with the given outputs accumulated.
  void again_accumulating(std::initializer_list<uint32_t> outputs, const char* suffix = "_accumulate") {
    if (is_bench()) return;
    KernelCase c = cases_.back();
    c.accumulate = 0;
    for (const uint32_t output : outputs) c.accumulate |= 1u << output;
    c.id += suffix;
    cases_.push_back(std::move(c));
  }
  // The cases of one shape that overwrite and read weights again, with the weights stored in each of the formats but f32.
  void again_with_weights(const std::string& tag, WeightFormats formats) {
    if (is_bench()) return;
    const size_t count = cases_.size();
    for (size_t i = 0; i < count; ++i) {
      if (cases_[i].accumulate != 0 || cases_[i].id.find("__" + tag) == std::string::npos || has_stored_weights(cases_[i])) continue;
      for (uint32_t type = 1; type < kDTypeCount; ++type) {
        if (!takes_weights(formats, static_cast<DType>(type))) continue;
        if (std::optional<KernelCase> stored = weights_as(cases_[i], static_cast<DType>(type))) cases_.push_back(std::move(*stored));
      }
    }
  }

 private:
  CaseUse use_;
  std::vector<KernelCase> cases_;
};

// ---- data ----

// values[i]: argument i before the call: inputs, updated arguments, and outputs that are added to; empty otherwise.
// What multiplies where activations are stored as bf16 (SPEED 8.6): tensor cores, or a machine that has a tile for pairs of bf16; else f32. What a
// product makes, and what is folded into an operand, is rounded before these multiply it.
// Where they are stored as f32 a card may multiply by fewer bits: then `math` is its table's, and else f32.
struct Multiplier {
  bool tensor_cores = false;
  const CpuMachine* pairs = nullptr;
  ProductMath math = ProductMath::kF32;
};

struct CaseData {
  std::vector<Array> values;
  StepScalars scalars{};
  DataFault bad_data = DataFault::kNone;  // what a case with a bad token or label must note
  uint64_t bad_position = 0;              // and where it has it
  Multiplier multiplier = {};
};

// SplitMix64 (Steele, Lea & Flood 2014), seeded by a text.
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

// The data of a case while it is made: uniform in [-1, 1) until the family fits it. Every value is exactly an f32.
struct CaseDraft {
  const KernelCase& c;
  CaseRandom random;
  CaseData data;

  Array& value(uint32_t i) { return data.values[i]; }
  // What a kernel cannot see must not be asked of it: inputs have values that the type in which they are stored has.
  void round_stored(uint32_t i) {
    if (!c.has(i) || value(i).size() == 0) return;
    if (is_stored_state(c.tensor(i).dtype)) return round_stored_state(c.tensor(i).dtype, value(i));
    if (is_stored_weight(c.tensor(i).dtype)) round_stored_weights(c.tensor(i).dtype, value(i));
  }
};

// A point at which to differentiate.
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
// A result with one rounding per element.
inline Expected rounded(const Array& value) { return {value, ref::magnitudes(value), 1}; }
inline Expected exact(const Array& value) { return {value, ref::magnitudes(value), 0}; }

// outputs[i] belongs to argument i, empty where that is no output. The scalars' counts and flags are exact, the rest Expected.
struct CaseExpected {
  std::vector<Expected> outputs;
  StepScalars scalars{};
  Expected loss_sum, gradient_norm, clip_factor, rewards[2];
  bool only_skip = false;  // the data is not finite: nothing is promised but scalars.skip
  double margin = std::numeric_limits<double>::infinity();  // between what is compared exactly and the other choice, in tolerances
};

// A case, its data, and what is expected so far. A family says what overwriting gives; what is accumulated is added afterwards.
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

// A scalar function of some arrays, and the case's outputs that claim to be its derivatives.
struct Differentiable {
  std::vector<Array> variables;
  std::vector<uint32_t> outputs;  // the output argument that holds the gradient of the variable of the same index
  std::function<double(const std::vector<Array>&)> loss;
};
inline double dot(const Array& a, const Array& b) { return xt::sum(a * b)(); }

// A value of a reference that is known by hand or from a table: a forward has no finite differences to judge it.
struct KnownValue {
  const char* what;
  Array got, want;
  double tolerance = 0;
};

// A wrong kernel, which some case of the family must reject: a family without one has not shown that its cases see faults.
struct WrongKernel {
  const char* name;
  Op op;
  Pass pass;
  void (*plant)(Backend&);  // in the place of the right one, in f32
};
template <typename K, NamedKernel<K> kWrong>
constexpr WrongKernel wrong_kernel(const char* name) {
  return {name, K::kInfo.op, K::kInfo.pass, [](Backend& backend) { backend.set<K, float, kWrong>(); }};
}

// An output as the kernel has stored it.
using StoredOutput = std::function<Array(uint32_t argument)>;

struct OpFamily {
  std::span<const Op> ops;
  bool multiplies = false;  // whether the kernels stand on the GEMM tile and are judged with each tile there is
  void (*add_cases)(CaseTable&);
  void (*fit_data)(CaseDraft&) = nullptr;  // null where uniform data fits
  // Not called for a case with a bad index.
  void (*expect)(Oracle&);
  // What is expected of the outputs that a kernel makes from another one as it has stored that. Null for most families.
  void (*expect_from_stored)(const KernelCase&, const StoredOutput&, CaseExpected&) = nullptr;
  // For a backward: the function whose gradient it returns, sum(dy * forward). May make saved values in the data exact.
  Differentiable (*differentiable)(const KernelCase&, CaseData&) = nullptr;
  // The weights that a machine which multiplies pairs of bf16 rounds first (SPEED 8.6). Null for most families.
  std::vector<uint32_t> (*rounded_weights)(const KernelCase&, const CpuMachine&) = nullptr;
  // The arguments, stored as f32, that a card multiplies on tensor cores where its math is not f32; none where it does not for this case. Null: never.
  std::optional<std::vector<uint32_t>> (*tensor_operands)(const KernelCase&) = nullptr;
  std::vector<KnownValue> (*known_values)() = nullptr;
  std::span<const WrongKernel> wrong_kernels = {};  // planted in the CPU's backend
};

}  // namespace reprise::test
