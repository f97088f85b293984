// Runs the CUDA attention on fibres, forward and backward: the f32 kernels, and the bf16 kernels on
// tensor cores.
#include "cuda/attention/attention_rules.h"
#include "tests/ports/cards/cuda_products.h"

namespace reprise::test {
namespace {

REPRISE_JUDGE_PRODUCTS(7, 1, Op::kAttention);

// No attention kernel accumulates.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaProductAccumulating);

// ---- tensor cores ----

KernelCase attention_case(const std::string& id) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.id == id) return *stored_as_bf16(c);
  }
  ADD_FAILURE() << "no case " << id;
  return {};
}

// Cases with both widths of tiles, and with partial tiles in all directions. Some have documents,
// groups or dropout; some are causal, others are not.
constexpr const char* kMmaCases[] = {"attention_forward__b1_t200_h1_d64_p0",
                                     "attention_backward__b1_t200_h1_d64_p0",
                                     "attention_forward__b1_t140_h2_kv1_d64_p10_documents",
                                     "attention_backward__b1_t140_h2_kv1_d64_p10_documents",
                                     "attention_forward__b1_t67_h1_d128_p0_documents",
                                     "attention_backward__b1_t67_h1_d128_p0_documents",
                                     "attention_forward__b1_t140_h2_kv1_d64_p10_full_documents",
                                     "attention_backward__b1_t140_h2_kv1_d64_p10_full_documents",
                                     "attention_forward__b1_t140_h1_d128_p0_full_documents",
                                     "attention_backward__b1_t140_h1_d128_p0_full_documents"};

TEST(CudaTensorCores, ReadAndWriteSharedMemoryWithoutBankConflicts) {
  for (const char* id : kMmaCases) {
    (void)fibre::take_bank_counts();
    EXPECT_EQ(judge_reference(watched(kBackend), attention_case(id)), "") << id;
    const fibre::BankCounts counts = fibre::take_bank_counts();
    EXPECT_GT(counts.matrices.accesses, 0u) << id;
    EXPECT_GT(counts.copies.accesses, 0u) << id;
    EXPECT_EQ(counts.conflicts(), 0u) << id;
  }
  EXPECT_EQ(fibre::take_report().text, "");
}

TEST(CudaTensorCores, PassInEveryModelOfTheirSums) {
  for (const fibre::TensorCore model : fibre::kTensorCores) {
    if (model == fibre::kTensorCores[0]) continue;  // covered by the test of every case
    fibre::set_tensor_core(model);
    for (const char* id : kMmaCases) EXPECT_EQ(judge_reference(watched(kBackend), attention_case(id)), "") << id;
  }
  fibre::set_tensor_core(fibre::kTensorCores[0]);
  EXPECT_EQ(fibre::take_report().text, "");
}

// The judge runs each case several times, each time with another order of blocks, threads and
// copies.
TEST(CudaTensorCores, GiveTheSameBitsInEveryOrder) {
  for (const char* id : kMmaCases) EXPECT_EQ(judge_workers(watched(kBackend), attention_case(id)), "") << id;
  EXPECT_EQ(fibre::take_report().text, "");
}

TEST(CudaTensorCores, TakeHeadsWhoseRowsAreWholeChunks) {
  for (uint32_t D = 1; D <= kAttentionMaxHead; ++D) {
    EXPECT_EQ(attention_uses_mma(DType::kBf16, D, {1, 1, 0, 0}), D % 8 == 0 && D <= 128) << D;
    EXPECT_FALSE(attention_uses_mma(DType::kF32, D, {1, 1, 0, 0})) << D;
    EXPECT_FALSE(
        attention_uses_mma(DType::kBf16, D, {.heads = 1, .kv_heads = 1, .dropout = 0, .stream = 0, .softcap = 50}))
        << D;
  }
}

}  // namespace
}  // namespace reprise::test
