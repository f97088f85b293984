// The CUDA backend's scratch rule: bytes of any kernel from the shapes of its row's arguments.
// Here so that planner, checker and compiler (it is constexpr) share one switch with the kernels; it needs no CUDA.
// It must not know the device, or any pointer.
#pragma once

#include "cuda/layer_norm_scratch.h"
#include "lib/plan.h"

namespace reprise {

// `tensors` are the row's arguments in the order of kOps; optional ones, and the scratch itself, may be null.
constexpr uint64_t cuda_scratch_bytes(Op op, Pass pass, const Tensor* const* tensors) {
  if (op != Op::kLayerNorm || pass != Pass::kBackward) return 0;
  const bool frozen = tensors[1] == nullptr && tensors[2] == nullptr;  // neither dgamma nor dbeta
  return frozen ? 0
                : cuda_layer_norm_backward_scratch_bytes(tensors[3]->leading_elements(), tensors[3]->last_dimension());
}

}  // namespace reprise
