// Scratch of attention: delta[B,heads,T], the sum over a head's channels of dy * y.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

constexpr void add_cuda_attention_rules(BackendRules& rules) {
  rules.have(AttentionKernels{});
  rules.of<AttentionBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    return c[AttentionBackward::kLse].elements() * sizeof(float);
  };
}

}  // namespace reprise
