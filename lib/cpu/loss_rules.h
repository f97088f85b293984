// How the losses that have no linear layer cut their rows, and the scratch that they take.
// Here because planner and kernels must agree on it.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"

namespace reprise {

// What a piece of rows comes to.
struct LossTally {
  double loss;
  uint64_t labelled, correct;
};

// Rows of a class loss: of a sample in at most 16 pieces where each sample has a sum of its own, as Dice's; else all rows as if of one sample.
struct ClassLossPieces {
  uint64_t samples;
  Partition rows;  // of each sample

  constexpr uint64_t count() const { return samples * rows.count(); }
};
constexpr ClassLossPieces class_loss_pieces(uint64_t M, uint64_t N, uint64_t C, bool by_sample) {
  if (!by_sample) return {1, split_rows(M, C)};
  return {N, split_at_most(M / N, 16, kBlockElements / larger(C, 1))};
}

// [ a tally a piece | f32 a class: what smoothing takes from each slope | of Dice: f64 sums of I, P and T a class and piece | of Dice: two f32 a class
// and sample ]
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
      return class_loss_scratch(x.leading_elements(), x.shape[0], x.last_dimension(), c.attribute<ClassLossAttribute>().dice > 0).bytes;
    };
  };
  classes(static_cast<const ClassLossBackward*>(nullptr));
  classes(static_cast<const ClassLossEvaluate*>(nullptr));
}

}  // namespace reprise
