// The CUDA attention by fibres, forward and backward.
#include "tests/ports/cuda_products.h"

namespace reprise::test {

REPRISE_JUDGE_PRODUCTS(5, 1, Op::kAttention);

// Attention adds to nothing.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudaProductAccumulating);

}  // namespace reprise::test
