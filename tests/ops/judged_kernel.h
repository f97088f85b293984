// A kernel's case with the backend, of some GEMM tile and vector level, whose kernel is judged.
// Here because kernels are judged twice, with activations stored as f32 and as bf16.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "lib/backend.h"
#include "tests/ops/families.h"

namespace reprise::test {

struct Judged {
  const Backend* backend;
  KernelCase c;
};
inline void PrintTo(const Judged& judged, std::ostream* out) { *out << judged.c.id; }
inline std::string id_of(const ::testing::TestParamInfo<Judged>& info) { return info.param.c.id; }

inline bool any(const KernelCase&) { return true; }
inline bool multiplies(const KernelCase& c) { return family_of(c.op).multiplies; }
// Whether a card multiplies its operands on tensor cores, stored as f32, where the math of its table is not f32.
inline bool has_tensor_operands(const KernelCase& c) {
  const auto tensor_operands = family_of(c.op).tensor_operands;
  return tensor_operands != nullptr && tensor_operands(c).has_value();
}
inline bool accumulates(const KernelCase& c) { return c.accumulate != 0; }

}  // namespace reprise::test
