// The global norm of the gradients, in double, and the factor that clips them.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// norms[t] = sum of squares of tensor t of the group, in double, in element order by fixed blocks: its bits follow from the tensor alone.
struct GradNormReduceArgs {
  double* norms;           // [tensors], already at the group's first entry
  const float* gradients;  // the start of the group's first tensor
  const Tensor* tensors;   // [count], host memory: tensor t starts (tensors[t].offset - tensors[0].offset) bytes further on
  uint32_t count;
  void* scratch;
  uint64_t scratch_bytes;  // how many: grad_norm_rules.h of the backend, none where it has no such file
};
// gradient_norm = sqrt(sum of norms); clip_factor = min(1, max_norm / (norm + 1e-6)), torch's clip_grad_norm_, or 1 where
// max_norm is 0; a norm that is not finite sets skip.
struct GradNormFinishArgs {
  StepScalars* scalars;
  const double* norms;
  uint32_t count;
  float max_norm;
};

struct GradNormReduce {
  enum : uint32_t { kNorms, kGradients, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const GroupAttribute& group = c.attribute<GroupAttribute>();
    return shape::require(c[kNorms].elements() >= uint64_t{group.first_norm} + group.tensors);
  }
  static constexpr const char* kSynopsis = "norms = sum of gradients^2 by tensor";
  static constexpr KernelInfo kInfo = {
      .op = Op::kGradNorm, .pass = Pass::kReduce, .name = "grad_norm.reduce", .attribute = kAttributeKind<GroupAttribute>,
      .attribute_is_cost = false, .updates = update_bit(StateKind::kNorms),
      .arguments = {contract::updated("norms[]", Storage::kF64), contract::group(contract::in("gradients (a group)")), contract::scratch()},
      .shape_fault = fault};
  // A group of several tensors lies in Carried, whose Tensors stand side by side; a released gradient is a slot, alone.
  static GradNormReduceArgs arguments(const RowCall& c) {
    const GroupAttribute& group = c.attribute<GroupAttribute>();
    return {.norms = c.pointer<double>(kNorms) + group.first_norm, .gradients = c.f32(kGradients), .tensors = &c[kGradients],
            .count = group.tensors, .scratch = c.pointer<void>(kScratch), .scratch_bytes = c.bytes(kScratch)};
  }
};

struct GradNormFinish {
  enum : uint32_t { kScalars, kNorms, kArity };
  static constexpr Fault fault(const ShapedCall&) { return Fault::kNone; }
  static constexpr const char* kSynopsis =
      "scalars.gradient_norm = sqrt(sum of norms); "
      "scalars.clip_factor = min(1, max_norm / (scalars.gradient_norm + 1e-6))";
  static constexpr KernelInfo kInfo = {
      .op = Op::kGradNorm, .pass = Pass::kFinish, .name = "grad_norm.finish", .attribute = kAttributeKind<ClipAttribute>,
      .attribute_is_cost = false, .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::scalars_updated(), contract::in("norms[]", Storage::kF64)}, .shape_fault = fault};
  static GradNormFinishArgs arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .norms = c.pointer<double>(kNorms), .count = static_cast<uint32_t>(c[kNorms].elements()),
            .max_norm = c.attribute<ClipAttribute>().max_norm};
  }
};

using GradNormKernels = TypeList<GradNormReduce, GradNormFinish>;

}  // namespace reprise
