// Runs every CUDA kernel on this machine's card, on every case of the table, in f32 and bf16.
// Results are compared with the double-precision reference, with a second run, and with in-place
// and accumulating runs. Results that must have the same bits as on the CPU are also compared with
// the CPU's. The other tests run these kernels on the CPU (fibres), which does not prove that a
// real card agrees. gpu.sh runs this program in several processes (GTEST_TOTAL_SHARDS), and under
// compute-sanitizer. The judges are the same as for the CPU's kernels and for fibres.
//
// At the end it prints a line "worst KERNEL f32|bf16 ERROR" for each kernel: its largest error, in
// units of its tolerance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "cuda/cuda_backend.h"
#include "ports/cuda/cuda_port.h"
#include "ports/linux/linux_functions.h"
#include "tests/bench/cards/card_here.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

// The card and the arena of the process; main sets them.
Backend card;
Arena arena;
CaseDevice device() { return {card, arena}; }

std::string fault_of_card() {
  const KernelContext context = {.machine = card.machine, .queue = card.queue};
  const Status status = card.host.synchronise(context);
  return status.ok() ? "" : status.message;
}

// ---- which cases ----

const CudaMachine kNoCard = {.size = bench::card_here()};
const Backend kTable = cuda_backend(kNoCard);  // shows which kernels exist
bool exists(const KernelCase& c) {
  return kTable.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] != nullptr;
}

std::vector<Judged> judged(bool (*keep)(const KernelCase&)) {
  std::vector<Judged> kept;
  for (const KernelCase& c : kernel_cases()) {
    if (exists(c) && keep(c)) kept.push_back({&card, c});
    const std::optional<KernelCase> stored = stored_as_bf16(c);
    if (stored && exists(*stored) && keep(*stored)) kept.push_back({&card, *stored});
  }
  return kept;
}

bool has_the_bits_of_the_cpu(const KernelCase& c) {
  constexpr Op kOpsAlike[] = {Op::kRelu,    Op::kAdd,     Op::kCopy, Op::kMove,   Op::kDropout, Op::kEmbedding,
                              Op::kMaxPool, Op::kColumns, Op::kPad,  Op::kConcat, Op::kReshape, Op::kTranspose};
  return std::find(std::begin(kOpsAlike), std::end(kOpsAlike), c.op) != std::end(kOpsAlike) && !c.expects_bad_index();
}

// ---- the judges ----

std::map<std::string, double> worst_errors;  // key: kernel and storage
bool is_lost = false;

// After a failure, a card fails every later call of the process. The failing case reports the
// failure, and the later cases are skipped.
class CardKernel : public ::testing::TestWithParam<Judged> {
 protected:
  void SetUp() override {
    if (is_lost) GTEST_SKIP() << "the card has failed in an earlier case";
  }
  void TearDown() override {
    if (is_lost) return;
    const std::string fault = fault_of_card();
    is_lost = !fault.empty();
    EXPECT_EQ(fault, "") << "the card has failed";
  }
  const KernelCase& c() const { return GetParam().c; }
};
class CardBits : public CardKernel {};
class CardInPlace : public CardKernel {};
class CardAccumulating : public CardKernel {};
class CardAsCpu : public CardKernel {};

TEST_P(CardKernel, AgreesWithTheReference) {
  double& worst = worst_errors[std::string(c().info().name) + (stores_bf16(c()) ? " bf16" : " f32")];
  EXPECT_EQ(judge_reference(device(), c(), &worst), "");
}
TEST_P(CardBits, RepeatWhateverMemoryHeld) { EXPECT_EQ(judge_workers(device(), c()), ""); }
TEST_P(CardInPlace, GivesTheSameBits) { EXPECT_EQ(judge_in_place(device(), c()), ""); }
TEST_P(CardAccumulating, AddsToWhatIsThere) { EXPECT_EQ(judge_accumulate(device(), c()), ""); }
TEST_P(CardAsCpu, GivesTheSameBits) {
  const CaseData data = make_data(c());
  const TestWorkers one(1);
  const CaseRunResult here = run_case(device(), c(), data, {.workers = &one.workers()});
  const CaseRunResult there = run_case(test_backend(), c(), data, {.workers = &one.workers()});
  EXPECT_TRUE(here.status.ok()) << here.status.message;
  EXPECT_EQ(here.outputs, there.outputs);
}

// Returns a case whose weights are too many for one product, so that the loss head computes blocks
// of classes. The classes of the last block do not fill whole chunks. Fibres would need hours for
// this case.
KernelCase loss_head_in_blocks() {
  using A = LossHeadBackward;
  const uint32_t M = 3, C = 4096, V = 12500;
  const auto x = shaped({M, C}, DType::kBf16), w = shaped({V, C});
  KernelCase c = named_case<A>({{A::kDx, x},
                                {A::kDw, w},
                                {A::kScalars, scalars_tensor()},
                                {A::kX, x},
                                {A::kW, w},
                                {A::kLabels, shaped({M}, DType::kI32)}},
                               CapAttribute{0});
  c.id = "loss_head_in_blocks", c.data = CaseValues::kAllLabelled;
  return c;
}
// True if the machine has 48 GiB. Every process allocates its arena, and the reference needs much
// more. A small board does not have this memory.
bool has_space_for_blocks() { return linux_memory().total_bytes >= uint64_t{48} << 30; }

class CardLossHead : public CardKernel {};
TEST_P(CardLossHead, TakesItsClassesInBlocks) {
  if (!has_space_for_blocks()) GTEST_SKIP() << "this machine has less than 48 GiB";
  EXPECT_EQ(judge_reference(device(), c()), "");
}
INSTANTIATE_TEST_SUITE_P(Card, CardLossHead, ::testing::Values(Judged{&card, loss_head_in_blocks()}), id_of);

INSTANTIATE_TEST_SUITE_P(Card, CardKernel, ::testing::ValuesIn(judged(any)), id_of);
INSTANTIATE_TEST_SUITE_P(Card, CardBits, ::testing::ValuesIn(judged(any)), id_of);
INSTANTIATE_TEST_SUITE_P(Card, CardInPlace, ::testing::ValuesIn(judged(has_in_place)), id_of);
INSTANTIATE_TEST_SUITE_P(Card, CardAccumulating, ::testing::ValuesIn(judged(accumulates)), id_of);
INSTANTIATE_TEST_SUITE_P(Card, CardAsCpu, ::testing::ValuesIn(judged(has_the_bits_of_the_cpu)), id_of);

// ---- the card ----

uint64_t max_arena_bytes() {
  uint64_t maximum = 0;
  for (const Judged& each : judged(any)) maximum = std::max(maximum, case_arena_bytes(kTable, each.c));
  if (has_space_for_blocks()) maximum = std::max(maximum, case_arena_bytes(kTable, loss_head_in_blocks()));
  return maximum;
}

Status open_card() {
  REPRISE_RETURN_IF_ERROR(cuda_port().open_backend(bench::backend_here(), &card));
  return cuda_port().acquire_arena(max_arena_bytes(), &arena);
}

}  // namespace
}  // namespace reprise::test

int main(int argc, char** argv) {
  using namespace reprise::test;
  ::testing::InitGoogleTest(&argc, argv);
  if (!::testing::GTEST_FLAG(list_tests)) {
    if (const reprise::Status status = open_card(); !status.ok()) {
      std::fprintf(stderr, "gpu_cases: %s\n", status.message);
      return 1;
    }
  }
  const int failed = RUN_ALL_TESTS();
  for (const auto& [kernel, error] : worst_errors) std::printf("worst %s %.3f\n", kernel.c_str(), error);
  reprise::cuda_port().release_arena(&arena);
  reprise::cuda_port().close_backend(&card);
  return failed;
}
