// How the gradients' norm is split on a card, and the scratch that the parts of a row's tensors take.
// Here because planner and kernel must agree on it, and the planner has no device.
#pragma once

#include "lib/backend_rules.h"

namespace reprise {

// A block sums so many floats of a tensor; the tensor's size alone says how many blocks share it.
constexpr uint64_t kCudaNormPart = 16384;
constexpr uint64_t cuda_norm_parts(uint64_t elements) { return (elements + kCudaNormPart - 1) / kCudaNormPart; }

// sums[parts of all tensors], f64. A group in which no tensor can have two parts takes none: each norm is then one block's sum.
constexpr uint64_t cuda_grad_norm_scratch_bytes(const GroupAttribute& group) {
  return group.elements <= kCudaNormPart ? 0 : (group.elements / kCudaNormPart + group.tensors) * sizeof(double);
}

constexpr void add_cuda_grad_norm_rules(BackendRules& rules) {
  rules.have(GradNormKernels{});
  rules.of<GradNormReduce>().scratch_bytes = [](const ShapedCall& c) { return cuda_grad_norm_scratch_bytes(c.attribute<GroupAttribute>()); };
}

}  // namespace reprise
