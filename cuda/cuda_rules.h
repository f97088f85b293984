// The CUDA backend's rules: which kernels it has, and what they need. It needs no CUDA: a plan for a card is made on any machine.
#pragma once

#include "cuda/attention_scratch.h"
#include "cuda/conv_scratch.h"
#include "cuda/layer_norm_scratch.h"
#include "cuda/linear_scratch.h"
#include "lib/backend_rules.h"

namespace reprise {

constexpr BackendRules make_cuda_rules() {
  BackendRules rules = {.name = "cuda", .header = "cuda/cuda_rules.h", .constant = "kCudaRules"};
  add_cuda_linear_rules(rules);
  add_cuda_conv_rules(rules);
  add_cuda_attention_rules(rules);
  rules.have(ElementwiseKernels{});
  rules.have(TypeList<LayerNormForward, LayerNormBackward>{});
  rules.of<LayerNormBackward>().scratch_bytes = [](const ShapedCall& c) -> uint64_t {
    using A = LayerNormBackward;
    const bool frozen = !c.has(A::kDgamma) && !c.has(A::kDbeta);
    return frozen ? 0 : cuda_layer_norm_backward_scratch_bytes(c[A::kX].leading_elements(), c[A::kX].last_dimension());
  };
  return rules;
}
inline constexpr BackendRules kCudaRules = make_cuda_rules();

}  // namespace reprise
