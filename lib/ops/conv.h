// Convolution over [N,H,W,C], in groups of channels where the attribute says so, forward and the gradients of its input and its weight; and the
// convolution of relu(norm(x)), which batch-norm and ReLU are folded into (tools/graph/fold.h). The gradient of a bias is linear.backward_bias'.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// What an input stands for where `mean` is not null: relu((x - mean) * (rstd * gamma) + beta), channel by channel, in f32. Padding is
// zero of that, not of x.
struct InputNorm {
  const float *mean, *rstd, *gamma, *beta;  // [C]
};

struct ConvShape {
  uint32_t N, H, W, C, P, Q, K;
  WindowAttribute window;

  constexpr uint32_t group_inputs() const { return C / window.groups; }  // channels of a group
  constexpr uint32_t group_outputs() const { return K / window.groups; }
};
constexpr ConvShape conv_shape(const Tensor& x, const Tensor& y, const WindowAttribute& window) {
  return {.N = x.shape[0], .H = x.shape[1], .W = x.shape[2], .C = x.shape[3], .P = y.shape[1], .Q = y.shape[2], .K = y.shape[3], .window = window};
}

template <typename Stored>
struct ConvForwardArgsOf {
  Stored* y;        // [N,P,Q,K]
  const Stored* x;  // [N,H,W,C]
  Weight w;         // [K,R,S,C/groups]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  InputNorm norm;      // of x
  float *mean, *rstd;  // [K], what batch_norm_statistics makes of y, with shape.window.statistics_epsilon; both null where nobody wants them
  const float* b = nullptr;  // [K] or null
};
template <typename Stored>
struct ConvBackwardDataArgsOf {
  Stored* dx;        // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,K]
  Weight w;         // [K,R,S,C/groups]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dx;
  const float* b = nullptr;  // [C], added where nothing is accumulated; null for none
};
template <typename Stored>
struct ConvBackwardWeightArgsOf {
  float* dw;        // [K,R,S,C/groups]
  const Stored* x;   // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,K]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dw;
  InputNorm norm;  // of x
};

namespace contract {
constexpr Fault conv_fault(const WindowAttribute& a, const Tensor& x, const Tensor& y, const Tensor& w) {
  if (x.shape[3] % a.groups != 0 || y.shape[3] % a.groups != 0) return Fault::kAttribute;
  return shape::require(shape::slides(a, x, y) && w.rank == 4 && shape::is_shape(w, y.shape[3], a.kernel_h, a.kernel_w, x.shape[3] / a.groups));
}
}  // namespace contract

struct ConvForward {
  enum : uint32_t { kY, kMeanOfY, kRstdOfY, kX, kW, kB, kScratch, kArity };

  // Statistics of y are both wanted or neither.
  static constexpr Fault fault(const ShapedCall& c) {
    const WindowAttribute& window = c.attribute<WindowAttribute>();
    if (c.has(kMeanOfY) != c.has(kRstdOfY)) return Fault::kMissingArgument;
    if (c.has(kMeanOfY) && !(window.statistics_epsilon > 0)) return Fault::kAttribute;
    const uint64_t K = c[kY].last_dimension();
    if (!shape::are_vectors(c, kMeanOfY, 2, K) || !shape::is_vector(c, kB, K)) return Fault::kShape;
    return contract::conv_fault(window, c[kX], c[kY], c[kW]);
  }
  static constexpr const char* kSynopsis = "y = conv(x, w) + b; mean of y, rstd of y by channel";
  static constexpr KernelInfo kInfo = {
      .op = Op::kConv, .pass = Pass::kForward, .name = "conv.forward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_out("y[N,P,Q,K]"), contract::optional(contract::out("mean of y[K]")),
                    contract::optional(contract::out("rstd of y[K]")), contract::act_in("x[N,H,W,C]"), contract::weight("w[K,R,S,C/groups]"),
                    contract::optional(contract::in("b[K]")), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .x = c.pointer<Stored>(kX), .w = c.weight(kW), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = conv_shape(c[kX], c[kY], c.attribute<WindowAttribute>()), .norm = {},
            .mean = c.f32(kMeanOfY), .rstd = c.f32(kRstdOfY), .b = c.f32(kB)};
  }
};

struct ConvBackwardData {
  enum : uint32_t { kDx, kDy, kW, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) { return contract::conv_fault(c.attribute<WindowAttribute>(), c[kDx], c[kDy], c[kW]); }
  static constexpr const char* kSynopsis = "dx = conv^T(dy, w)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kConv, .pass = Pass::kBackwardData, .name = "conv.backward_data", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,P,Q,K]"), contract::weight("w[K,R,S,C/groups]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardDataArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .dy = c.pointer<Stored>(kDy), .w = c.weight(kW), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = conv_shape(c[kDx], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_dx = c.adds(kDx)};
  }
};

struct ConvBackwardWeight {
  enum : uint32_t { kDw, kX, kDy, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) { return contract::conv_fault(c.attribute<WindowAttribute>(), c[kX], c[kDy], c[kDw]); }
  static constexpr const char* kSynopsis = "dw = sum of dy x by window over N, P, Q";
  static constexpr KernelInfo kInfo = {
      .op = Op::kConv, .pass = Pass::kBackwardWeight, .name = "conv.backward_weight", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::sum("dw[K,R,S,C/groups]"), contract::act_in("x[N,H,W,C]"), contract::act_in("dy[N,P,Q,K]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardWeightArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw), .x = c.pointer<Stored>(kX), .dy = c.pointer<Stored>(kDy), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = conv_shape(c[kX], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_dw = c.adds(kDw), .norm = {}};
  }
};

// The convolution of a = relu(norm(x)), norm(x) being batch_norm.forward's y; neither is stored. Of a convolution in groups a has few readers of
// each channel, and is better stored: there is none.
struct NormConvForward {
  enum : uint32_t { kY, kMeanOfY, kRstdOfY, kX, kW, kB, kMean, kRstd, kGamma, kBeta, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<WindowAttribute>().groups != 1) return Fault::kAttribute;
    return shape::are_vectors(c, kMean, 4, c[kX].last_dimension()) ? ConvForward::fault(c) : Fault::kShape;
  }
  static constexpr const char* kSynopsis = "y = conv(a, w) + b; mean of y, rstd of y by channel; where a = relu((x - mean) rstd gamma + beta)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kNormConv, .pass = Pass::kForward, .name = "norm_conv.forward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_out("y[N,P,Q,K]"), contract::optional(contract::out("mean of y[K]")),
                    contract::optional(contract::out("rstd of y[K]")), contract::act_in("x[N,H,W,C]"), contract::weight("w[K,R,S,C/groups]"),
                    contract::optional(contract::in("b[K]")), contract::in("mean[C]"), contract::in("rstd[C]"), contract::in("gamma[C]"),
                    contract::in("beta[C]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .x = c.pointer<Stored>(kX), .w = c.weight(kW), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = conv_shape(c[kX], c[kY], c.attribute<WindowAttribute>()),
            .norm = {.mean = c.f32(kMean), .rstd = c.f32(kRstd), .gamma = c.f32(kGamma), .beta = c.f32(kBeta)},
            .mean = c.f32(kMeanOfY), .rstd = c.f32(kRstdOfY), .b = c.f32(kB)};
  }
};

struct NormConvBackwardWeight {
  enum : uint32_t { kDw, kX, kDy, kMean, kRstd, kGamma, kBeta, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<WindowAttribute>().groups != 1) return Fault::kAttribute;
    return shape::are_vectors(c, kMean, 4, c[kX].last_dimension()) ? ConvBackwardWeight::fault(c) : Fault::kShape;
  }
  static constexpr const char* kSynopsis = "dw = sum of dy a by window over N, P, Q; where a = relu((x - mean) rstd gamma + beta)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kNormConv, .pass = Pass::kBackwardWeight, .name = "norm_conv.backward_weight", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::sum("dw[K,R,S,C/groups]"), contract::act_in("x[N,H,W,C]"), contract::act_in("dy[N,P,Q,K]"), contract::in("mean[C]"),
                    contract::in("rstd[C]"), contract::in("gamma[C]"), contract::in("beta[C]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardWeightArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw), .x = c.pointer<Stored>(kX), .dy = c.pointer<Stored>(kDy), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = conv_shape(c[kX], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_dw = c.adds(kDw),
            .norm = {.mean = c.f32(kMean), .rstd = c.f32(kRstd), .gamma = c.f32(kGamma), .beta = c.f32(kBeta)}};
  }
};

// The transposed convolution: what a convolution of [N,H,W,C] with this attribute gives back to its input. Its gradients are that convolution's
// forward and the gradient of its weight, with x in the place of dy.
struct ConvTransposeForward {
  enum : uint32_t { kY, kX, kW, kB, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (!shape::is_vector(c, kB, c[kY].last_dimension())) return Fault::kShape;
    return contract::conv_fault(c.attribute<WindowAttribute>(), c[kY], c[kX], c[kW]);
  }
  static constexpr const char* kSynopsis = "y = conv^T(x, w) + b";
  static constexpr KernelInfo kInfo = {
      .op = Op::kConvTranspose, .pass = Pass::kForward, .name = "conv_transpose.forward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("x[N,P,Q,K]"), contract::weight("w[K,R,S,C/groups]"),
                    contract::optional(contract::in("b[C]")), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardDataArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kY), .dy = c.pointer<Stored>(kX), .w = c.weight(kW), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = conv_shape(c[kY], c[kX], c.attribute<WindowAttribute>()), .accumulate_dx = false,
            .b = c.f32(kB)};
  }
};

using ConvKernels = TypeList<ConvForward, ConvBackwardData, ConvBackwardWeight, NormConvForward, NormConvBackwardWeight>;
using ConvTransposeKernels = TypeList<ConvTransposeForward>;

}  // namespace reprise
