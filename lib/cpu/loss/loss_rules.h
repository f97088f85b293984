// How the losses without a linear layer split their rows, and their scratch. Planner and kernels
// share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

// The partial result of one piece of rows.
struct LossTally {
  double loss;
  uint64_t labelled, correct;
};

// The split of a class loss's rows. For Dice, which has sums over each sample, each sample is split
// into at most 16 pieces. Otherwise all rows count as one sample.
struct ClassLossPieces {
  uint64_t samples;
  Partition rows;  // the split of each sample's rows into pieces

  constexpr uint64_t count() const { return samples * rows.count(); }
};
constexpr ClassLossPieces class_loss_pieces(uint64_t M, uint64_t N, uint64_t C, bool by_sample) {
  if (!by_sample) return {1, split_rows(M, C)};
  return {N, split_at_most(M / N, 16, kBlockElements / larger(C, 1))};
}

// [ a tally per piece | f32 per class: what label smoothing subtracts from the gradient
// | Dice: three f64 sums per class and piece | Dice: two f32 derivatives per class and sample ]
struct ClassLossScratch {
  uint64_t smoothing_at, sums_at, slopes_at, bytes;
};
constexpr ClassLossScratch class_loss_scratch(uint64_t M, uint64_t N, uint64_t C, bool by_sample) {
  const uint64_t pieces = class_loss_pieces(M, N, C, by_sample).count();
  ClassLossScratch s{};
  s.smoothing_at = align_up(sizeof(LossTally) * pieces);
  s.sums_at = s.smoothing_at + align_up(sizeof(float) * C);
  s.slopes_at = s.sums_at + (by_sample ? align_up(3 * sizeof(double) * C * pieces) : 0);
  s.bytes = s.slopes_at + (by_sample ? 2 * sizeof(float) * C * N : 0);
  return s;
}

constexpr void add_loss_rules(BackendRules& rules) {
  const auto targets = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
      return sizeof(LossTally) * split_rows(c[A::kX].leading_elements(), c[A::kX].last_dimension()).count();
    };
  };
  targets(static_cast<const TargetLossBackward*>(nullptr));
  targets(static_cast<const TargetLossEvaluate*>(nullptr));
  const auto classes = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) {
      const Tensor& x = c[A::kX];
      return class_loss_scratch(x.leading_elements(), x.shape[0], x.last_dimension(),
                                c.attribute<ClassLossAttribute>().dice > 0)
          .bytes;
    };
  };
  classes(static_cast<const ClassLossBackward*>(nullptr));
  classes(static_cast<const ClassLossEvaluate*>(nullptr));
}

}  // namespace reprise
