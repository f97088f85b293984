// Scratch of attention's backward: delta[B,heads,T], the sum of dy * y over a head's channels. Also
// selects the heads that run on tensor cores.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

// Columns of the widest head whose sums fit the registers of a warp.
constexpr uint32_t kAttentionMmaMaxHead = 128;
// True if a head of D columns runs on tensor cores. It must be stored in bf16, D must be a multiple
// of 8 (16-byte chunks) and at most kAttentionMmaMaxHead, and scores must not be capped.
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
