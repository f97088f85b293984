// Linear layers, y = x W^T + b, and the gradients of input, weight and bias. The forward adds a
// low-rank adapter if there is one.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y[M,K] = scale * x[M,C] W^T + b + h[M,R] U^T. W is [K,C], or [C,K] if input_major; U
// is always [K,R].
//
// A low-rank adapter (Hu et al. 2021) is two such layers: h = scale * x A^T, then y = x W^T + b + h
// U^T. h includes the scale, and so does e = scale * dy U, the gradient of x A^T. So the gradients
// dA = e^T x and dx += e A use e without another scale.
template <typename Stored>
struct LinearForwardArgsOf {
  Stored* y;        // [M,K]
  const Stored* x;  // [M,C]
  Weight w;         // [K,C], or [C,K] if input_major
  const float* b;  // [K] or null
  const Stored* h;  // [M,R] or null, with u
  Weight u;         // [K,R]
  void* scratch;
  uint64_t scratch_bytes;  // Bytes of scratch, defined by linear_rules.h of the backend.
  uint64_t M;
  uint32_t C, K, R;
  bool input_major;
  float scale;
};
// dx = scale * dy W
template <typename Stored>
struct LinearBackwardDataArgsOf {
  Stored* dx;        // [M,C]
  const Stored* dy;  // [M,K]
  Weight w;          // [K,C], or [C,K] if input_major
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
  float scale;
  bool accumulate_dx;
};
// dw = dy^T x, or its transpose if input_major. The attribute's scale is not applied.
template <typename Stored>
struct LinearBackwardWeightArgsOf {
  float* dw;         // [K,C], or [C,K] if input_major
  const Stored* x;   // [M,C]
  const Stored* dy;  // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C, K;
  bool input_major;
  bool accumulate_dw;
};
// db = the sum of dy over its rows
template <typename Stored>
struct LinearBackwardBiasArgsOf {
  float* db;        // [K]
  const Stored* dy;  // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t K;
  bool accumulate_db;
};

namespace contract {
// True if the shapes of x, y and the weight w match.
constexpr bool is_linear(const LinearAttribute& a, const Tensor& x, const Tensor& y, const Tensor& w) {
  const uint64_t C = x.last_dimension(), K = y.last_dimension();
  const bool by_input = a.input_major != 0;
  return x.leading_elements() == y.leading_elements() && w.rank == 2 && w.shape[0] == (by_input ? C : K) &&
         w.shape[1] == (by_input ? K : C);
}
}  // namespace contract

struct LinearForward {
  enum : uint32_t { kY, kX, kW, kB, kH, kU, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t K = c[kY].last_dimension();
    if (c.has(kH) != c.has(kU)) return Fault::kMissingArgument;
    const bool adapts = !c.has(kH) || (c[kH].leading_elements() == c[kX].leading_elements() &&
                                       shape::is_matrix(c, kU, K, c[kH].last_dimension()));
    return shape::require(contract::is_linear(c.attribute<LinearAttribute>(), c[kX], c[kY], c[kW]) &&
                          shape::is_vector(c, kB, K) && adapts);
  }
  static constexpr const char* kSynopsis = "y = scale x w^T + b + h u^T";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLinear, .pass = Pass::kForward, .name = "linear.forward", .attribute = kAttributeKind<LinearAttribute>,
      .arguments = {contract::act_out("y[M,K]"), contract::act_in("x[M,C]"), contract::weight("w[K,C] or [C,K]"),
                    contract::optional(contract::in("b[K]")), contract::optional(contract::act_in("h[M,R]")),
                    contract::optional(contract::weight("u[K,R]")), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static LinearForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .w = c.weight(kW),
            .b = c.f32(kB),
            .h = c.pointer<Stored>(kH),
            .u = c.weight(kU),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kX),
            .C = c.last(kX),
            .K = c.last(kY),
            .R = c.has(kH) ? c.last(kH) : 0,
            .input_major = c.attribute<LinearAttribute>().input_major != 0,
            .scale = c.attribute<LinearAttribute>().scale};
  }
};

struct LinearBackwardData {
  enum : uint32_t { kDx, kDy, kW, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_linear(c.attribute<LinearAttribute>(), c[kDx], c[kDy], c[kW]));
  }
  static constexpr const char* kSynopsis = "dx = scale dy w";
  static constexpr KernelInfo kInfo = {.op = Op::kLinear,
                                       .pass = Pass::kBackwardData,
                                       .name = "linear.backward_data",
                                       .attribute = kAttributeKind<LinearAttribute>,
                                       .arguments = {contract::act_sum("dx[M,C]"), contract::act_in("dy[M,K]"),
                                                     contract::weight("w[K,C] or [C,K]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static LinearBackwardDataArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dy = c.pointer<Stored>(kDy),
            .w = c.weight(kW),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kDy),
            .C = c.last(kDx),
            .K = c.last(kDy),
            .input_major = c.attribute<LinearAttribute>().input_major != 0,
            .scale = c.attribute<LinearAttribute>().scale,
            .accumulate_dx = c.adds(kDx)};
  }
};

struct LinearBackwardWeight {
  enum : uint32_t { kDw, kX, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::is_linear(c.attribute<LinearAttribute>(), c[kX], c[kDy], c[kDw]));
  }
  static constexpr const char* kSynopsis = "dw = dy^T x";
  static constexpr KernelInfo kInfo = {.op = Op::kLinear,
                                       .pass = Pass::kBackwardWeight,
                                       .name = "linear.backward_weight",
                                       .attribute = kAttributeKind<LinearAttribute>,
                                       .arguments = {contract::sum("dw[K,C] or [C,K]"), contract::act_in("x[M,C]"),
                                                     contract::act_in("dy[M,K]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static LinearBackwardWeightArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw),
            .x = c.pointer<Stored>(kX),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kX),
            .C = c.last(kX),
            .K = c.last(kDy),
            .input_major = c.attribute<LinearAttribute>().input_major != 0,
            .accumulate_dw = c.adds(kDw)};
  }
};

struct LinearBackwardBias {
  enum : uint32_t { kDb, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::is_vector(c, kDb, c[kDy].last_dimension()));
  }
  static constexpr const char* kSynopsis = "db = sum of dy over M";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLinear, .pass = Pass::kBackwardBias, .name = "linear.backward_bias",
      .arguments = {contract::sum("db[K]"), contract::act_in("dy[M,K]"), contract::scratch()}, .shape_fault = fault};
  template <typename Stored>
  static LinearBackwardBiasArgsOf<Stored> arguments(const RowCall& c) {
    return {.db = c.f32(kDb),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kDy),
            .K = c.last(kDy),
            .accumulate_db = c.adds(kDb)};
  }
};

using LinearKernels = TypeList<LinearForward, LinearBackwardData, LinearBackwardWeight, LinearBackwardBias>;

}  // namespace reprise
