// Tests the rules of convolutions from shapes alone. Scratch and stack must be large enough for
// every product of a call. The rules must also select products of bf16 pairs for the shapes for
// which they are faster, and for no others. No kernel runs, because the shapes that once failed are
// too large. For example, in the data gradient of 512 channels with stride 2, one phase packs more
// columns than the product of all taps.
#include <gtest/gtest.h>

#include "lib/cpu/conv/conv_pairs.h"
#include "lib/cpu/cpu_rules.h"
#include "tests/ops/case_plan.h"
#include "tests/ops/families.h"
#include "tests/ports/test_machine.h"

namespace reprise::test {
namespace {

ConvShape square(uint32_t size, uint32_t C, uint32_t K, uint16_t kernel, uint16_t stride) {
  const uint16_t pad = kernel / 2;
  const uint32_t P = (size + 2u * pad - kernel) / stride + 1;
  return {4, size, size, C, P, P, K, {kernel, kernel, stride, pad}};
}

// Requires that scratch and worker stack of a convolution's data gradient suffice for the product
// of every phase (one for each residue of the stride).
void expect_space(const ConvShape& s) {
  using A = ConvBackwardData;
  const bool multiplies =
      conv_data_algorithm(s) == ConvAlgorithm::kProduct || has_space_for_pairs(s, ConvPass::kData, DType::kBf16);
  if (!multiplies) return;
  const KernelCase c = named_case<A>({{A::kDx, shaped({s.N, s.H, s.W, s.C}, DType::kBf16)},
                                      {A::kDy, shaped({s.N, s.P, s.Q, s.K}, DType::kBf16)},
                                      {A::kW, shaped({s.K, s.window.kernel_h, s.window.kernel_w, s.C})}},
                                     s.window);
  const CasePlan plan(Backend{.rules = &kCpuRules}, c);
  for_each_phase(s, [&](const DataPhase& phase) {
    if (phase.tapless()) return;
    const uint64_t depth = uint64_t{phase.rows.taps()} * phase.columns.taps() * s.K;
    EXPECT_GE(conv_backward_data_scratch(s, DType::kBf16, DType::kF32).bytes,
              gemm_scratch_bytes(s.C, depth, DType::kBf16))
        << c.id;
    EXPECT_GE(plan.plan().worker_stack_bytes, product_stack_bytes(s.C, depth, {.output = DType::kBf16, .lines = true}))
        << c.id;
  });
}

TEST(ConvRules, ScratchAndStackHoldEveryPhaseOfADataGradient) {
  for (const uint32_t C : {16u, 225u, 512u}) {
    for (const uint32_t K : {16u, 256u, 512u, 2048u}) {
      for (const uint16_t kernel : {1, 3, 5}) {
        for (const uint16_t stride : {1, 2, 3}) {
          expect_space(square(14, C, K, kernel, stride));
        }
      }
    }
  }
}

// Returns a machine that multiplies pairs of bf16 with its vectors if `group` is 1, and otherwise
// with a matrix unit.
CpuMachine with_pairs(uint32_t group) {
  static GemmTile tiles[2];
  GemmTile& tile = tiles[group > 1];
  tile.group_of_a = group;
  CpuMachine machine;
  machine.pairs = &tile;
  machine.paired_winograd_tiles = 256;
  return machine;
}

TEST(ConvRules, PairsAreMultipliedWhereTheyAreFaster) {
  const CpuMachine none, vectors = with_pairs(1), unit = with_pairs(16);
  const auto of = [](const CpuMachine& machine, const ConvShape& s) {
    std::string passes;
    for (const ConvPass pass : {ConvPass::kForward, ConvPass::kData, ConvPass::kWeight})
      passes += conv_multiplies_pairs(machine, s, pass) ? "fdw"[static_cast<int>(pass)] : '-';
    return passes;
  };
  const ConvShape strided = square(28, 256, 256, 3, 2), wide = square(56, 64, 64, 3, 1),
                  deep = square(7, 512, 512, 3, 1), few = square(32, 32, 32, 3, 1);
  for (const ConvShape& s : {strided, wide, deep, few}) EXPECT_EQ(of(none, s), "---");
  EXPECT_EQ(of(vectors, strided), "fdw");
  EXPECT_EQ(of(vectors, wide), "---") << "Winograd's saves more than pairs";
  EXPECT_EQ(of(unit, wide), "fdw");
  EXPECT_EQ(of(vectors, deep), "fdw") << "too few of Winograd's tiles";
  EXPECT_EQ(of(vectors, few), "-d-") << "the direct kernel copies no patches";
  EXPECT_EQ(of(unit, few), "fd-");
  EXPECT_EQ(of(vectors, square(224, 3, 64, 7, 2)), "f-w") << "three channels of x fill no tile";
  ConvShape depthwise = square(28, 64, 64, 3, 1);
  depthwise.window.groups = 64;
  EXPECT_EQ(of(unit, depthwise), "---");
}

}  // namespace
}  // namespace reprise::test
