// A kernel's case with the GEMM tile and the vector level that serve while it is judged.
// Here because kernels are judged twice, with activations stored as f32 and as bf16.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "lib/cpu/gemm_tile.h"
#include "lib/cpu/vector_level.h"
#include "tests/ops/families.h"

namespace reprise::test {

struct Judged {
  GemmTileChoice tile;
  VectorLevel level;
  KernelCase c;
};
inline void PrintTo(const Judged& judged, std::ostream* out) { *out << judged.c.id; }
inline std::string id_of(const ::testing::TestParamInfo<Judged>& info) { return info.param.c.id; }

inline bool any(const KernelCase&) { return true; }
inline bool multiplies(const KernelCase& c) { return family_of(c.op).multiplies; }
inline bool accumulates(const KernelCase& c) { return c.accumulate != 0; }

class WithTile : public ::testing::TestWithParam<Judged> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(select_gemm_tile(GetParam().tile).ok());
    highest_vector_level = GetParam().level;
  }
  void TearDown() override { highest_vector_level = kLastVectorLevel; }
};

}  // namespace reprise::test
