// Every CPU kernel on every case of the table: against the double-precision reference, in place, accumulated, by worker count.
// Here because the kernels are what training stands on. A failing case replays with --gtest_filter='*/ID'.
// It must not know how a kernel computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ostream>

#include "lib/cpu/cpu_backend.h"
#include "lib/cpu/gemm_tile.h"
#include "tests/kernel_judge.h"
#include "tests/test_workers.h"

namespace reprise::test {

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.id; }

namespace {

const Backend& backend() { return kCpuBackend; }

std::string id_of(const ::testing::TestParamInfo<KernelCase>& info) { return info.param.id; }

std::vector<KernelCase> cases_where(bool (*keep)(const KernelCase&)) {
  std::vector<KernelCase> kept;
  for (const KernelCase& c : kernel_cases()) {
    if (keep(c)) kept.push_back(c);
  }
  return kept;
}
bool accumulates(const KernelCase& c) { return c.accumulate != 0; }
// Kernels that may stand on the GEMM tile: judged with each tile there is.
bool multiplies(const KernelCase& c) {
  return c.op == Op::kConv || c.op == Op::kLinear || c.op == Op::kAttention || c.op == Op::kLossHead;
}
bool multiplies_and_accumulates(const KernelCase& c) { return multiplies(c) && accumulates(c); }

// BLIS 0.9 takes new processors for its generic one, whose kernel is refused: name one by what this machine can do, as a port
// would (0 = skx, 6 = zen3), unless the environment already does.
bool have_blis_tile() {
  if (__builtin_cpu_supports("avx512f")) setenv("BLIS_ARCH_TYPE", "0", 0);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) setenv("BLIS_ARCH_TYPE", "6", 0);
  return select_gemm_tile(GemmTileChoice::kBlis).ok();
}
std::vector<KernelCase> blis_cases(bool (*keep)(const KernelCase&)) {
  return have_blis_tile() ? cases_where(keep) : std::vector<KernelCase>();
}

template <GemmTileChoice kTile>
class WithTile : public ::testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override { ASSERT_TRUE(select_gemm_tile(kTile).ok()); }
};

class Kernel : public WithTile<GemmTileChoice::kPortable> {};
class KernelInPlace : public WithTile<GemmTileChoice::kPortable> {};
class KernelAccumulating : public WithTile<GemmTileChoice::kPortable> {};
TEST_P(Kernel, AgreesWithTheReference) { EXPECT_EQ(judge_reference(backend(), GetParam()), ""); }
TEST_P(Kernel, BitsDoNotDependOnWorkers) { EXPECT_EQ(judge_workers(backend(), GetParam()), ""); }
TEST_P(KernelInPlace, GivesTheSameBits) { EXPECT_EQ(judge_in_place(backend(), GetParam()), ""); }
TEST_P(KernelAccumulating, AddsToWhatIsThere) { EXPECT_EQ(judge_accumulate(backend(), GetParam()), ""); }
INSTANTIATE_TEST_SUITE_P(Cpu, Kernel, ::testing::ValuesIn(kernel_cases()), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, KernelInPlace, ::testing::ValuesIn(cases_where(has_in_place)), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, KernelAccumulating, ::testing::ValuesIn(cases_where(accumulates)), id_of);

class BlisKernel : public WithTile<GemmTileChoice::kBlis> {};
class BlisKernelAccumulating : public WithTile<GemmTileChoice::kBlis> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BlisKernel);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BlisKernelAccumulating);
TEST_P(BlisKernel, AgreesWithTheReference) { EXPECT_EQ(judge_reference(backend(), GetParam()), ""); }
TEST_P(BlisKernel, BitsDoNotDependOnWorkers) { EXPECT_EQ(judge_workers(backend(), GetParam()), ""); }
TEST_P(BlisKernelAccumulating, AddsToWhatIsThere) { EXPECT_EQ(judge_accumulate(backend(), GetParam()), ""); }
INSTANTIATE_TEST_SUITE_P(Cpu, BlisKernel, ::testing::ValuesIn(blis_cases(multiplies)), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, BlisKernelAccumulating, ::testing::ValuesIn(blis_cases(multiplies_and_accumulates)), id_of);

// A kernel that no case calls is not judged.
TEST(KernelTable, EveryKernelHasACase) {
  const std::vector<KernelCase> cases = kernel_cases();
  for (const KernelInfo& info : kOps) {
    if (info.op == Op::kTransfer) continue;  // a port's business, not a backend's
    const bool found = std::any_of(cases.begin(), cases.end(),
                                   [&](const KernelCase& c) { return c.op == info.op && c.pass == info.pass; });
    EXPECT_TRUE(found) << info.name;
  }
}

TEST(KernelTable, IdsAreUnique) {
  for (const CaseUse use : {CaseUse::kTest, CaseUse::kBench}) {
    std::vector<std::string> ids;
    for (const KernelCase& c : kernel_cases(use)) ids.push_back(c.id);
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    EXPECT_TRUE(twice == ids.end()) << *twice;
  }
}

TEST(KernelSet, NamesTheTile) {
  ASSERT_TRUE(select_gemm_tile(GemmTileChoice::kPortable).ok());
  const std::string portable = backend().kernel_set();
  EXPECT_NE(portable, "");
  if (!have_blis_tile()) GTEST_SKIP() << "this machine or this link has no BLIS tile";
  EXPECT_NE(backend().kernel_set(), portable);
}

// The gradient of a schedule moves to an overlapping place: memmove semantics, in both directions, with any number of workers.
TEST(Move, MayOverlap) {
  for (const uint32_t n : {1u, 100u, 5000u, 100000u}) {
    for (const int shift : {-4096, -64, 0, 64, 4096}) {
      for (const uint32_t workers : {1u, 3u}) {
        std::vector<float> memory(n + 8192);
        for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
        std::vector<float> want = memory;
        std::memmove(want.data() + 4096 + shift, want.data() + 4096, n * sizeof(float));
        const TestWorkers hands(workers, TaskOrder::kShuffled, n);
        const KernelContext context{.workers = &hands.workers()};
        ASSERT_TRUE(backend().move(context, {memory.data() + 4096 + shift, memory.data() + 4096, n, false, false}).ok());
        EXPECT_EQ(memory, want) << n << " floats by " << shift << " with " << workers << " workers";
      }
    }
  }
}

}  // namespace
}  // namespace reprise::test
