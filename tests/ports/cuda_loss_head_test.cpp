// The CUDA loss head by fibres: logits and both gradients are products. cuda_math_test has them by each math.
#include "tests/ports/cuda_products.h"

namespace reprise::test {
namespace {

REPRISE_JUDGE_PRODUCTS(11, 7, Op::kLossHead);

}  // namespace
}  // namespace reprise::test
