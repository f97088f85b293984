#include "tests/ports/ptx_launches.h"
#include <gtest/gtest.h>
namespace reprise::test { TEST(Ptx, Knows) { ptx::Kernels k(ptx::read_ptx_files("build/cuda")); EXPECT_EQ(k.check(), ""); } }
