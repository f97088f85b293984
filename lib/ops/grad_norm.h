// The global norm of the gradients, in double, and the factor that clips them.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// norms[t] = the sum of squares of tensor t of the group, in double. Squares are added in element
// order by fixed blocks, so that the bits depend on the tensor only.
struct GradNormReduceArgs {
  double* norms;           // [count], from the entry of the group's first tensor on
  const float* gradients;  // Address of the group's first tensor.
  // [count], memory of the host: the group's tensors. Tensor t starts tensors[t].offset -
  // tensors[0].offset bytes after `gradients`.
  const Tensor* tensors;
  uint32_t count;  // Number of tensors in the group.
  void* scratch;
  uint64_t scratch_bytes;  // Defined by grad_norm_rules.h of the backend; 0 if it has no such file.
};
// gradient_norm = sqrt(sum of norms). clip_factor = min(1, max_norm / (norm + 1e-6)) as in torch's
// clip_grad_norm_, or 1 if max_norm is 0. A norm that is not finite sets scalars->skip.
struct GradNormFinishArgs {
  StepScalars* scalars;
  const double* norms;  // [count]
  uint32_t count;       // Number of the plan's trained parameters.
  float max_norm;
};

struct GradNormReduce {
  enum : uint32_t { kNorms, kGradients, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const GroupAttribute& group = c.attribute<GroupAttribute>();
    return shape::require(c[kNorms].elements() >= uint64_t{group.first_norm} + group.tensors);
  }
  static constexpr const char* kSynopsis = "norms = sum of gradients^2 by tensor";
  static constexpr KernelInfo kInfo = {.op = Op::kGradNorm,
                                       .pass = Pass::kReduce,
                                       .name = "grad_norm.reduce",
                                       .attribute = kAttributeKind<GroupAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kNorms),
                                       .arguments = {contract::updated("norms[]", Storage::kF64),
                                                     contract::group(contract::in("gradients (a group)")),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  // Returns the arguments of a row. A group of several tensors is in Carried, whose Tensor entries
  // are adjacent. With gradient release the group is a single slot.
  static GradNormReduceArgs arguments(const RowCall& c) {
    const GroupAttribute& group = c.attribute<GroupAttribute>();
    return {.norms = c.pointer<double>(kNorms) + group.first_norm,
            .gradients = c.f32(kGradients),
            .tensors = &c[kGradients],
            .count = group.tensors,
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch)};
  }
};

struct GradNormFinish {
  enum : uint32_t { kScalars, kNorms, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }
  static constexpr const char* kSynopsis =
      "scalars.gradient_norm = sqrt(sum of norms); "
      "scalars.clip_factor = min(1, max_norm / (scalars.gradient_norm + 1e-6))";
  static constexpr KernelInfo kInfo = {.op = Op::kGradNorm,
                                       .pass = Pass::kFinish,
                                       .name = "grad_norm.finish",
                                       .attribute = kAttributeKind<ClipAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::scalars_updated(),
                                                     contract::in("norms[]", Storage::kF64)},
                                       .shape_fault = fault};
  static GradNormFinishArgs arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars),
            .norms = c.pointer<double>(kNorms),
            .count = static_cast<uint32_t>(c[kNorms].elements()),
            .max_norm = c.attribute<ClipAttribute>().max_norm};
  }
};

using GradNormKernels = TypeList<GradNormReduce, GradNormFinish>;

}  // namespace reprise
