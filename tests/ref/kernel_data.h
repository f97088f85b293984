// The data of a kernel case, drawn from the case's id: every value is exactly an f32, saved values agree with the forward.
// Here so that a case is the same everywhere and replays from its id alone.
// It must not know the kernels.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/kernel_cases.h"
#include "tests/ref/array.h"

namespace reprise::test {

using ref::Array;

// values[i]: argument i before the call: inputs, updated arguments, and outputs that are added to; empty otherwise.
struct CaseData {
  std::vector<Array> values;
  StepScalars scalars{};
};

// SplitMix64 (Steele, Lea & Flood 2014).
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
Array as_f32(Array a);

CaseData make_data(const KernelCase& c);

// Where a case with a bad token or label has it.
size_t bad_position(const KernelCase& c);
// [B,heads,T,T] dropout factors, or a single one.
Array attention_mask(const KernelCase& c, const StepScalars& scalars);

}  // namespace reprise::test
