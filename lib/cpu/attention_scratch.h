// The tile of attention, the largest head it takes, and the scratch of its backward.
// Here because planner and kernel must agree on them, and the planner has no kernels.
// It must not know how a tile is computed.
#pragma once

#include "lib/tensor.h"

namespace reprise {

constexpr uint32_t kAttentionTile = 64;  // queries, and keys, of a tile of scores
constexpr uint32_t kAttentionMaxHead =
    256;  // D = C / heads; a head's transposed tiles stand on the worker's stack, 64 KiB each

// delta[B,heads,T] = sum over a head's channels of dy * y, one float per entry of lse.
constexpr uint64_t attention_backward_scratch_bytes(uint64_t lse_elements) { return lse_elements * sizeof(float); }

}  // namespace reprise
