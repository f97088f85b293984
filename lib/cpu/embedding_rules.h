// The stack that an embedding takes for rows of weights that are not stored as f32: rules and kernel agree on it here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/partition.h"
#include "lib/stack_room.h"

namespace reprise {

constexpr uint64_t kDecodedChannels = 512;  // of a row, decoded at a time

// Floats of the room for a row of so many channels. Where weights lie as f32 they are read there.
constexpr uint64_t decoded_channels(DType type, uint64_t C) { return type == DType::kF32 ? 0 : smaller(kDecodedChannels, C); }

constexpr uint64_t small_embedding_stack(const ShapedCall& c) {
  using A = EmbeddingForward;
  const uint64_t C = c[A::kY].last_dimension(), row = decoded_channels(c.has(A::kTable) ? c[A::kTable].dtype : DType::kF32, C);
  const uint64_t position = decoded_channels(c.has(A::kPositions) ? c[A::kPositions].dtype : DType::kF32, C);
  return stack_room_bytes(row * sizeof(float)) + stack_room_bytes(position * sizeof(float));
}
constexpr void add_embedding_rules(BackendRules& rules) { rules.of<EmbeddingForward>().stack_bytes = small_embedding_stack; }

}  // namespace reprise
