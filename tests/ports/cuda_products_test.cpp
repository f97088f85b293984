// The CUDA products, run by fibres, on every case of the table: linear layers, convolutions and attention against the double-precision
// reference, by the order of threads and what memory held before, accumulated; activations and weights stored as f32 and as bf16.
// Here apart from cuda_kernels_test.cpp because products take the fibres long: of the cases, every kRepeated-th is run again for its bits.
#include "tests/ports/cuda_fibre.h"

#include <gtest/gtest.h>

#include "cuda/cuda_kernels.h"
#include "cuda/cuda_rules.h"
#include "cuda/product_shape.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_judge.h"

namespace reprise::test {
namespace {

// ---- a backend for readers that do not wait, as the judge of kernels ----

const Backend kBackend = [] {
  Backend table = {.rules = &kCudaRules, .kernel_set = "cuda/fibres"};
  add_cuda_products<float>(table);
  add_cuda_products<Bf16>(table);
  return table;
}();

// The kernel of the row, and then the wait that a reader of its results owes.
Status run_and_wait(const KernelContext& context, const RowCall& call) {
  const uint32_t index = kernel_index(call.op, call.pass), activation = contract::kIndex.activation[index];
  REPRISE_RETURN_IF_ERROR(kBackend.kernels[index][call[activation].dtype == DType::kBf16 ? 1 : 0](context, call));
  (void)cudaStreamSynchronize(context.queue);
  return cudaGetLastError() == cudaSuccess ? ok_status() : Status{Code::kBackend, "a CUDA kernel must run without a fault", 0};
}

const Backend kWaitingBackend = [] {
  Backend table = kBackend;
  for (auto& storages : table.kernels) {
    for (Kernel& kernel : storages) kernel = kernel == nullptr ? nullptr : run_and_wait;
  }
  return table;
}();

// ---- which cases ----

constexpr bool is_product(Op op) { return op == Op::kLinear || op == Op::kConv || op == Op::kNormConv || op == Op::kAttention; }

std::vector<Judged> products(bool (*keep)(const KernelCase&), uint32_t every) {
  std::vector<Judged> kept;
  uint32_t met = 0;
  const auto add = [&](const KernelCase& c) {
    const bool exists = kBackend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] != nullptr;
    if (exists && keep(c) && met++ % every == 0) kept.push_back({&kWaitingBackend, c});
  };
  for (const KernelCase& c : kernel_cases()) {
    if (!is_product(c.op)) continue;
    add(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) add(*stored);
  }
  return kept;
}

class CudaProduct : public ::testing::TestWithParam<Judged> {
 protected:
  CudaProduct() { fibre::set_order(1); }
  ~CudaProduct() override { EXPECT_EQ(fibre::take_report().text, ""); }
};
class CudaProductRepeated : public CudaProduct {};
class CudaProductAccumulating : public CudaProduct {};

TEST_P(CudaProduct, AgreesWithTheReference) { EXPECT_EQ(judge_reference(*GetParam().backend, GetParam().c), ""); }
// The judge's runs meet other orders of blocks and threads, because the fibres draw on.
TEST_P(CudaProductRepeated, BitsDoNotDependOnOrderNorOnWhatMemoryHeld) { EXPECT_EQ(judge_workers(*GetParam().backend, GetParam().c), ""); }
TEST_P(CudaProductAccumulating, AddsToWhatIsThere) { EXPECT_EQ(judge_accumulate(*GetParam().backend, GetParam().c), ""); }

constexpr uint32_t kRepeated = 11, kAccumulated = 3;
INSTANTIATE_TEST_SUITE_P(Fibres, CudaProduct, ::testing::ValuesIn(products(any, 1)), id_of);
INSTANTIATE_TEST_SUITE_P(Fibres, CudaProductRepeated, ::testing::ValuesIn(products(any, kRepeated)), id_of);
INSTANTIATE_TEST_SUITE_P(Fibres, CudaProductAccumulating, ::testing::ValuesIn(products(accumulates, kAccumulated)), id_of);

// ---- the shape rules ----

TEST(CudaProductShape, PartsCoverTheDepthOnce) {
  for (uint64_t depth = 1; depth < 20000; depth += depth < 600 ? 1 : 61) {
    for (const uint64_t side : {1u, 64u, 200u, 2000u}) {
      const DepthSplit split = split_depth({side, side, depth});
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

}  // namespace
}  // namespace reprise::test
