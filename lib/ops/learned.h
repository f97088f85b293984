// Parameters as activations: learned positions, a class token, a layer's scale. Other kernels copy
// rows of a parameter that the plan selects, for example for a bias that depends on the distance of
// two positions. These ops read no activation.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y = w, rounded to the activations' type.
template <typename Stored>
struct LearnedForwardArgsOf {
  Stored* y;       // [n]
  const float* w;  // [n]
  uint64_t n;
};
// dw (+)= dy
template <typename Stored>
struct LearnedBackwardArgsOf {
  float* dw;         // [n]
  const Stored* dy;  // [n]
  uint64_t n;
  bool accumulate_dw;
};

// y[r,:] = w[rows[r],:]. An index of a row that w does not have is a fault (DataFault::kToken).
template <typename Stored>
struct LearnedRowsForwardArgsOf {
  Stored* y;          // [R,C]
  const float* w;     // [V,C]
  const float* rows;  // [R], whole numbers that the plan contains
  uint64_t R;
  uint32_t V, C;
};
// The gradient of w. Rows are added in their order, whatever the number of workers.
template <typename Stored>
struct LearnedRowsBackwardArgsOf {
  float* dw;          // [V,C]
  const float* rows;  // [R]
  const Stored* dy;   // [R,C]
  uint64_t R;
  uint32_t V, C;
  bool accumulate_dw;
};

// Returns the index of the row that `number` selects; V if w has no such row.
constexpr uint32_t named_row(float number, uint32_t V) {
  return number >= 0 && number < static_cast<float>(V) ? static_cast<uint32_t>(number) : V;
}

struct LearnedForward {
  enum : uint32_t { kY, kW, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kY], c[kW])); }
  static constexpr const char* kSynopsis = "y = w";
  static constexpr KernelInfo kInfo = {.op = Op::kLearned,
                                       .pass = Pass::kForward,
                                       .name = "learned.forward",
                                       .arguments = {contract::act_out("y[...]"), contract::in("w[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static LearnedForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .w = c.f32(kW), .n = c[kY].elements()};
  }
};

struct LearnedBackward {
  enum : uint32_t { kDw, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kDw], c[kDy])); }
  static constexpr const char* kSynopsis = "dw = dy";
  static constexpr KernelInfo kInfo = {.op = Op::kLearned,
                                       .pass = Pass::kBackward,
                                       .name = "learned.backward",
                                       .arguments = {contract::sum("dw[...]"), contract::act_in("dy[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static LearnedBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw), .dy = c.pointer<Stored>(kDy), .n = c[kDw].elements(), .accumulate_dw = c.adds(kDw)};
  }
};

namespace contract {
// Returns the fault of forward or backward; `w` and `rows` are indices of arguments.
constexpr Fault learned_rows_fault(const ShapedCall& c, const Tensor& y, uint32_t w, uint32_t rows) {
  return shape::require(y.rank == 2 && shape::is_matrix(c, w, c[w].shape[0], y.shape[1]) &&
                        shape::is_vector(c, rows, y.shape[0]));
}
}  // namespace contract

struct LearnedRowsForward {
  enum : uint32_t { kY, kW, kRows, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::learned_rows_fault(c, c[kY], kW, kRows); }
  static constexpr const char* kSynopsis = "y = w[rows]";
  static constexpr KernelInfo kInfo = {.op = Op::kLearnedRows,
                                       .pass = Pass::kForward,
                                       .name = "learned_rows.forward",
                                       .arguments = {contract::act_out("y[R,C]"), contract::in("w[V,C]"),
                                                     contract::in("rows[R]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static LearnedRowsForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .w = c.f32(kW),
            .rows = c.f32(kRows),
            .R = c[kRows].elements(),
            .V = c.dimension(kW, 0),
            .C = c.last(kW)};
  }
};

struct LearnedRowsBackward {
  enum : uint32_t { kDw, kRows, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::learned_rows_fault(c, c[kDy], kDw, kRows); }
  static constexpr const char* kSynopsis = "dw[rows] = sum of dy";
  static constexpr KernelInfo kInfo = {.op = Op::kLearnedRows,
                                       .pass = Pass::kBackward,
                                       .name = "learned_rows.backward",
                                       .arguments = {contract::running_sum("dw[V,C]"), contract::in("rows[R]"),
                                                     contract::act_in("dy[R,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static LearnedRowsBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw),
            .rows = c.f32(kRows),
            .dy = c.pointer<Stored>(kDy),
            .R = c[kRows].elements(),
            .V = c.dimension(kDw, 0),
            .C = c.last(kDw),
            .accumulate_dw = c.adds(kDw)};
  }
};

using LearnedRowsKernels = TypeList<LearnedRowsForward, LearnedRowsBackward>;
using LearnedKernels = TypeList<LearnedForward, LearnedBackward>;

}  // namespace reprise
