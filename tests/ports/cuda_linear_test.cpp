// The CUDA linear layers by fibres, and the rules of every product's shape: which tile, how many parts.
#include "tests/ports/cuda_products.h"

namespace reprise::test {
namespace {

REPRISE_JUDGE_PRODUCTS(23, 7, Op::kLinear);

// ---- the shape rules ----

TEST(CudaProductShape, PartsCoverTheDepthOnce) {
  for (uint64_t depth = 1; depth < 20000; depth += depth < 600 ? 1 : 61) {
    for (const uint64_t side : {1u, 64u, 200u, 2000u}) {
      const DepthSplit split = split_depth({side, side, depth}, {kSmallSide, kSmallSide});
      EXPECT_GE(split.count * split.size, depth);
      EXPECT_LT((split.count - 1) * split.size, depth);
      EXPECT_LE(split.count, 64u);
    }
    const DepthSplit chunks = split_rows_of_columns(depth);
    EXPECT_GE(chunks.count * chunks.size, depth);
    EXPECT_LT((chunks.count - 1) * chunks.size, depth);
    EXPECT_LE(chunks.count, 128u);
  }
}

// ---- tensor cores ----

KernelCase linear_case(const std::string& id) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.id == id) return *stored_as_bf16(c);
  }
  ADD_FAILURE() << "no case " << id;
  return {};
}

// Of shapes that tensor cores take: both ways in which a weight lies, and the weight's gradient.
constexpr const char* kMmaCases[] = {"linear_forward__m32_c16_k32", "linear_forward__m32_c16_k32_input_major",
                                     "linear_backward_data__m48_c256_k48", "linear_backward_weight__m48_c256_k48"};

TEST(CudaTensorCores, ReadAndWriteSharedMemoryWithoutBankConflicts) {
  for (const char* id : kMmaCases) {
    (void)fibre::take_bank_counts();
    EXPECT_EQ(judge_reference(kWaitingBackend, linear_case(id)), "") << id;
    const fibre::BankCounts counts = fibre::take_bank_counts();
    EXPECT_GT(counts.matrices.accesses, 0u) << id;
    EXPECT_GT(counts.copies.accesses, 0u) << id;
    EXPECT_EQ(counts.matrices.conflicts(), 0u) << id;
    EXPECT_EQ(counts.copies.conflicts(), 0u) << id;
  }
  EXPECT_EQ(fibre::take_report().text, "");
}

TEST(CudaTensorCores, PassInEveryModelOfTheirSums) {
  for (const fibre::TensorCore model : fibre::kTensorCores) {
    fibre::set_tensor_core(model);
    for (const char* id : kMmaCases) EXPECT_EQ(judge_reference(kWaitingBackend, linear_case(id)), "") << id;
  }
  fibre::set_tensor_core(fibre::kTensorCores[0]);
  EXPECT_EQ(fibre::take_report().text, "");
}

}  // namespace
}  // namespace reprise::test
