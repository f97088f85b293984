// Runs the CUDA convolutions on fibres: of x, and of relu(norm(x)); with and without statistics of
// the outputs.
#include "tests/ports/cards/cuda_products.h"

#include "cuda/conv/conv_source.h"

#include <set>
#include <utility>

namespace reprise::test {
namespace {

REPRISE_JUDGE_PRODUCTS(23, 7, Op::kConv, Op::kNormConv, Op::kConvTranspose);
REPRISE_JUDGE_MATH(Tf32, kTf32Backend, 13, 97, Op::kConv, Op::kNormConv, Op::kConvTranspose);
REPRISE_JUDGE_MATH(Bf16x3, kBf16x3Backend, 13, 97, Op::kConv, Op::kNormConv, Op::kConvTranspose);

// ---- tensor cores ----

// A case that the test of bank conflicts must skip. The fibres treat the n-th store of each lane at
// a line as one access of the warp. Here some lanes skip stores because of padding, so different
// stores would be counted as one access.
constexpr const char* kConvertsBesidePadding = "norm_conv_backward_weight__n3_14x13_c16_k24_r3s3_stride1_pad1";

// Cases with every kind of operand, converted and not converted: pixels of x, pixels of a gradient,
// taps, taps of one phase.
constexpr const char* kMmaCases[] = {"conv_forward__n2_9x7_c8_k16_r3s3_stride2_pad1",
                                     "conv_forward__n2_7x9_c136_k40_r1s1_stride2_pad0_statistics",
                                     "conv_forward__n1_9x8_c16_k33_r3s3_stride2_pad1",
                                     "norm_conv_forward__n3_14x13_c16_k24_r3s3_stride1_pad1_statistics",
                                     "norm_conv_forward__n2_7x9_c136_k40_r1s1_stride2_pad0",
                                     "conv_backward_data__n2_9x7_c8_k16_r3s3_stride2_pad1",
                                     "conv_backward_data__n2_7x9_c136_k40_r1s1_stride2_pad0",
                                     "conv_backward_weight__n2_7x9_c136_k40_r1s1_stride2_pad0",
                                     "norm_conv_backward_weight__n2_7x9_c136_k40_r1s1_stride2_pad0",
                                     kConvertsBesidePadding};

TEST(CudaTensorCores, ReadAndWriteSharedMemoryWithoutBankConflicts) {
  for (const char* id : kMmaCases) {
    if (id == kConvertsBesidePadding) continue;
    expect_no_bank_conflicts(stored_case(id));
    for (const Backend* backend : {&kTf32Backend, &kBf16x3Backend}) {
      if (has_tensor_operands(plain_case(id))) expect_no_bank_conflicts(plain_case(id), *backend);
    }
  }
}
TEST(CudaTensorCores, PassInEveryModelOfTheirSums) {
  for (const char* id : kMmaCases) {
    expect_right_in_every_model(stored_case(id));
    for (const Backend* backend : {&kTf32Backend, &kBf16x3Backend})
      expect_right_in_every_model(plain_case(id), *backend);
  }
}

// Requires that the table has cases for each tile of each pass, and for a sum in several parts.
TEST(CudaTensorCores, AreAskedForEveryTile) {
  std::set<std::pair<Pass, uint32_t>> met;
  bool in_parts = false;
  const auto meet = [&](const KernelCase& c, const ProductShape& product) {
    met.insert({c.pass, mma_tile(product).rows});
  };
  for (const KernelCase& c : kernel_cases()) {
    if (c.op != Op::kConv) continue;
    const WindowAttribute& window = c.as<WindowAttribute>();
    if (c.pass == Pass::kForward) {
      const ConvShape s = conv_shape(c.tensor(ConvForward::kX), c.tensor(ConvForward::kY), window);
      if (conv_forward_uses_mma(DType::kBf16, s)) meet(c, conv_forward_product(s));
    } else if (c.pass == Pass::kBackwardWeight) {
      const ConvShape s = conv_shape(c.tensor(ConvBackwardWeight::kX), c.tensor(ConvBackwardWeight::kDy), window);
      if (!conv_backward_uses_mma(DType::kBf16, s)) continue;
      meet(c, conv_weight_product(s));
      in_parts |= split_depth(conv_weight_product(s),
                              conv_weight_tile(DType::kBf16, s, ProductMath::kF32, CardSize::kSmall), CardSize::kSmall)
                      .count > 1;
    } else {
      const ConvShape s = conv_shape(c.tensor(ConvBackwardData::kDx), c.tensor(ConvBackwardData::kDy), window);
      const ConvPhase rows = conv_phase(s.H, window.rows(), 0), columns = conv_phase(s.W, window.columns(), 0);
      if (conv_backward_uses_mma(DType::kBf16, s)) meet(c, {ConvPhases{rows, columns}.inputs(s.N), s.C, s.K});
    }
  }
  EXPECT_EQ(met.size(), 9u);
  EXPECT_TRUE(in_parts);
}

}  // namespace
}  // namespace reprise::test
