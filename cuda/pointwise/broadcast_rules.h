// The split of the sums that are the gradient of a broadcast factor or term on a card, and the
// scratch that the split needs. Planner and kernels must use the same split, and the planner has no
// device.
#pragma once

#include "cuda/row_chunks.h"
#include "lib/backend_rules.h"

namespace reprise {

constexpr uint32_t kCudaBroadcastColumns = 128;  // columns of a segment that a block processes together
constexpr uint64_t cuda_broadcast_tiles(const Broadcast& shape) {
  return (shape.columns + kCudaBroadcastColumns - 1) / kCudaBroadcastColumns;
}

// Splits the uses of a segment into chunks. A use is an element of y to which an element of b was
// broadcast. There are enough chunks that chunks, tiles and segments together fill the largest
// device.
constexpr CudaRowChunks cuda_broadcast_chunks(const Broadcast& shape) {
  constexpr uint64_t kBlocks = 512;
  const uint64_t units = shape.segments() * cuda_broadcast_tiles(shape);
  return cuda_row_chunks(shape.repeated(), units < kBlocks ? kBlocks / units : 1, shape.columns == 1 ? 4096 : 64);
}

// Returns the bytes of partials[chunk][elements of b], f64; 0 if there is only one chunk.
constexpr uint64_t cuda_broadcast_scratch_bytes(const Broadcast& shape) {
  const uint64_t chunks = cuda_broadcast_chunks(shape).count();
  return chunks == 1 ? 0 : chunks * shape.segments() * shape.columns * sizeof(double);
}

template <typename K>
constexpr uint64_t cuda_broadcast_scratch(const ShapedCall& c) {
  return cuda_broadcast_scratch_bytes(contract::broadcast_of(c[K::kDy], c[K::kDb]));
}
constexpr void add_cuda_broadcast_rules(BackendRules& rules) {
  rules.have(BroadcastKernels{});
  rules.of<MultiplyBackwardWeight>().scratch_bytes = cuda_broadcast_scratch<MultiplyBackwardWeight>;
  rules.of<BroadcastAddBackward>().scratch_bytes = cuda_broadcast_scratch<BroadcastAddBackward>;
}

}  // namespace reprise
