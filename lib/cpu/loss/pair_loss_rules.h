// The scratch of the losses of pairs, for their intermediate values, and the stack of their
// products. Planner, checker and kernels share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm/gemm_scratch.h"
#include "lib/cpu/loss/loss_rules.h"

namespace reprise {

// Pairs without a target are left out; the V that remain are stored contiguously:
//
// [ a tally per piece | u32 numbers[V] of the pairs | f32 inverses[2,V] of lengths
// | f32 units[2,V,D]: all firsts, then all seconds
// | contrast: f32 cosines[V,V], which become their gradients
// | contrast: f32 [4,V]: the largest cosine of each row, its sum, and likewise for each column
// | contrast, backward: f32 gradients[2,V,D] of units | contrast: packed blocks of a product ]
struct PairLossScratch {
  uint64_t numbers_at, inverses_at, units_at, cosines_at, sums_at, slopes_at, product_at, bytes;
};
constexpr PairLossScratch pair_loss_scratch(uint64_t B, uint64_t D, bool has_cosines, bool is_backward, CpuSize size) {
  PairLossScratch s{};
  s.numbers_at = align_up(sizeof(LossTally) * larger(split_rows(B, B).count(), split_rows(B, 2 * D).count()));
  s.inverses_at = s.numbers_at + align_up(sizeof(uint32_t) * B);
  s.units_at = s.inverses_at + align_up(sizeof(float) * 2 * B);
  s.cosines_at = s.units_at + align_up(sizeof(float) * 2 * B * D);
  s.sums_at = s.cosines_at + (has_cosines ? align_up(sizeof(float) * B * B) : 0);
  s.slopes_at = s.sums_at + (has_cosines ? align_up(sizeof(float) * 4 * B) : 0);
  s.product_at = s.slopes_at + (has_cosines && is_backward ? align_up(sizeof(float) * 2 * B * D) : 0);
  const uint64_t of_cosines = gemm_scratch_bytes_up_to(B, D, size),
                 of_slopes = is_backward ? gemm_scratch_bytes(D, B, DType::kF32, size) : 0;
  s.bytes = s.product_at + (has_cosines ? larger(of_cosines, of_slopes) : 0);
  return s;
}

constexpr uint64_t kAloneStackBytes = 512;  // stack bytes of the sums over one pair
constexpr bool contrasts(const PairLossAttribute& loss) {
  return loss.kind == static_cast<uint32_t>(PairLossKind::kContrast);
}

template <CpuSize kSize>
constexpr void add_pair_loss_rules(BackendRules& rules) {
  const auto add = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) {
      const uint64_t B = c[A::kX].leading_elements() / 2, D = c[A::kX].last_dimension();
      return pair_loss_scratch(B, D, contrasts(c.attribute<PairLossAttribute>()), A::kInfo.pass == Pass::kBackward,
                               kSize)
          .bytes;
    };
    rules.of<A>().stack_bytes = [](const ShapedCall& c) {
      const uint64_t B = c[A::kX].leading_elements() / 2, D = c[A::kX].last_dimension();
      const uint64_t depth = A::kInfo.pass == Pass::kBackward ? larger(B, D) : D;
      return contrasts(c.attribute<PairLossAttribute>()) ? product_stack_bytes(larger(B, D), depth, {}, kSize)
                                                         : kAloneStackBytes;
    };
  };
  add(static_cast<const PairLossBackward*>(nullptr));
  add(static_cast<const PairLossEvaluate*>(nullptr));
}

}  // namespace reprise
