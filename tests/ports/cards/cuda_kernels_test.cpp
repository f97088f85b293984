// Runs every CUDA kernel, except the products (cuda_products.h), on fibres on every case of the
// table. Outputs are compared with the double-precision reference, and with runs in other thread
// orders, with other initial memory, in place, and accumulating. Activations are stored as f32 and
// as bf16. So CUDA kernels have the same judges as CPU kernels, without nvcc or a GPU.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_rules.h"
#include "cuda/gemm/pack.h"
#include "cuda/norm/grad_norm_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/fibres/cuda_fibre_cases.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

const CudaMachine kMachine = [] {
  CudaMachine machine;
  choose_cuda_machine(machine);
  machine.queue = fibre::queue_of_tests();
  return machine;
}();
const Backend kBackend = cuda_backend(kMachine);

// ---- which cases ----

// True for the ops that have tests of their own (cuda_products.h).
bool is_product(Op op) {
  constexpr Op kProducts[] = {Op::kLinear, Op::kConv, Op::kNormConv, Op::kConvTranspose, Op::kAttention, Op::kLossHead};
  return std::find(std::begin(kProducts), std::end(kProducts), op) != std::end(kProducts);
}
bool exists(const KernelCase& c) {
  return !is_product(c.op) && kBackend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] != nullptr;
}

std::vector<Judged> judged(bool (*keep)(const KernelCase&)) {
  std::vector<Judged> kept;
  for (const KernelCase& c : kernel_cases()) {
    if (exists(c) && keep(c)) kept.push_back({&kBackend, c});
    const std::optional<KernelCase> stored = stored_as_bf16(c);
    if (stored && exists(*stored) && keep(*stored)) kept.push_back({&kBackend, *stored});
  }
  return kept;
}

// True if the case overwrites its outputs. Other cases are skipped, because they compute the same
// sums in the same order.
bool overwrites(const KernelCase& c) { return c.accumulate == 0; }
bool accumulates_f32(const KernelCase& c) { return accumulates(c) && !stores_bf16(c); }

class CudaKernel : public ::testing::TestWithParam<Judged> {
 protected:
  CudaKernel() {
    fibre::set_order(1);
    fibre::expect_queue(fibre::queue_of_tests());
  }
  ~CudaKernel() override {
    fibre::expect_queue(nullptr);
    EXPECT_EQ(fibre::take_report().text, "");
  }
};
class CudaBits : public CudaKernel {};
class CudaInPlace : public CudaKernel {};
class CudaAccumulating : public CudaKernel {};

TEST_P(CudaKernel, AgreesWithTheReference) {
  EXPECT_EQ(judge_reference(watched(*GetParam().backend), GetParam().c), "");
}
// The judge runs a case several times. Each run has another order of blocks and threads, because
// the fibres continue to draw from one seed.
TEST_P(CudaBits, DoNotDependOnOrderNorOnWhatMemoryHeld) {
  EXPECT_EQ(judge_memory(watched(*GetParam().backend), GetParam().c), "");
}
TEST_P(CudaInPlace, GivesTheSameBits) { EXPECT_EQ(judge_in_place(watched(*GetParam().backend), GetParam().c), ""); }
TEST_P(CudaAccumulating, AddsToWhatIsThere) {
  EXPECT_EQ(judge_accumulate(watched(*GetParam().backend), GetParam().c), "");
}

INSTANTIATE_TEST_SUITE_P(Fibres, CudaKernel, ::testing::ValuesIn(judged(any)), id_of);
INSTANTIATE_TEST_SUITE_P(Fibres, CudaBits, ::testing::ValuesIn(judged(overwrites)), id_of);
INSTANTIATE_TEST_SUITE_P(Fibres, CudaInPlace, ::testing::ValuesIn(judged(has_in_place)), id_of);
INSTANTIATE_TEST_SUITE_P(Fibres, CudaAccumulating, ::testing::ValuesIn(judged(accumulates_f32)), id_of);

// ---- what exists ----

TEST(CudaBackend, HasEveryKernel) {
  EXPECT_EQ(kBackend.rules, &kCudaRules);
  EXPECT_STREQ(kCudaRules.name, "cuda");
  EXPECT_STREQ(kBackend.kernel_set, "cuda/fibres/sm_0");
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    if (kOps[i].asynchronous()) continue;  // no backend has these kernels
    EXPECT_TRUE(kCudaRules.kernels[i].exists) << kOps[i].name;
    EXPECT_NE(kBackend.kernels[i][0], nullptr) << kOps[i].name;
    EXPECT_EQ(kBackend.kernels[i][1] != nullptr, first_activation(kOps[i]) != kMaxArguments)
        << kOps[i].name << " in bf16";
  }
}

// ---- beyond the table of cases ----

// Compares kernels with the CPU's kernels bit by bit. All bits must be equal, because both round
// once or sum in the same order, and draw the same dropout mask.
class CudaAsCpu : public CudaKernel {};
bool has_the_bits_of_the_cpu(const KernelCase& c) {
  constexpr Op kOpsAlike[] = {Op::kRelu,    Op::kAdd,     Op::kCopy, Op::kMove,   Op::kDropout, Op::kEmbedding,
                              Op::kMaxPool, Op::kColumns, Op::kPad,  Op::kConcat, Op::kReshape, Op::kTranspose};
  return std::find(std::begin(kOpsAlike), std::end(kOpsAlike), c.op) != std::end(kOpsAlike) && !c.expects_bad_index();
}
TEST_P(CudaAsCpu, GivesTheSameBits) {
  const KernelCase& c = GetParam().c;
  const CaseData data = make_data(c);
  const TestWorkers one(1);
  const CaseRunResult here = run_case(watched(kBackend), c, data, {.workers = &one.workers()});
  const CaseRunResult there = run_case(test_backend(), c, data, {.workers = &one.workers()});
  EXPECT_EQ(here.outputs, there.outputs);
}
INSTANTIATE_TEST_SUITE_P(Fibres, CudaAsCpu, ::testing::ValuesIn(judged(has_the_bits_of_the_cpu)), id_of);

// Moves n elements by `shift` elements, so that source and result may overlap, as a move row does
// with a gradient. The result must be equal to that of memmove. Slots and their distances are
// aligned.
template <typename Stored>
void move_overlapping(uint32_t n, int shift) {
  constexpr size_t kSpace = 4096;
  std::vector<Words<uint32_t, 4>> memory((n + 2 * kSpace) * sizeof(Stored) / 16 + 1);
  uint16_t* halves = reinterpret_cast<uint16_t*>(memory.data());
  for (size_t i = 0; i < memory.size() * 8; ++i) halves[i] = static_cast<uint16_t>(i * 40503u >> 3);
  std::vector<Words<uint32_t, 4>> want = memory;
  Stored *x = reinterpret_cast<Stored*>(memory.data()) + kSpace,
         *of_want = reinterpret_cast<Stored*>(want.data()) + kSpace;
  std::memmove(static_cast<void*>(of_want + shift), of_want, n * sizeof(Stored));
  ASSERT_TRUE(cuda_move<Stored>({}, {x + shift, x, n, false, false}).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(std::memcmp(memory.data(), want.data(), memory.size() * 16), 0) << n << " elements by " << shift;
}

TEST(CudaMove, MayOverlap) {
  fibre::set_order(1);
  for (const uint32_t n : {1u, 101u, 5000u, 60001u}) {
    for (const int shift : {-4096, -1152, -128, 0, 128, 1152, 4096}) {
      move_overlapping<float>(n, shift);
      move_overlapping<Bf16>(n, shift);
    }
  }
  EXPECT_EQ(fibre::take_report().text, "");
}

// The bits of a tensor's sum of squares must depend on this tensor alone, not on other tensors of
// its row or on the launch that computes the sum. So they must equal the bits of a row that
// contains only this tensor. Such a row needs scratch only if the tensor has more than one part.
TEST(CudaGradNorm, FollowsFromTheTensorAlone) {
  fibre::set_order(1);
  std::vector<uint32_t> sizes(140, 37);
  sizes[0] = 16385, sizes[3] = 16384, sizes[5] = 50001, sizes[126] = 16383, sizes[127] = 40000, sizes[128] = 32768,
  sizes[139] = 32769;
  std::vector<Tensor> tensors;
  uint64_t bytes = 0;
  for (const uint32_t size : sizes) {
    tensors.push_back(*shaped({size}));
    tensors.back().offset = bytes;
    bytes += tensors.back().bytes;
  }
  std::vector<Words<float, 4>> memory(bytes / 16);
  float* gradients = reinterpret_cast<float*>(memory.data());
  // The squares of these values are not exact in f32.
  for (uint64_t i = 0; i < bytes / sizeof(float); ++i)
    gradients[i] = static_cast<float>(std::sin(static_cast<double>(i)));
  const auto reduce = [](double* norms, const float* x, const Tensor* first, uint32_t count, uint64_t elements) {
    std::vector<double> scratch(cuda_grad_norm_scratch_bytes({count, 0, elements}) / sizeof(double));
    EXPECT_TRUE(cuda_grad_norm_reduce({}, {.norms = norms,
                                           .gradients = x,
                                           .tensors = first,
                                           .count = count,
                                           .scratch = scratch.data(),
                                           .scratch_bytes = scratch.size() * sizeof(double)})
                    .ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  const auto count = static_cast<uint32_t>(sizes.size());
  std::vector<double> together(count), alone(count);
  reduce(together.data(), gradients, tensors.data(), count, bytes / sizeof(float));
  for (uint32_t t = 0; t < count; ++t)
    reduce(&alone[t], gradients + tensors[t].offset / sizeof(float), &tensors[t], 1, sizes[t]);
  EXPECT_EQ(together, alone);
  EXPECT_EQ(fibre::take_report().text, "");
}

TEST(CudaGradNorm, TakesScratchWhereATensorMayHaveTwoParts) {
  EXPECT_EQ(cuda_grad_norm_scratch_bytes({1, 0, kCudaNormPart}), 0u);
  EXPECT_EQ(cuda_grad_norm_scratch_bytes({50, 7, kCudaNormPart}), 0u);
  for (const uint64_t elements : {kCudaNormPart + 1, 2 * kCudaNormPart, 38597376 + kCudaNormPart - 1}) {
    EXPECT_GE(cuda_grad_norm_scratch_bytes({1, 0, elements}), cuda_norm_parts(elements) * sizeof(double));
  }
  // This group is the smallest that uses all of its scratch.
  const uint64_t of_both = cuda_norm_parts(1) + cuda_norm_parts(kCudaNormPart + 1);
  EXPECT_GE(cuda_grad_norm_scratch_bytes({2, 0, 16 + kCudaNormPart + 1}), of_both * sizeof(double));
}

}  // namespace
}  // namespace reprise::test
