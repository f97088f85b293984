// The split of rows in losses that do not contain a linear layer, and the scratch of these losses.
// Planner and kernels must use the same split, and the planner has no device.
#pragma once

#include "lib/backend_rules.h"
#include "lib/tensor.h"

namespace reprise {

// The part of a loss that one block sums: the loss, the labelled rows, the rows predicted right.
struct CudaLossTally {
  double loss;
  uint64_t labelled, correct;
};

constexpr uint64_t kTargetsOfBlock = 4096;
constexpr uint64_t cuda_target_loss_blocks(uint64_t elements) {
  return elements == 0 ? 1 : (elements + kTargetsOfBlock - 1) / kTargetsOfBlock;
}

constexpr uint64_t kClassRowsOfBlock = 64, kOverlapRowsOfBlock = 256;

// The layout of the scratch:
// [ sums over the labels | a tally for each block | f64 for each sample: Dice's part of the loss |
//   two f32 for each row: the largest logit, the sum of exponentials |
//   with Dice: three f64 sums (intersection, predicted, true) for each class and part of a sample |
//   with Dice: two f32 derivatives for each class and sample ]
struct CudaClassLossScratch {
  uint64_t blocks, parts;  // blocks: number of tallies; parts: parts of one sample
  uint64_t tallies_at, overlaps_at, rows_at, sums_at, slopes_at, bytes;
};
constexpr CudaClassLossScratch cuda_class_loss_scratch(uint64_t M, uint64_t N, uint64_t C, bool has_dice) {
  CudaClassLossScratch s{};
  s.blocks = M == 0 ? 1 : (M + kClassRowsOfBlock - 1) / kClassRowsOfBlock;
  s.parts = has_dice ? (M / N + kOverlapRowsOfBlock - 1) / kOverlapRowsOfBlock : 0;
  s.tallies_at = align_up(sizeof(CudaLossTally));
  s.overlaps_at = s.tallies_at + align_up(sizeof(CudaLossTally) * s.blocks);
  s.rows_at = s.overlaps_at + (has_dice ? align_up(sizeof(double) * N) : 0);
  s.sums_at = s.rows_at + align_up(2 * sizeof(float) * M);
  s.slopes_at = s.sums_at + align_up(3 * sizeof(double) * C * s.parts * N);
  s.bytes = s.slopes_at + (has_dice ? 2 * sizeof(float) * C * N : 0);
  return s;
}

// The layout of the scratch:
// [ f64 for each pair: its loss | u32 for each pair: 1 if predicted right |
//   f32 inverses[2,B]: 1 / length | f32 units[2,B,D] | with contrast: f32 cosines[B,B] |
//   with contrast: f32 [4,B]: largest cosine and sum of each row, then of each column |
//   with contrast, in the backward: f32 slopes[2,B,D]: derivatives with respect to units ]
struct CudaPairLossScratch {
  uint64_t rights_at, inverses_at, units_at, cosines_at, sums_at, slopes_at, bytes;
};
constexpr CudaPairLossScratch cuda_pair_loss_scratch(uint64_t B, uint64_t D, bool contrasts, bool is_backward) {
  CudaPairLossScratch s{};
  s.rights_at = align_up(sizeof(double) * B);
  s.inverses_at = s.rights_at + align_up(sizeof(uint32_t) * B);
  s.units_at = s.inverses_at + align_up(sizeof(float) * 2 * B);
  s.cosines_at = s.units_at + align_up(sizeof(float) * 2 * B * D);
  s.sums_at = s.cosines_at + (contrasts ? align_up(sizeof(float) * B * B) : 0);
  s.slopes_at = s.sums_at + (contrasts ? align_up(sizeof(float) * 4 * B) : 0);
  s.bytes = s.slopes_at + (contrasts && is_backward ? sizeof(float) * 2 * B * D : 0);
  return s;
}

constexpr void add_cuda_loss_rules(BackendRules& rules) {
  rules.have(TargetLossKernels{});
  rules.have(ClassLossKernels{});
  rules.have(PairLossKernels{});
  const auto targets = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
      return sizeof(CudaLossTally) * cuda_target_loss_blocks(c[A::kX].elements());
    };
  };
  targets(static_cast<const TargetLossBackward*>(nullptr));
  targets(static_cast<const TargetLossEvaluate*>(nullptr));
  const auto classes = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) {
      const Tensor& x = c[A::kX];
      return cuda_class_loss_scratch(x.leading_elements(), x.shape[0], x.last_dimension(),
                                     c.attribute<ClassLossAttribute>().dice > 0)
          .bytes;
    };
  };
  classes(static_cast<const ClassLossBackward*>(nullptr));
  classes(static_cast<const ClassLossEvaluate*>(nullptr));
  const auto pairs = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) {
      const bool contrasts = c.attribute<PairLossAttribute>().kind == static_cast<uint32_t>(PairLossKind::kContrast);
      return cuda_pair_loss_scratch(c[A::kX].leading_elements() / 2, c[A::kX].last_dimension(), contrasts,
                                    A::kInfo.pass == Pass::kBackward)
          .bytes;
    };
  };
  pairs(static_cast<const PairLossBackward*>(nullptr));
  pairs(static_cast<const PairLossEvaluate*>(nullptr));
}

}  // namespace reprise
