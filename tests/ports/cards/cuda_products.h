// Runs the CUDA products on fibres on cases of the table. The results of every case are compared
// with the double-precision reference. Every n-th case is also compared with runs in other thread
// orders, on other initial memory, and with accumulation. Activations and weights are stored as f32
// and as bf16. Products take long on fibres, so each family has a test program of its own, and the
// programs run in parallel.
#pragma once

#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_host_access.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_rules.h"
#include "cuda/gemm/product_shape.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ports/fibres/cuda_fibre_cases.h"

namespace reprise::test {
// ---- backends whose tables contain only products ----

inline Backend backend_of_products(const CudaMachine& machine) {
  Backend table = {.rules = &cuda_rules_of(machine.size, machine.math),
                   .kernel_set = "cuda/fibres",
                   .machine = &machine,
                   .host = kCudaHostAccess,
                   .queue = machine.queue};
  add_cuda_products<float>(table);
  add_cuda_products<Bf16>(table);
  return table;
}
inline const CudaMachine kSmallMachine = {.size = CardSize::kSmall, .queue = fibre::queue_of_tests()},
                         kLargeMachine = {.size = CardSize::kLarge, .queue = fibre::queue_of_tests()};
inline const CudaMachine kTf32Machine = {.size = CardSize::kSmall,
                                         .math = ProductMath::kTf32,
                                         .queue = fibre::queue_of_tests()},
                         kBf16x3Machine = {.size = CardSize::kSmall,
                                           .math = ProductMath::kBf16x3,
                                           .queue = fibre::queue_of_tests()};
inline const Backend kBackend = backend_of_products(kSmallMachine), kLargeBackend = backend_of_products(kLargeMachine),
                     kTf32Backend = backend_of_products(kTf32Machine),
                     kBf16x3Backend = backend_of_products(kBf16x3Machine);

// ---- which cases ----

// Returns every `every`-th of the families' cases that `keep` accepts. A case is counted once as
// f32 and once as bf16.
template <Op... kOfFamily>
std::vector<Judged> products(bool (*keep)(const KernelCase&), uint32_t every, const Backend& backend = kBackend) {
  std::vector<Judged> kept;
  uint32_t met = 0;
  const auto add = [&](const KernelCase& c) {
    if (keep(c) && met++ % every == 0) kept.push_back({&backend, c});
  };
  for (const KernelCase& c : kernel_cases()) {
    if (((c.op != kOfFamily) && ...)) continue;
    add(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) add(*stored);
  }
  return kept;
}

// Returns every `every`-th of the small cases with f32 operands that tensor cores can multiply.
template <Op... kOfFamily>
std::vector<Judged> products_by_math(const Backend& backend, uint32_t every) {
  // A tile always computes 128 x 128 outputs, which takes long on fibres. So only small cases run,
  // about half of the table; they contain all kinds of edges.
  const auto keep = [](const KernelCase& c) {
    constexpr uint64_t kMaxElements = 30'000;
    uint64_t elements = 0;
    for (const std::optional<Tensor>& tensor : c.arguments) elements += tensor ? tensor->elements() : 0;
    return !stores_bf16(c) && has_tensor_operands(c) && elements <= kMaxElements;
  };
  return products<kOfFamily...>(keep, every, backend);
}

// Returns the case of the table with this id. stored_case() returns that case stored as bf16.
inline KernelCase plain_case(const std::string& id) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.id == id) return c;
  }
  ADD_FAILURE() << "no case " << id;
  return {};
}
inline KernelCase stored_case(const std::string& id) { return *stored_as_bf16(plain_case(id)); }

// Runs the case. Requires that no access to shared memory has a bank conflict, and that the result
// is near the reference.
inline void expect_no_bank_conflicts(const KernelCase& c, const Backend& backend = kBackend) {
  const std::string id = c.id + " by " + backend.rules->name;
  (void)fibre::take_bank_counts();
  EXPECT_EQ(judge_reference(watched(backend), c), "") << id;
  const fibre::BankCounts counts = fibre::take_bank_counts();
  if (stores_bf16(c)) {  // only bf16 operands are loaded as matrices; f32 in [depth][index] is read word by word
    EXPECT_GT(counts.matrices.accesses, 0u) << id;
  }
  EXPECT_GT(counts.copies.accesses, 0u) << id;
  EXPECT_GT(counts.stores.accesses, 0u) << id;
  EXPECT_EQ(counts.matrices.conflicts(), 0u) << id;
  EXPECT_EQ(counts.copies.conflicts(), 0u) << id;
  EXPECT_EQ(counts.loads.conflicts(), 0u) << id;
  EXPECT_EQ(counts.stores.conflicts(), 0u) << id;
  EXPECT_EQ(fibre::take_report().text, "");
}
inline void expect_right_in_every_model(const KernelCase& c, const Backend& backend = kBackend) {
  for (const fibre::TensorCore model : fibre::kTensorCores) {
    fibre::set_tensor_core(model);
    EXPECT_EQ(judge_reference(watched(backend), c), "") << c.id << " by " << backend.rules->name;
  }
  fibre::set_tensor_core(fibre::kTensorCores[0]);
  EXPECT_EQ(fibre::take_report().text, "");
}

// Returns the model of the sums of tensor cores. The environment variable TENSOR_CORE=1 or 2
// selects another model for the whole table, as in `make cuda-models`.
inline fibre::TensorCore chosen_tensor_core() {
  const char* number = std::getenv("TENSOR_CORE");
  return fibre::kTensorCores[number == nullptr ? 0
                                               : std::strtoul(number, nullptr, 10) % std::size(fibre::kTensorCores)];
}

class CudaProduct : public ::testing::TestWithParam<Judged> {
 protected:
  CudaProduct() {
    fibre::set_order(1);
    fibre::set_tensor_core(chosen_tensor_core());
    fibre::expect_queue(fibre::queue_of_tests());
  }
  ~CudaProduct() override {
    fibre::expect_queue(nullptr);
    EXPECT_EQ(fibre::take_report().text, "");
  }
};
class CudaProductRepeated : public CudaProduct {};
class CudaProductAccumulating : public CudaProduct {};

TEST_P(CudaProduct, AgreesWithTheReference) {
  EXPECT_EQ(judge_reference(watched(*GetParam().backend), GetParam().c), "");
}
// Compares runs in different orders of blocks and threads. The orders differ because the fibres
// continue to draw from one seed.
TEST_P(CudaProductRepeated, BitsDoNotDependOnOrderNorOnWhatMemoryHeld) {
  EXPECT_EQ(judge_memory(watched(*GetParam().backend), GetParam().c), "");
}
TEST_P(CudaProductAccumulating, AddsToWhatIsThere) {
  EXPECT_EQ(judge_accumulate(watched(*GetParam().backend), GetParam().c), "");
}

// True if the backend for large cards may split the sums of this case differently.
inline bool is_split(const KernelCase& c) { return c.pass == Pass::kBackwardWeight || c.pass == Pass::kBackwardBias; }

// Instantiates the tests for one family of products. Only every `repeated`-th case is run in
// several orders, and every `accumulated`-th accumulating, so that the program ends in seconds.
#define REPRISE_JUDGE_PRODUCTS(repeated, accumulated, ...)                                                         \
  INSTANTIATE_TEST_SUITE_P(Fibres, CudaProduct, ::testing::ValuesIn(products<__VA_ARGS__>(any, 1)), id_of);        \
  INSTANTIATE_TEST_SUITE_P(Large, CudaProduct,                                                                     \
                           ::testing::ValuesIn(products<__VA_ARGS__>(is_split, repeated, kLargeBackend)), id_of);  \
  INSTANTIATE_TEST_SUITE_P(Fibres, CudaProductRepeated, ::testing::ValuesIn(products<__VA_ARGS__>(any, repeated)), \
                           id_of);                                                                                 \
  INSTANTIATE_TEST_SUITE_P(Fibres, CudaProductAccumulating,                                                        \
                           ::testing::ValuesIn(products<__VA_ARGS__>(accumulates, accumulated)), id_of)

// True if the case accumulates and has f32 operands that tensor cores can multiply.
inline bool accumulates_by_math(const KernelCase& c) {
  return !stores_bf16(c) && accumulates(c) && has_tensor_operands(c);
}
#define REPRISE_JUDGE_MATH(Name, backend, every, repeated, ...)                                                   \
  INSTANTIATE_TEST_SUITE_P(Name, CudaProduct, ::testing::ValuesIn(products_by_math<__VA_ARGS__>(backend, every)), \
                           id_of);                                                                                \
  INSTANTIATE_TEST_SUITE_P(Name, CudaProductRepeated,                                                             \
                           ::testing::ValuesIn(products_by_math<__VA_ARGS__>(backend, repeated)), id_of);         \
  INSTANTIATE_TEST_SUITE_P(Name, CudaProductAccumulating,                                                         \
                           ::testing::ValuesIn(products<__VA_ARGS__>(accumulates_by_math, 29, backend)), id_of)

}  // namespace reprise::test
