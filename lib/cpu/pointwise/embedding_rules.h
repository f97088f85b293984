// Stack bytes that an embedding needs for rows of weights that are not stored as f32. Rules and
// kernel share this definition.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"
#include "lib/stack_buffer.h"

namespace reprise {

constexpr uint64_t kDecodedChannels = 512;  // channels of a row that are decoded at a time

// Returns the floats of the buffer for a row of C channels; 0 for f32, because f32 weights are read
// in place.
constexpr uint64_t decoded_channels(DType type, uint64_t C) {
  return type == DType::kF32 ? 0 : smaller(kDecodedChannels, C);
}

constexpr uint64_t small_embedding_stack(const ShapedCall& c) {
  using A = EmbeddingForward;
  const uint64_t C = c[A::kY].last_dimension(),
                 row = decoded_channels(c.has(A::kTable) ? c[A::kTable].dtype : DType::kF32, C);
  const uint64_t position = decoded_channels(c.has(A::kPositions) ? c[A::kPositions].dtype : DType::kF32, C);
  return stack_buffer_bytes(row * sizeof(float)) + stack_buffer_bytes(position * sizeof(float));
}
constexpr void add_embedding_rules(BackendRules& rules) {
  rules.of<EmbeddingForward>().stack_bytes = small_embedding_stack;
}

}  // namespace reprise
