// The last linear layer with softmax and cross-entropy: loss and gradients in one loop over chunks of rows, without a matrix of logits.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Softmax cross-entropy over the logits x W^T + b, forward and backward in one loop over chunks of rows: no [M,V] matrix.
// loss = the sum over the rows whose label is not kIgnoredLabel, divided by scalars->step_labelled, the number of such rows in all
// micro-batches of the step; scalars->loss_sum += loss; gradients are those of loss; a row without a label has a zero gradient. So many
// micro-batches give what one of them all would, whatever their labels; one may have none.
// A loss that is not finite sets scalars->skip. A label outside [0,V) is a fault (DataFault::kLabel).
template <typename Stored>
struct LossHeadBackwardArgsOf {
  Stored* dx;  // [M,C]
  float* dw;  // [V,C] or null
  float* db;  // [V] or null
  StepScalars* scalars;
  const Stored* x;  // [M,C]
  Weight w;         // [V,C]
  const float* b;  // [V] or null
  const int32_t* labels;  // [M]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
  bool accumulate_dw, accumulate_db;
};
// scalars->loss_sum += the sum of the rows' losses; labelled += the rows with a label; correct += those predicted right.
template <typename Stored>
struct LossHeadEvaluateArgsOf {
  StepScalars* scalars;
  const Stored* x;
  Weight w;
  const float* b;
  const int32_t* labels;
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, V;
};

struct LossHeadBackward {
  enum : uint32_t { kDx, kDw, kDb, kScalars, kX, kW, kB, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t V = c[kW].shape[0];
    return shape::require(shape::same_rows(c[kDx], c[kX]) && (!c.has(kDw) || same_shape(c[kDw], c[kW])) && shape::is_vector(c, kDb, V) &&
                          shape::is_matrix(c, kW, V, c[kX].last_dimension()) && shape::is_vector(c, kB, V) &&
                          shape::has_elements(c, kLabels, c[kX].leading_elements()));
  }
  static constexpr const char* kSynopsis =
      "dx = g w; dw = g^T x; db = sum of g over M; "
      "where g = (softmax(x w^T + b) - one_hot(labels)) / scalars.step_labelled";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLossHead, .pass = Pass::kBackward, .name = "loss_head.backward", .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::act_out("dx[M,C]"), contract::optional(contract::sum("dw[V,C]")), contract::optional(contract::sum("db[V]")),
                    contract::scalars_updated(), contract::act_in("x[M,C]"), contract::weight("w[V,C]"), contract::optional(contract::in("b[V]")),
                    contract::labels("labels[M]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static LossHeadBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .dw = c.f32(kDw), .db = c.f32(kDb), .scalars = c.scalars(kScalars), .x = c.pointer<Stored>(kX),
            .w = c.weight(kW), .b = c.f32(kB), .labels = c.i32(kLabels), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .M = c.leading(kX), .C = c.last(kX), .V = c.dimension(kW, 0),
            .accumulate_dw = c.adds(kDw), .accumulate_db = c.adds(kDb)};
  }
};

struct LossHeadEvaluate {
  enum : uint32_t { kScalars, kX, kW, kB, kLabels, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t V = c[kW].shape[0];
    return shape::require(shape::is_matrix(c, kW, V, c[kX].last_dimension()) && shape::is_vector(c, kB, V) &&
                          shape::has_elements(c, kLabels, c[kX].leading_elements()));
  }
  static constexpr const char* kSynopsis = "scalars.loss_sum -= sum of log(softmax(x w^T + b)[labels])";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLossHead, .pass = Pass::kEvaluate, .name = "loss_head.evaluate", .updates = update_bit(StateKind::kScalars),
      .arguments = {contract::scalars_updated(), contract::act_in("x[M,C]"), contract::weight("w[V,C]"), contract::optional(contract::in("b[V]")),
                    contract::labels("labels[M]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static LossHeadEvaluateArgsOf<Stored> arguments(const RowCall& c) {
    return {.scalars = c.scalars(kScalars), .x = c.pointer<Stored>(kX), .w = c.weight(kW), .b = c.f32(kB), .labels = c.i32(kLabels),
            .scratch = c.pointer<void>(kScratch), .scratch_bytes = c.bytes(kScratch), .M = c.leading(kX), .C = c.last(kX),
            .V = c.dimension(kW, 0)};
  }
};

using LossHeadKernels = TypeList<LossHeadBackward, LossHeadEvaluate>;

}  // namespace reprise
