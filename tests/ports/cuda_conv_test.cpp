// The CUDA convolutions by fibres, of x and of relu(norm(x)), with and without the moments of what they write.
#include "tests/ports/cuda_products.h"

namespace reprise::test {

REPRISE_JUDGE_PRODUCTS(23, 7, Op::kConv, Op::kNormConv);

}  // namespace reprise::test
