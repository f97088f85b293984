// Scratch of attention, delta[B,heads,T], the sum over a head's channels of dy * y; and which heads tensor cores take.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

// The widest head whose sums a warp's registers hold, and rows of whole 16-byte chunks; scores that no cap bends.
constexpr uint32_t kAttentionMmaMaxHead = 128;
constexpr bool attention_uses_mma(DType stored, uint32_t D, const AttentionAttribute& attention) {
  return stored == DType::kBf16 && D % 8 == 0 && D <= kAttentionMmaMaxHead && attention.softcap == 0;
}

constexpr void add_cuda_attention_rules(BackendRules& rules) {
  rules.have(AttentionKernels{});
  rules.have(DecodeKernels{});
  rules.of<AttentionBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    return c[AttentionBackward::kLse].elements() * sizeof(float);
  };
}

}  // namespace reprise
