// Scratch of DoRA: the adapter in the layout that the norms' kernels read, and the split sums of
// the magnitudes' gradient. Planner and kernels must use the same layout, and the planner has no
// device.
#pragma once

#include "cuda/card_size.h"
#include "cuda/row_chunks.h"
#include "lib/backend_rules.h"

namespace reprise {

// The layout of the scratch of DoraNorms: first scale * B, transposed, [R, columns] in f32; then A
// [R,C] in f32, if A is not stored as f32.
struct CudaDoraScratch {
  uint64_t columns;      // K, rounded up to whole packs; the columns from K on are zero
  uint64_t down, bytes;  // byte offset of A; bytes of the whole scratch
};
constexpr CudaDoraScratch cuda_dora_scratch(uint64_t C, uint64_t K, uint64_t R, DType a) {
  CudaDoraScratch s = {};
  s.columns = (K + 31) / 32 * 32;
  s.down = align_up(R * s.columns * sizeof(float));
  s.bytes = s.down + (a == DType::kF32 ? 0 : align_up(R * C * sizeof(float)));
  return s;
}

constexpr CudaRowChunks cuda_dora_chunks(uint64_t M, CardSize card) {
  return cuda_row_chunks(M, multiprocessors_of(card) * 4, 16);
}

template <CardSize kCard>
constexpr void add_cuda_dora_rules(BackendRules& rules) {
  rules.have(DoraKernels{});
  rules.of<DoraNorms>().weights = kEveryWeight;
  rules.of<DoraNorms>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = DoraNorms;
    return cuda_dora_scratch(c[A::kA].last_dimension(), c[A::kNorms].elements(), c[A::kB].last_dimension(),
                             c[A::kA].dtype)
        .bytes;
  };
  rules.of<DoraBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = DoraBackward;
    if (!c.has(A::kDmagnitudes)) return 0;
    return cuda_dora_chunks(c[A::kZ].leading_elements(), kCard).count() * c[A::kZ].last_dimension() * sizeof(float);
  };
}

}  // namespace reprise
