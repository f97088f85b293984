// Tests every CPU kernel with activations stored as bf16. The result must match the
// double-precision reference of the rounded inputs. Calls in place, accumulating calls and several
// numbers of workers are also tested. Each result may differ by the tolerance of f32 sums and by
// one rounding to bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "lib/bf16.h"
#include "tests/ops/emulated_amx.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ports/test_machine.h"

namespace reprise::test {

namespace {

// Returns the cases, stored as bf16, for which `keep` and `also` are true, with `backend`. Omits
// cases with formats of weights that the backend does not accept. Returns none if `backend` is
// null: this machine or this build then lacks its tile or vector level. The lower vector levels
// multiply bf16 as f32.
auto judged_by(const Backend* backend, bool (*keep)(const KernelCase&), bool (*also)(const KernelCase&) = any) {
  std::vector<Judged> kept;
  if (backend == nullptr) return ::testing::ValuesIn(kept);
  for (const KernelCase& c : kernel_cases()) {
    const std::optional<KernelCase> stored = stored_as_bf16(c);
    if (stored && keep(*stored) && also(*stored) && takes_weights_of(*backend, *stored))
      kept.push_back({backend, *stored});
  }
  return ::testing::ValuesIn(kept);
}
auto judged_at(VectorLevel level, GemmTileChoice tile, bool (*keep)(const KernelCase&),
               bool (*also)(const KernelCase&) = any) {
  return judged_by(backend_with(tile, level), keep, also);
}
auto judged(bool (*keep)(const KernelCase&)) { return judged_at(port_level(), GemmTileChoice::kWidest, keep); }

class Bf16Kernel : public ::testing::TestWithParam<Judged> {};
class Bf16InPlace : public Bf16Kernel {};
class Bf16Accumulating : public Bf16Kernel {};

TEST_P(Bf16Kernel, AgreesWithTheReference) { EXPECT_EQ(judge_reference(*GetParam().backend, GetParam().c), ""); }
TEST_P(Bf16Kernel, BitsDoNotDependOnWorkers) { EXPECT_EQ(judge_workers(*GetParam().backend, GetParam().c), ""); }
TEST_P(Bf16InPlace, GivesTheSameBits) { EXPECT_EQ(judge_in_place(*GetParam().backend, GetParam().c), ""); }
TEST_P(Bf16Accumulating, AddsToWhatIsThere) { EXPECT_EQ(judge_accumulate(*GetParam().backend, GetParam().c), ""); }

INSTANTIATE_TEST_SUITE_P(Cpu, Bf16Kernel, judged(any), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, Bf16InPlace, judged(has_in_place), id_of);
INSTANTIATE_TEST_SUITE_P(Cpu, Bf16Accumulating, judged(accumulates), id_of);
INSTANTIATE_TEST_SUITE_P(Baseline, Bf16Kernel, judged_at(VectorLevel::kBaseline, GemmTileChoice::kBaseline, multiplies),
                         id_of);
INSTANTIATE_TEST_SUITE_P(Baseline, Bf16Accumulating,
                         judged_at(VectorLevel::kBaseline, GemmTileChoice::kBaseline, accumulates, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(SmallCore, Bf16Kernel, judged_by(&small_backend(), multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(SmallCore, Bf16Accumulating, judged_by(&small_backend(), accumulates, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx2, Bf16Kernel, judged_at(VectorLevel::kAvx2, GemmTileChoice::kAvx2, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx512, Bf16Kernel, judged_at(VectorLevel::kAvx512, GemmTileChoice::kAvx512, multiplies),
                         id_of);
INSTANTIATE_TEST_SUITE_P(Avx512, Bf16Accumulating,
                         judged_at(VectorLevel::kAvx512, GemmTileChoice::kAvx512, accumulates, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(Avx512Bf16, Bf16Kernel,
                         judged_at(VectorLevel::kAvx512Bf16, GemmTileChoice::kAvx512, multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(EmulatedAmx, Bf16Kernel, judged_by(&emulated_amx_backend(), multiplies), id_of);
INSTANTIATE_TEST_SUITE_P(EmulatedAmx, Bf16Accumulating, judged_by(&emulated_amx_backend(), accumulates, multiplies),
                         id_of);

float bf16_of(float value) { return Bf16(value); }

// A float must become the nearest bf16; if two bf16 are equally near, the bf16 whose last bit is 0.
TEST(Bf16, RoundsToTheNearestEven) {
  EXPECT_EQ(bf16_of(1.0f), 1.0f);
  EXPECT_EQ(bf16_of(1.0f + 0x1p-8f), 1.0f);                    // half way, rounded down to even
  EXPECT_EQ(bf16_of(1.0f + 0x3p-8f), 1.0f + 0x1p-6f);          // half way, rounded up to even
  EXPECT_EQ(bf16_of(1.0f + 0x1p-8f + 0x1p-23f), 1.0f + 0x1p-7f);
  EXPECT_EQ(bf16_of(-1.0f - 0x3p-8f), -1.0f - 0x1p-6f);
  EXPECT_EQ(bf16_of(0x1.fffffep+127f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(bf16_of(0x1.fep+127f), 0x1.fep+127f);
  EXPECT_EQ(bf16_of(0x1p-133f), 0x1p-133f);                    // the smallest denormal
  EXPECT_TRUE(std::signbit(bf16_of(-0.0f)));
  EXPECT_TRUE(std::isnan(bf16_of(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(bf16_of(std::bit_cast<float>(0x7f800001u))));  // all payload bits are in the dropped half
  EXPECT_TRUE(std::isnan(bf16_of(std::bit_cast<float>(0xffffffffu))));
}

// ---- the tolerance must reject other kinds of rounding, and two roundings ----

Status truncating_add(const KernelContext&, const AddArgsOf<Bf16>& a) {
  for (uint64_t i = 0; i < a.n; ++i) {
    const float sum = float{a.a[i]} + float{a.b[i]};
    a.y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(sum) & 0xffff0000u);
  }
  return ok_status();
}
Status bias_summed_in_bf16(const KernelContext&, const LinearBackwardBiasArgsOf<Bf16>& a) {
  for (uint32_t k = 0; k < a.K; ++k) {
    Bf16 sum = 0.0f;
    for (uint64_t m = 0; m < a.M; ++m) sum = float{sum} + float{a.dy[m * a.K + k]};
    a.db[k] = a.accumulate_db ? a.db[k] + sum : float{sum};
  }
  return ok_status();
}

TEST(Bf16Judge, RejectsTruncation) {
  Backend backend = test_backend();
  backend.set<AddForward, Bf16, truncating_add>();
  for (const KernelCase& c : kernel_cases()) {
    if (c.op != Op::kAdd || c.tensor(AddForward::kY).elements() < 100) continue;
    EXPECT_NE(judge_reference(backend, *stored_as_bf16(c)), "") << c.id;
  }
}

TEST(Bf16Judge, RejectsSumsInBf16) {
  Backend backend = test_backend();
  backend.set<LinearBackwardBias, Bf16, bias_summed_in_bf16>();
  for (const KernelCase& c : kernel_cases()) {
    if (c.op != Op::kLinear || c.pass != Pass::kBackwardBias || c.tensor(LinearBackwardBias::kDy).shape[0] < 8)
      continue;
    EXPECT_NE(judge_reference(backend, *stored_as_bf16(c)), "") << c.id;
  }
}

}  // namespace
}  // namespace reprise::test
