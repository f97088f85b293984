// The last linear layer with softmax and cross-entropy. One loop over chunks of rows computes loss
// and gradients, without a matrix of logits.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// The input of every kernel: M rows of activations, the layer's parameters, and the rows' labels.
template <typename Stored>
struct LossHeadInputOf {
  const Stored* x;        // [M,C]
  Weight w;               // [V,C]
  const float* b;         // [V] or null
  const int32_t* labels;  // [M]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
  float softcap;  // 0: no cap
};

// Softmax cross-entropy over the logits x W^T + b, forward and backward in one loop over chunks of
// rows, without an [M,V] matrix. With a softcap, a logit becomes softcap tanh(logit / softcap).
// loss = the sum of the losses of the rows whose label is not kIgnoredLabel, divided by
// scalars->step_labelled. step_labelled is the number of such rows in all micro-batches of the
// step. So several micro-batches give the same result as one with all their rows. scalars->loss_sum
// += loss. The gradients are those of loss; a row without a label has a zero gradient. A
// micro-batch may have no label at all.
// A loss that is not finite sets scalars->skip. A label outside [0,V) is a fault
// (DataFault::kLabel).
// If row_weights is not null, another kernel has computed the loss from the rows' losses
// (preference.h). The gradients are then those of the sum of row_weights[m] times the loss of row
// m. A row of weight 0 has a zero gradient. No scalar is written.
template <typename Stored>
struct LossHeadBackwardArgsOf {
  Stored* dx;  // [M,C]
  float* dw;   // [V,C] or null
  float* db;   // [V] or null
  StepScalars* scalars;
  LossHeadInputOf<Stored> in;
  const float* row_weights;  // [M] or null
  bool accumulate_dw, accumulate_db;
};
// losses[m] = the loss of row m; 0 if the row has no label. A label outside [0,V) is a fault
// (DataFault::kLabel), and all losses are then 0.
template <typename Stored>
struct LossHeadForwardArgsOf {
  double* losses;  // [M]
  LossHeadInputOf<Stored> in;
};
// scalars->loss_sum += the sum of the rows' losses; labelled += the number of rows with a label.
// correct += the number of labelled rows whose label is the first of the largest logits.
template <typename Stored>
struct LossHeadEvaluateArgsOf {
  StepScalars* scalars;
  LossHeadInputOf<Stored> in;
};

// Functions for a kernel `A` of the family.
namespace contract {
// True if the shapes of the input obey the contract.
template <typename A>
constexpr bool is_loss_head_input(const ShapedCall& c) {
  const uint64_t V = c[A::kW].shape[0];
  return shape::is_matrix(c, A::kW, V, c[A::kX].last_dimension()) && shape::is_vector(c, A::kB, V) &&
         shape::has_elements(c, A::kLabels, c[A::kX].leading_elements());
}
// Returns the input of the kernel.
template <typename A, typename Stored>
LossHeadInputOf<Stored> loss_head_input(const RowCall& c) {
  return {.x = c.pointer<Stored>(A::kX),
          .w = c.weight(A::kW),
          .b = c.f32(A::kB),
          .labels = c.i32(A::kLabels),
          .scratch = c.pointer<void>(A::kScratch),
          .scratch_bytes = c.bytes(A::kScratch),
          .M = c.leading(A::kX),
          .C = c.last(A::kX),
          .V = c.dimension(A::kW, 0),
          .softcap = c.attribute<CapAttribute>().softcap};
}
}  // namespace contract

struct LossHeadBackward {
  enum : uint32_t { kDx, kDw, kDb, kScalars, kX, kW, kB, kLabels, kRowWeights, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_loss_head_input<LossHeadBackward>(c) && shape::same_rows(c[kDx], c[kX]) &&
                          (!c.has(kDw) || same_shape(c[kDw], c[kW])) && shape::is_vector(c, kDb, c[kW].shape[0]) &&
                          shape::has_elements(c, kRowWeights, c[kX].leading_elements()));
  }
  static constexpr const char* kSynopsis =
      "dx = g w; dw = g^T x; db = sum of g over M; "
      "where g = (softmax(z) - one_hot(labels)) z' / scalars.step_labelled, or row_weights in its place, z = x w^T + "
      "b, capped";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLossHead,
      .pass = Pass::kBackward,
      .name = "loss_head.backward",
      .attribute = kAttributeKind<CapAttribute>,
      .attribute_is_cost = false,
      .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::act_out("dx[M,C]"), contract::optional(contract::running_sum("dw[V,C]")),
                    contract::optional(contract::running_sum("db[V]")), contract::scalars_updated(),
                    contract::act_in("x[M,C]"), contract::weight("w[V,C]"), contract::optional(contract::in("b[V]")),
                    contract::labels("labels[M]"), contract::optional(contract::in("row_weights[M]")),
                    contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static LossHeadBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dw = c.f32(kDw),
            .db = c.f32(kDb),
            .scalars = c.scalars(kScalars),
            .in = contract::loss_head_input<LossHeadBackward, Stored>(c),
            .row_weights = c.f32(kRowWeights),
            .accumulate_dw = c.adds(kDw),
            .accumulate_db = c.adds(kDb)};
  }
};

struct LossHeadForward {
  enum : uint32_t { kLosses, kX, kW, kB, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_loss_head_input<LossHeadForward>(c) &&
                          shape::has_elements(c, kLosses, c[kX].leading_elements()));
  }
  static constexpr const char* kSynopsis = "losses = -log(softmax(z)[labels]); where z = x w^T + b, capped";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLossHead, .pass = Pass::kForward, .name = "loss_head.forward",
      .attribute = kAttributeKind<CapAttribute>, .attribute_is_cost = false,
      .arguments = {contract::out("losses[M]", Storage::kF64), contract::act_in("x[M,C]"), contract::weight("w[V,C]"),
                    contract::optional(contract::in("b[V]")), contract::labels("labels[M]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static LossHeadForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.losses = c.pointer<double>(kLosses), .in = contract::loss_head_input<LossHeadForward, Stored>(c)};
  }
};

struct LossHeadEvaluate {
  enum : uint32_t { kScalars, kX, kW, kB, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_loss_head_input<LossHeadEvaluate>(c));
  }
  static constexpr const char* kSynopsis =
      "scalars.loss_sum -= sum of log(softmax(z)[labels]); where z = x w^T + b, capped";
  static constexpr KernelInfo kInfo = {.op = Op::kLossHead,
                                       .pass = Pass::kEvaluate,
                                       .name = "loss_head.evaluate",
                                       .attribute = kAttributeKind<CapAttribute>,
                                       .attribute_is_cost = false,
                                       .updates = update_bit(StateKind::kScalars),
                                       .arguments = {contract::scalars_updated(), contract::act_in("x[M,C]"),
                                                     contract::weight("w[V,C]"),
                                                     contract::optional(contract::in("b[V]")),
                                                     contract::labels("labels[M]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static LossHeadEvaluateArgsOf<Stored> arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .in = contract::loss_head_input<LossHeadEvaluate, Stored>(c)};
  }
};

using LossHeadKernels = TypeList<LossHeadBackward, LossHeadForward, LossHeadEvaluate>;

}  // namespace reprise
