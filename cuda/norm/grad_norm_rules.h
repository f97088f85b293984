// The split of the gradients' norm on a card, and the scratch for the sums of the parts. Planner
// and kernels must use the same split, and the planner has no device.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

// Maximum number of a tensor's floats that one block sums. The number of blocks depends only on the
// tensor's size.
constexpr uint64_t kCudaNormPart = 16384;
constexpr uint64_t cuda_norm_parts(uint64_t elements) { return (elements + kCudaNormPart - 1) / kCudaNormPart; }

// Returns the bytes of sums[parts of all tensors], f64; 0 if no tensor of the group can have two
// parts, because each norm is then one block's sum.
constexpr uint64_t cuda_grad_norm_scratch_bytes(const GroupAttribute& group) {
  return group.elements <= kCudaNormPart ? 0 : (group.elements / kCudaNormPart + group.tensors) * sizeof(double);
}

constexpr void add_cuda_grad_norm_rules(BackendRules& rules) {
  rules.have(GradNormKernels{});
  rules.of<GradNormReduce>().scratch_bytes = [](const ShapedCall& c) {
    return cuda_grad_norm_scratch_bytes(c.attribute<GroupAttribute>());
  };
}

}  // namespace reprise
