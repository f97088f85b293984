// Runs the CUDA loss head on fibres: its logits and both gradients are products. cuda_math_test.cpp
// runs the loss head with each math.
#include "tests/ports/cards/cuda_products.h"

namespace reprise::test {
namespace {

REPRISE_JUDGE_PRODUCTS(11, 7, Op::kLossHead);

}  // namespace
}  // namespace reprise::test
