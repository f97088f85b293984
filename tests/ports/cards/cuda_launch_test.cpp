// Checks how the host code that nvcc compiles from cuda/ launches kernels, on a card that computes
// nothing (dry_card.h). The tests cover every kernel of the table and every access to a card's
// memory. All work must go to the queue, and must be within the limits of every card. The tests
// with fibres and PTX do not run these launches. Without nvcc the tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_rules.h"
#include "lib/trainer.h"
#include "tests/ops/case_plan.h"
#include "tests/ops/families.h"
#include "tests/ports/cards/cuda_launch_mutants.h"
#include "tests/ports/cards/dry_card.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

class CudaLaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!DryCard::has_kernels())
      GTEST_SKIP() << "no host code of nvcc's in this program: how kernels are launched is not judged";
    queue_ = DryCard::make_queue();
    (void)DryCard::take_report();
  }
  void TearDown() override { EXPECT_EQ(DryCard::take_report().fault, ""); }

  void* queue_ = nullptr;
};

// ---- tests of the dry card itself ----

TEST_F(CudaLaunch, WhatIsRightIsTaken) {
  for (const LaunchMutant right : {LaunchMutant::kRight, LaunchMutant::kRightShared, LaunchMutant::kRightMostShared}) {
    EXPECT_TRUE(launch_mutant(right, queue_, nullptr));
    const DryReport report = DryCard::take_report();
    EXPECT_EQ(report.fault, "");
    EXPECT_EQ(report.launches, 1u);
  }
}

TEST_F(CudaLaunch, EveryPlantedFaultIsRefused) {
  void* const other = queue_;
  queue_ = DryCard::make_queue();
  struct Planted {
    LaunchMutant mutant;
    const char* words;
  };
  constexpr Planted kPlanted[] = {
      {LaunchMutant::kStreamIgnored, "on the default stream"},
      {LaunchMutant::kStreamOfAnother, "not the queue"},
      {LaunchMutant::kSharedOnDefault, "on the default stream"},
      {LaunchMutant::kCopyOnDefault, "a copy is asked for on the default stream"},
      {LaunchMutant::kCopyWithout, "a copy is asked for on the default stream"},
      {LaunchMutant::kFillOnDefault, "a fill is asked for on the default stream"},
      {LaunchMutant::kTooMuchShared, "takes 131072 bytes of shared memory, and a block of sm_86 has 101376"},
      {LaunchMutant::kSharedBesideStatic, "50176 bytes of shared memory, 1024 of them static, and 0 are opted in"},
      {LaunchMutant::kGridTooHigh, "a grid of 1 x 65536 x 1"},
      {LaunchMutant::kGridTooDeep, "a grid of 1 x 1 x 65536"},
      {LaunchMutant::kGridOfNone, "a grid of 1 x 0 x 1"},
      {LaunchMutant::kBlockTooLarge, "a block of 1025 x 1 x 1"},
      {LaunchMutant::kMoreThreadsThanBounds, "compiled for 256 threads and launched with 512"},
      {LaunchMutant::kParametersTooLarge, "has 4104 bytes of parameters"},
      {LaunchMutant::kNeverOptedIn, "and 0 are opted in"},
      {LaunchMutant::kOptedInForLess, "and 61440 are opted in"},
  };
  static_assert(std::size(kPlanted) + 3 == static_cast<size_t>(LaunchMutant::kCount));
  for (const Planted& each : kPlanted) {
    EXPECT_TRUE(launch_mutant(each.mutant, queue_, other));
    const DryReport report = DryCard::take_report();
    EXPECT_NE(report.fault.find(each.words), std::string::npos) << each.words << " in: " << report.fault;
    EXPECT_EQ(report.launches + report.copies + report.fills, 0u) << each.words;
  }
}

// ---- the table ----

// A backend for the dry card that launches its kernels on `queue`.
struct DryBackend {
  CudaMachine machine;
  Backend backend;
  DryBackend(CardSize size, void* queue, ProductMath math = ProductMath::kF32) {
    choose_cuda_machine(machine, size, math);
    machine.queue = queue;
    backend = cuda_backend(machine);
  }
};

TEST_F(CudaLaunch, TheMachineIsNamedByTheCodeThatRuns) {
  const DryBackend card(CardSize::kLarge, queue_);
  EXPECT_EQ(card.machine.architecture, kCardLimits[0].architecture);
  const std::string kernel_set = card.backend.kernel_set;
  EXPECT_EQ(kernel_set.find("cuda-large/nvcc-"), 0u) << kernel_set;
  EXPECT_NE(kernel_set.find("/sm_80"), std::string::npos) << kernel_set;
}

std::vector<KernelCase> all_cases() {
  std::vector<KernelCase> cases;
  for (const CaseUse use : {CaseUse::kTest, CaseUse::kBench}) {
    for (const KernelCase& c : kernel_cases(use)) {
      cases.push_back(c);
      if (const std::optional<KernelCase> stored = stored_as_bf16(c)) cases.push_back(*stored);
      for (const DType type : {DType::kBf16, DType::kF16, DType::kQ4_0}) {
        if (const std::optional<KernelCase> stored = weights_as(c, type)) cases.push_back(*stored);
      }
    }
  }
  return cases;
}

constexpr uint64_t kMaxBytes = uint64_t{1} << 36;  // limit of a case's bytes; larger cases are not launched

Status dispatch_dry(const Backend& backend, const CasePlan& plan) {
  static const TestWorkers one(1);
  Trainer trainer;
  trainer.plan = &plan.plan();
  trainer.backend = &backend;
  trainer.context.workers = &one.workers();
  trainer.context.machine = backend.machine;
  trainer.context.queue = backend.queue;
  trainer.arena = DryCard::addresses(plan.plan().arena_bytes + kAlignment);
  trainer.context.scalars = reinterpret_cast<StepScalars*>((trainer.arena.base + plan.plan().arena_bytes).for_kernels);
  return dispatch(trainer, plan.program(), plan.row(), false);
}

TEST_F(CudaLaunch, EveryKernelOfTheTableIsLaunchedAsEveryCardTakesIt) {
  const std::vector<KernelCase> cases = all_cases();
  uint64_t called = 0, max_shared_bytes = 0, max_parameter_bytes = 0;
  for (const CudaTable& table : kCudaTables) {
    const DryBackend card(table.size, queue_, table.math);
    for (const KernelCase& c : cases) {
      if (table.math != ProductMath::kF32 && (stores_bf16(c) || !family_of(c.op).multiplies)) continue;
      if (card.backend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] == nullptr) continue;
      const Status status = dispatch_dry(card.backend, CasePlan(card.backend, c));
      const DryReport report = DryCard::take_report();
      EXPECT_TRUE(status.ok()) << c.id << ": " << status.message;
      EXPECT_EQ(report.fault, "") << c.id;
      EXPECT_GT(report.launches + report.copies + report.fills, 0u) << c.id;
      max_shared_bytes = std::max(max_shared_bytes, report.max_shared_bytes);
      max_parameter_bytes = std::max(max_parameter_bytes, report.max_parameter_bytes);
      ++called;
    }
  }
  RecordProperty("most_shared_bytes", std::to_string(max_shared_bytes));
  RecordProperty("most_parameter_bytes", std::to_string(max_parameter_bytes));
  RecordProperty("cases", std::to_string(called));
}

// ---- access to a card's memory, and the recording of a program ----

TEST_F(CudaLaunch, EveryAccessGoesToTheQueue) {
  DryBackend card(CardSize::kSmall, queue_);
  std::vector<unsigned char> pinned(CudaStaging::kBytes), host(3 * CudaStaging::kHalfBytes + 5);
  CudaStaging staging{.base = pinned.data(), .copied = {DryCard::make_event(), DryCard::make_event()}};
  for (CudaStaging* const each : {static_cast<CudaStaging*>(nullptr), &staging}) {
    card.machine.staging = each;
    KernelContext context;
    context.machine = &card.machine;
    context.queue = queue_;
    const HostAccess& access = card.backend.host;
    const ArenaAddress to = DryCard::addresses(kMaxBytes).base, from = to + kMaxBytes / 2;
    EXPECT_TRUE(access.copy_in(context, to, host.data(), host.size()).ok());
    EXPECT_TRUE(access.copy_out(context, host.data(), from, host.size()).ok());
    EXPECT_TRUE(access.fill(context, to, ~0u, kMaxBytes / 2).ok());
    EXPECT_TRUE(access.copy(context, to, from, 1000).ok());
    EXPECT_TRUE(access.synchronise(context).ok());
    const DryReport report = DryCard::take_report();
    EXPECT_EQ(report.fault, "");
    EXPECT_EQ(report.copies, each == nullptr ? 3u : 2u + 4u)
        << "a source of three halves and a bit goes in four pieces";
    EXPECT_EQ(report.launches, 1u);
  }
}

TEST_F(CudaLaunch, ARecordingThatWaitsOrIsMadeElsewhereIsRefused) {
  const DryBackend card(CardSize::kSmall, queue_);
  const Recorder& recorder = card.backend.recorder;
  KernelContext context, elsewhere;
  context.machine = &card.machine;
  context.queue = queue_;
  void* recording = nullptr;
  EXPECT_FALSE(recorder.begin(elsewhere).ok());
  EXPECT_NE(DryCard::take_report().fault.find("a capture is asked for on the default stream"), std::string::npos);
  EXPECT_TRUE(recorder.begin(context).ok());
  EXPECT_FALSE(card.backend.host.synchronise(context).ok());
  EXPECT_FALSE(recorder.end(context, &recording).ok());
  EXPECT_NE(DryCard::take_report().fault.find("waits while work is captured"), std::string::npos);
  EXPECT_FALSE(recorder.replay(context, &recording).ok());
  EXPECT_NE(DryCard::take_report().fault.find("a graph that does not exist"), std::string::npos);
}

// ---- shapes beyond the table ----

// True if the kernel's contract accepts the case, and all tensors together have fewer than
// kMaxBytes bytes.
bool is_possible(const KernelCase& c) {
  const Tensor* tensors[kMaxArguments] = {};
  uint32_t present = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.has(i)) continue;
    tensors[i] = &*c.arguments[i];
    present |= 1u << i;
    if (c.tensor(i).elements() == 0 || !are_whole_blocks(c.tensor(i).dtype, c.tensor(i).last_dimension())) return false;
    bytes += c.tensor(i).bytes;
  }
  const AttributePools pools = pools_of(c.attribute);
  return bytes < kMaxBytes && c.info().shape_fault({c.op, c.pass, tensors, present, &pools, 0}) == Fault::kNone;
}

// Returns the case with every dimension of size `dimension` changed to size `to`.
KernelCase grown(KernelCase c, uint32_t dimension, uint32_t to) {
  for (std::optional<Tensor>& tensor : c.arguments) {
    if (!tensor) continue;
    for (uint32_t d = 0; d < tensor->rank; ++d) {
      if (tensor->shape[d] == dimension) tensor->shape[d] = to;
    }
    tensor->bytes = align_up(tensor->used_bytes());
  }
  c.id += "_" + std::to_string(dimension) + "_is_" + std::to_string(to);
  return c;
}

std::set<uint32_t> dimensions_of(const KernelCase& c) {
  std::set<uint32_t> dimensions;
  for (const std::optional<Tensor>& tensor : c.arguments) {
    for (uint32_t d = 0; tensor && d < tensor->rank; ++d) dimensions.insert(tensor->shape[d]);
  }
  return dimensions;
}

TEST_F(CudaLaunch, EveryKernelTakesEveryDimensionThatItsContractTakes) {
  const DryBackend small(CardSize::kSmall, queue_), large(CardSize::kLarge, queue_),
      tf32(CardSize::kLarge, queue_, ProductMath::kTf32);
  uint64_t called = 0;
  for (const KernelCase& c : kernel_cases()) {
    for (const uint32_t dimension : dimensions_of(c)) {
      for (const uint32_t to : {65'536u, 1'000'003u}) {
        const KernelCase large_case = grown(c, dimension, to);
        if (!is_possible(large_case)) continue;
        for (const DryBackend* card : {&small, &large, &tf32}) {
          const Status status = dispatch_dry(card->backend, CasePlan(card->backend, large_case));
          const DryReport report = DryCard::take_report();
          EXPECT_TRUE(status.ok() || report.launches == 0) << large_case.id << ": " << status.message;
          EXPECT_EQ(report.fault, "") << large_case.id;
          ++called;
        }
      }
    }
  }
  RecordProperty("cases", std::to_string(called));
}

}  // namespace
}  // namespace reprise::test
