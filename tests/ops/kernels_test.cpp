// Tests every CPU kernel on every case: against the double-precision reference, in place,
// accumulating, and with several numbers of workers. --gtest_filter='*/ID' repeats a case that
// failed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lib/check.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/case_plan.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {

namespace {

// Returns the cases for which `keep` and `also` are true, with the backend of this tile and vector
// level. Returns none if this machine or this build lacks the tile or the level.
auto judged_at(VectorLevel level, GemmTileChoice tile, bool (*keep)(const KernelCase&),
               bool (*also)(const KernelCase&) = any) {
  std::vector<Judged> kept;
  const Backend* backend = backend_with(tile, level);
  if (backend == nullptr) return ::testing::ValuesIn(kept);
  for (const KernelCase& c : kernel_cases()) {
    if (keep(c) && also(c)) kept.push_back({backend, c});
  }
  return ::testing::ValuesIn(kept);
}
auto judged(GemmTileChoice tile, bool (*keep)(const KernelCase&), bool (*also)(const KernelCase&) = any) {
  return judged_at(port_level(), tile, keep, also);
}
bool multiplies_not(const KernelCase& c) { return !multiplies(c); }

class Kernel : public ::testing::TestWithParam<Judged> {};
class KernelInPlace : public ::testing::TestWithParam<Judged> {};
class KernelAccumulating : public ::testing::TestWithParam<Judged> {};
class KernelWithStoredWeights : public ::testing::TestWithParam<Judged> {};

TEST_P(Kernel, AgreesWithTheReference) { EXPECT_EQ(judge_reference(*GetParam().backend, GetParam().c), ""); }
TEST_P(Kernel, BitsDoNotDependOnWorkers) { EXPECT_EQ(judge_workers(*GetParam().backend, GetParam().c), ""); }
TEST_P(KernelInPlace, GivesTheSameBits) { EXPECT_EQ(judge_in_place(*GetParam().backend, GetParam().c), ""); }
TEST_P(KernelAccumulating, AddsToWhatIsThere) { EXPECT_EQ(judge_accumulate(*GetParam().backend, GetParam().c), ""); }
TEST_P(KernelWithStoredWeights, GivesTheBitsOfTheSameAsF32) {
  EXPECT_EQ(judge_stored_weights(*GetParam().backend, GetParam().c), "");
  const std::optional<KernelCase> narrow = stored_as_bf16(GetParam().c);
  EXPECT_EQ(narrow ? judge_stored_weights(*GetParam().backend, *narrow) : "", "");
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernel, judged(GemmTileChoice::kBaseline, multiplies_not), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, KernelInPlace, judged(GemmTileChoice::kBaseline, has_in_place), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, KernelAccumulating, judged(GemmTileChoice::kBaseline, accumulates, multiplies_not),
                         id_of);

INSTANTIATE_TEST_SUITE_P(BaselineTile, Kernel, judged(GemmTileChoice::kBaseline, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(BaselineTile, KernelAccumulating, judged(GemmTileChoice::kBaseline, accumulates, multiplies),
                         id_of);
INSTANTIATE_TEST_SUITE_P(NeonTile, Kernel, judged(GemmTileChoice::kNeon, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(NeonTile, KernelAccumulating, judged(GemmTileChoice::kNeon, accumulates, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx2Tile, Kernel, judged(GemmTileChoice::kAvx2, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx2Tile, KernelAccumulating, judged(GemmTileChoice::kAvx2, accumulates, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx512Tile, Kernel, judged(GemmTileChoice::kAvx512, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx512Tile, KernelAccumulating, judged(GemmTileChoice::kAvx512, accumulates, multiplies),
                         id_of);
INSTANTIATE_TEST_SUITE_P(BlisTile, Kernel, judged(GemmTileChoice::kBlis, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(BlisTile, KernelAccumulating, judged(GemmTileChoice::kBlis, accumulates, multiplies), id_of);

INSTANTIATE_TEST_SUITE_P(Cpu, KernelWithStoredWeights, judged(GemmTileChoice::kFastest, has_stored_weights), id_of);
INSTANTIATE_TEST_SUITE_P(BaselineLevel, KernelWithStoredWeights,
                         judged_at(VectorLevel::kBaseline, GemmTileChoice::kBaseline, has_stored_weights), id_of);

// Kernels for processors without AVX-512 or AVX2.
INSTANTIATE_TEST_SUITE_P(BaselineLevel, Kernel, judged_at(VectorLevel::kBaseline, GemmTileChoice::kBaseline, any),
                         id_of);
INSTANTIATE_TEST_SUITE_P(BaselineLevel, KernelInPlace,
                         judged_at(VectorLevel::kBaseline, GemmTileChoice::kBaseline, has_in_place), id_of);
INSTANTIATE_TEST_SUITE_P(BaselineLevel, KernelAccumulating,
                         judged_at(VectorLevel::kBaseline, GemmTileChoice::kBaseline, accumulates), id_of);
INSTANTIATE_TEST_SUITE_P(Avx2Level, Kernel, judged_at(VectorLevel::kAvx2, GemmTileChoice::kAvx2, any), id_of);
INSTANTIATE_TEST_SUITE_P(Avx2Level, KernelInPlace, judged_at(VectorLevel::kAvx2, GemmTileChoice::kAvx2, has_in_place),
                         id_of);
INSTANTIATE_TEST_SUITE_P(Avx2Level, KernelAccumulating,
                         judged_at(VectorLevel::kAvx2, GemmTileChoice::kAvx2, accumulates), id_of);

// Returns the cases for a small core (a microcontroller), whose products and attention have smaller
// blocks.
auto judged_small(bool (*keep)(const KernelCase&), bool (*also)(const KernelCase&) = any) {
  std::vector<Judged> kept;
  for (const KernelCase& c : kernel_cases()) {
    if (keep(c) && also(c) && takes_weights_of(small_backend(), c)) kept.push_back({&small_backend(), c});
  }
  return ::testing::ValuesIn(kept);
}
INSTANTIATE_TEST_SUITE_P(SmallCore, Kernel, judged_small(any), id_of);
INSTANTIATE_TEST_SUITE_P(SmallCore, KernelAccumulating, judged_small(accumulates, multiplies), id_of);

TEST(KernelSet, OfASmallCoreIsAnother) {
  EXPECT_STREQ(small_backend().kernel_set, "cpu-small/portable-6x8/baseline");
  EXPECT_STREQ(small_backend().rules->name, "cpu-small");
  CpuMachine machine;
  EXPECT_EQ(choose_cpu_machine(machine, GemmTileChoice::kAvx2, VectorLevel::kBaseline, {}, CpuSize::kSmall).code,
            Code::kUnsupported);
  if (may_have_vector_level(VectorLevel::kAvx2)) {
    EXPECT_EQ(choose_cpu_machine(machine, GemmTileChoice::kBaseline, VectorLevel::kAvx2, {}, CpuSize::kSmall).code,
              Code::kUnsupported);
  }
}

// Requires a case for each kernel of a backend, because a kernel without a case would never be
// tested.
TEST(KernelTable, EveryKernelHasACase) {
  const std::vector<KernelCase> cases = kernel_cases();
  for (const KernelInfo& info : kOps) {
    if (info.asynchronous()) continue;  // ports implement these rows, not backends
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

Fault fault_of(const KernelCase& c, bool in_place) {
  CasePlan plan(test_backend(), c, in_place);
  plan.complete();
  std::vector<CheckMark> marks(check_marks(plan.plan()));
  return check(plan.plan(), marks.data(), *test_backend().rules).fault;
}

// Every case must be a row that check() accepts in a plan, so that tests only use valid calls.
TEST(KernelTable, EveryCaseIsARowThatCheckAccepts) {
  std::vector<KernelCase> cases = kernel_cases();
  const std::vector<KernelCase> bench = kernel_cases(CaseUse::kBench);
  cases.insert(cases.end(), bench.begin(), bench.end());
  for (const KernelCase& c : cases) {
    const std::optional<KernelCase> stored = stored_as_bf16(c);
    for (const bool in_place : {false, has_in_place(c)}) {
      EXPECT_STREQ(fault_text(fault_of(c, in_place)), fault_text(Fault::kNone)) << c.id;
      EXPECT_STREQ(fault_text(stored ? fault_of(*stored, in_place) : Fault::kNone), fault_text(Fault::kNone))
          << c.id << " in bf16";
    }
  }
}

TEST(KernelTable, CheckRefusesACaseOfOtherShapes) {
  KernelCase c = kernel_cases().front();
  ASSERT_EQ(kernel_index(c.op, c.pass), kKernelIndex<ConvForward>);
  c.arguments[ConvForward::kW] = shaped({7, 1, 1, 1});
  EXPECT_EQ(fault_of(c, false), Fault::kShape);
}

// check() must refuse a convolution with f16 weights, and a linear layer whose rows end inside a
// block. It must accept other ops with f16 weights.
TEST(KernelTable, CheckRefusesWeightsThatAKernelDoesNotTake) {
  bool met_conv = false, met_linear = false;
  for (const KernelCase& c : kernel_cases()) {
    const std::optional<KernelCase> halves = weights_as(c, DType::kF16);
    if (!halves) continue;
    const bool is_conv = c.op == Op::kConv || c.op == Op::kNormConv || c.op == Op::kConvTranspose;
    EXPECT_EQ(fault_of(*halves, false), is_conv ? Fault::kDType : Fault::kNone) << c.id;
    (is_conv ? met_conv : met_linear) = true;
    if (c.op != Op::kLinear || weights_as(c, DType::kQ8_0)) continue;
    KernelCase cut = c;  // a copy whose rows end inside a block
    for (uint32_t i = 0; i < cut.arguments.size(); ++i) {
      if (cut.info().arguments[i].storage == Storage::kWeight && cut.has(i)) cut.arguments[i]->dtype = DType::kQ8_0;
    }
    EXPECT_EQ(fault_of(cut, false), Fault::kBlocks) << c.id;
  }
  EXPECT_TRUE(met_conv && met_linear);
}

// The linker does not load gemm_blis.o from an archive for a weak reference alone. Without the
// option in the message below, products would silently run without BLIS.
TEST(KernelSet, BlisIsLinked) {
  GemmTile (*volatile find)() = blis_gemm_tile;
  EXPECT_TRUE(find != nullptr) << "link with -Wl,-u,_ZN7reprise14blis_gemm_tileEv";
}

TEST(KernelSet, NamesTheTile) {
  const std::string portable = backend_with(GemmTileChoice::kWidest)->kernel_set;
  EXPECT_EQ(portable.rfind("cpu/", 0), 0u) << portable;
  const Backend* blis = backend_with(GemmTileChoice::kBlis);
  if (blis == nullptr) GTEST_SKIP() << "this machine or this link has no BLIS tile";
  EXPECT_NE(blis->kernel_set, portable);
}

TEST(KernelSet, NamesTheLevel) {
  const std::string best = test_backend().kernel_set,
                    lowered = backend_with(GemmTileChoice::kFastest, VectorLevel::kBaseline)->kernel_set;
  EXPECT_EQ(best == lowered, port_level() == VectorLevel::kBaseline) << best << " and " << lowered;
}

// A gradient may be moved to memory that overlaps its old memory. As with memmove, this must work
// in both directions, with any number of workers.
TEST(Move, MayOverlap) {
  for (const uint32_t n : {1u, 100u, 5000u, 100000u}) {
    for (const int shift : {-4096, -64, 0, 64, 4096}) {
      for (const uint32_t workers : {1u, 3u}) {
        std::vector<float> memory(n + 8192);
        for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
        std::vector<float> want = memory;
        std::memmove(want.data() + 4096 + shift, want.data() + 4096, n * sizeof(float));
        const TestWorkers hands(workers, TaskOrder::kShuffled, n);
        const KernelContext context{.workers = &hands.workers(), .machine = test_backend().machine};
        ASSERT_TRUE(
            cpu_move<float>(context, {memory.data() + 4096 + shift, memory.data() + 4096, n, false, false}).ok());
        EXPECT_EQ(memory, want) << n << " floats by " << shift << " with " << workers << " workers";
      }
    }
  }
}

}  // namespace
}  // namespace reprise::test
