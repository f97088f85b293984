// Scratch of DoRA: the adapter as the norms are computed from it, and the sums of the magnitudes' gradient, split over rows.
// Here because planner and kernels must agree on it, and the planner has no device.
#pragma once

#include "cuda/card_size.h"
#include "cuda/row_chunks.h"
#include "lib/backend_rules.h"

namespace reprise {

// Where things lie in a row's scratch, in bytes: B times the scale, transposed, its rows whole packs; A where it is not stored as f32.
struct CudaDoraScratch {
  uint64_t columns;  // of B transposed: K and a rest of zeros
  uint64_t down, bytes;
};
constexpr CudaDoraScratch cuda_dora_scratch(uint64_t C, uint64_t K, uint64_t R, DType a) {
  CudaDoraScratch s = {};
  s.columns = (K + 31) / 32 * 32;
  s.down = align_up(R * s.columns * sizeof(float));
  s.bytes = s.down + (a == DType::kF32 ? 0 : align_up(R * C * sizeof(float)));
  return s;
}

constexpr CudaRowChunks cuda_dora_chunks(uint64_t M, CardSize card) { return cuda_row_chunks(M, multiprocessors_of(card) * 4, 16); }

template <CardSize kCard>
constexpr void add_cuda_dora_rules(BackendRules& rules) {
  rules.have(DoraKernels{});
  rules.of<DoraNorms>().weights = kEveryWeight;
  rules.of<DoraNorms>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = DoraNorms;
    return cuda_dora_scratch(c[A::kA].last_dimension(), c[A::kNorms].elements(), c[A::kB].last_dimension(), c[A::kA].dtype).bytes;
  };
  rules.of<DoraBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = DoraBackward;
    if (!c.has(A::kDmagnitudes)) return 0;
    return cuda_dora_chunks(c[A::kZ].leading_elements(), kCard).count() * c[A::kZ].last_dimension() * sizeof(float);
  };
}

}  // namespace reprise
