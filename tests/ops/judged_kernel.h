// A parameter of the kernel tests: a case, and the backend whose kernel is tested. Different
// backends have different GEMM tiles and vector levels. Kernels are tested twice, with activations
// stored as f32 and as bf16.
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
// True if a card whose math is not f32 multiplies operands of this case on tensor cores, although
// the operands are stored as f32.
inline bool has_tensor_operands(const KernelCase& c) {
  const auto tensor_operands = family_of(c.op).tensor_operands;
  return tensor_operands != nullptr && tensor_operands(c).has_value();
}
inline bool accumulates(const KernelCase& c) { return c.accumulate != 0; }

}  // namespace reprise::test
