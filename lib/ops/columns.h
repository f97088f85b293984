// A run of neighbouring columns of rows: what takes the parts of one wide linear layer apart, as Phi-3's q, k and v or gate and up.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y[m,c] = x[m,first + c].
template <typename Stored>
struct ColumnsForwardArgsOf {
  Stored* y;        // [M,C]
  const Stored* x;  // [M,K]
  uint64_t M;
  uint32_t C, K, first;
};
// dx[m,first + c] (+)= dy[m,c]. The other columns are cleared where dx is not added to, else they stay.
template <typename Stored>
struct ColumnsBackwardArgsOf {
  Stored* dx;        // [M,K]
  const Stored* dy;  // [M,C]
  uint64_t M;
  uint32_t C, K, first;
  bool accumulate_dx;
};

namespace contract {
constexpr Fault columns_fault(const ShapedCall& c, const Tensor& part, const Tensor& whole) {
  const uint64_t end = uint64_t{c.attribute<ColumnsAttribute>().first} + part.last_dimension();
  if (end > whole.last_dimension()) return Fault::kAttribute;
  return shape::require(part.rank == whole.rank && part.leading_elements() == whole.leading_elements());
}
}  // namespace contract

struct ColumnsForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::columns_fault(c, c[kY], c[kX]); }
  static constexpr const char* kSynopsis = "y = columns of x from attribute.first on";
  static constexpr KernelInfo kInfo = {
      .op = Op::kColumns, .pass = Pass::kForward, .name = "columns.forward", .attribute = kAttributeKind<ColumnsAttribute>,
      .arguments = {contract::act_out("y[M,C]"), contract::act_in("x[M,K]")}, .shape_fault = fault};
  template <typename Stored>
  static ColumnsForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .x = c.pointer<Stored>(kX), .M = c.leading(kX), .C = c.last(kY), .K = c.last(kX),
            .first = c.attribute<ColumnsAttribute>().first};
  }
};

struct ColumnsBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::columns_fault(c, c[kDy], c[kDx]); }
  static constexpr const char* kSynopsis = "dx = dy in columns from attribute.first on";
  static constexpr KernelInfo kInfo = {
      .op = Op::kColumns, .pass = Pass::kBackward, .name = "columns.backward", .attribute = kAttributeKind<ColumnsAttribute>,
      .arguments = {contract::act_sum("dx[M,K]"), contract::act_in("dy[M,C]")}, .shape_fault = fault};
  template <typename Stored>
  static ColumnsBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .dy = c.pointer<Stored>(kDy), .M = c.leading(kDx), .C = c.last(kDy), .K = c.last(kDx),
            .first = c.attribute<ColumnsAttribute>().first, .accumulate_dx = c.adds(kDx)};
  }
};

using ColumnsKernels = TypeList<ColumnsForward, ColumnsBackward>;

}  // namespace reprise
