// Convolution over [N,H,W,C], in groups of channels if the attribute has several: forward and the
// gradients of input and weight. Also the convolution of relu(norm(x)), which fuses batch-norm and
// ReLU with it (tools/plan/graph/fold.h), and the transposed convolution. linear.backward_bias
// computes the gradient of a bias.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// A normalisation of the input. If `mean` is not null, the kernel reads relu((x - mean) * (rstd *
// gamma) + beta) instead of x, by channel, in f32. Padding is not normalised and counts as zero.
struct InputNorm {
  const float *mean, *rstd, *gamma, *beta;  // [C]
};

// The sizes of a convolution: N images, input H x W x C, output P x Q x K.
struct ConvShape {
  uint32_t N, H, W, C, P, Q, K;
  WindowAttribute window;

  // Returns the input channels of a group.
  constexpr uint32_t group_inputs() const { return C / window.groups; }
  // Returns the output channels of a group.
  constexpr uint32_t group_outputs() const { return K / window.groups; }
};
// Returns the sizes of the convolution from x to y.
constexpr ConvShape conv_shape(const Tensor& x, const Tensor& y, const WindowAttribute& window) {
  return {.N = x.shape[0],
          .H = x.shape[1],
          .W = x.shape[2],
          .C = x.shape[3],
          .P = y.shape[1],
          .Q = y.shape[2],
          .K = y.shape[3],
          .window = window};
}

// y = conv(x, w) + b
template <typename Stored>
struct ConvForwardArgsOf {
  Stored* y;        // [N,P,Q,K]
  const Stored* x;  // [N,H,W,C]
  Weight w;         // [K,R,S,C/groups]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  InputNorm norm;  // Normalisation of x; none if its pointers are null.
  // [K]: the statistics of y, as batch_norm.statistics computes them with
  // shape.window.statistics_epsilon; both null if the row has none.
  float *mean, *rstd;
  const float* b = nullptr;  // [K] or null
};
// dx (+)= the gradient of conv(x, w) with respect to x
template <typename Stored>
struct ConvBackwardDataArgsOf {
  Stored* dx;        // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,K]
  Weight w;         // [K,R,S,C/groups]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dx;
  const float* b = nullptr;  // [C] or null: bias of a transposed convolution. It is added unless dx is accumulated.
};
// dw (+)= the gradient of conv(x, w) with respect to w
template <typename Stored>
struct ConvBackwardWeightArgsOf {
  float* dw;        // [K,R,S,C/groups]
  const Stored* x;   // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,K]
  void* scratch;
  uint64_t scratch_bytes;
  ConvShape shape;
  bool accumulate_dw;
  InputNorm norm;  // Normalisation of x; none if its pointers are null.
};

namespace contract {
// Returns the fault of a convolution from x to y.
constexpr Fault conv_fault(const WindowAttribute& a, const Tensor& x, const Tensor& y, const Tensor& w) {
  if (x.shape[3] % a.groups != 0 || y.shape[3] % a.groups != 0) return Fault::kAttribute;
  return shape::require(shape::slides(a, x, y) && w.rank == 4 &&
                        shape::is_shape(w, y.shape[3], a.kernel_h, a.kernel_w, x.shape[3] / a.groups));
}
}  // namespace contract

struct ConvForward {
  enum : uint32_t { kY, kMeanOfY, kRstdOfY, kX, kW, kB, kScratch, kArity };

  // Returns the fault of the shapes. Both statistics of y must be present, or neither.
  static constexpr Fault fault(const ShapedCall& c) {
    const WindowAttribute& window = c.attribute<WindowAttribute>();
    if (c.has(kMeanOfY) != c.has(kRstdOfY)) return Fault::kMissingArgument;
    if (c.has(kMeanOfY) && !(window.statistics_epsilon > 0)) return Fault::kAttribute;
    const uint64_t K = c[kY].last_dimension();
    if (!shape::are_vectors(c, kMeanOfY, 2, K) || !shape::is_vector(c, kB, K)) return Fault::kShape;
    return contract::conv_fault(window, c[kX], c[kY], c[kW]);
  }
  static constexpr const char* kSynopsis = "y = conv(x, w) + b; mean of y, rstd of y by channel";
  static constexpr KernelInfo kInfo = {.op = Op::kConv,
                                       .pass = Pass::kForward,
                                       .name = "conv.forward",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_out("y[N,P,Q,K]"),
                                                     contract::optional(contract::out("mean of y[K]")),
                                                     contract::optional(contract::out("rstd of y[K]")),
                                                     contract::act_in("x[N,H,W,C]"),
                                                     contract::weight("w[K,R,S,C/groups]"),
                                                     contract::optional(contract::in("b[K]")), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ConvForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .w = c.weight(kW),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = conv_shape(c[kX], c[kY], c.attribute<WindowAttribute>()),
            .norm = {},
            .mean = c.f32(kMeanOfY),
            .rstd = c.f32(kRstdOfY),
            .b = c.f32(kB)};
  }
};

struct ConvBackwardData {
  enum : uint32_t { kDx, kDy, kW, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    return contract::conv_fault(c.attribute<WindowAttribute>(), c[kDx], c[kDy], c[kW]);
  }
  static constexpr const char* kSynopsis = "dx = conv^T(dy, w)";
  static constexpr KernelInfo kInfo = {.op = Op::kConv,
                                       .pass = Pass::kBackwardData,
                                       .name = "conv.backward_data",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,P,Q,K]"),
                                                     contract::weight("w[K,R,S,C/groups]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardDataArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dy = c.pointer<Stored>(kDy),
            .w = c.weight(kW),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = conv_shape(c[kDx], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_dx = c.adds(kDx)};
  }
};

struct ConvBackwardWeight {
  enum : uint32_t { kDw, kX, kDy, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    return contract::conv_fault(c.attribute<WindowAttribute>(), c[kX], c[kDy], c[kDw]);
  }
  static constexpr const char* kSynopsis = "dw = sum of dy x by window over N, P, Q";
  static constexpr KernelInfo kInfo = {.op = Op::kConv,
                                       .pass = Pass::kBackwardWeight,
                                       .name = "conv.backward_weight",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::sum("dw[K,R,S,C/groups]"),
                                                     contract::act_in("x[N,H,W,C]"), contract::act_in("dy[N,P,Q,K]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardWeightArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw),
            .x = c.pointer<Stored>(kX),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = conv_shape(c[kX], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_dw = c.adds(kDw),
            .norm = {}};
  }
};

// The convolution of a = relu(norm(x)), where norm(x) is batch_norm.forward's y; neither a nor
// norm(x) is stored. Groups are not supported: in a grouped convolution few outputs read a channel
// of a, so storing a is better.
struct NormConvForward {
  enum : uint32_t { kY, kMeanOfY, kRstdOfY, kX, kW, kB, kMean, kRstd, kGamma, kBeta, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<WindowAttribute>().groups != 1) return Fault::kAttribute;
    return shape::are_vectors(c, kMean, 4, c[kX].last_dimension()) ? ConvForward::fault(c) : Fault::kShape;
  }
  static constexpr const char* kSynopsis =
      "y = conv(a, w) + b; mean of y, rstd of y by channel; where a = relu((x - mean) rstd gamma + beta)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kNormConv,
      .pass = Pass::kForward,
      .name = "norm_conv.forward",
      .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_out("y[N,P,Q,K]"), contract::optional(contract::out("mean of y[K]")),
                    contract::optional(contract::out("rstd of y[K]")), contract::act_in("x[N,H,W,C]"),
                    contract::weight("w[K,R,S,C/groups]"), contract::optional(contract::in("b[K]")),
                    contract::in("mean[C]"), contract::in("rstd[C]"), contract::in("gamma[C]"), contract::in("beta[C]"),
                    contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static ConvForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .w = c.weight(kW),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = conv_shape(c[kX], c[kY], c.attribute<WindowAttribute>()),
            .norm = {.mean = c.f32(kMean), .rstd = c.f32(kRstd), .gamma = c.f32(kGamma), .beta = c.f32(kBeta)},
            .mean = c.f32(kMeanOfY),
            .rstd = c.f32(kRstdOfY),
            .b = c.f32(kB)};
  }
};

struct NormConvBackwardWeight {
  enum : uint32_t { kDw, kX, kDy, kMean, kRstd, kGamma, kBeta, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<WindowAttribute>().groups != 1) return Fault::kAttribute;
    return shape::are_vectors(c, kMean, 4, c[kX].last_dimension()) ? ConvBackwardWeight::fault(c) : Fault::kShape;
  }
  static constexpr const char* kSynopsis =
      "dw = sum of dy a by window over N, P, Q; where a = relu((x - mean) rstd gamma + beta)";
  static constexpr KernelInfo kInfo = {.op = Op::kNormConv,
                                       .pass = Pass::kBackwardWeight,
                                       .name = "norm_conv.backward_weight",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::sum("dw[K,R,S,C/groups]"),
                                                     contract::act_in("x[N,H,W,C]"), contract::act_in("dy[N,P,Q,K]"),
                                                     contract::in("mean[C]"), contract::in("rstd[C]"),
                                                     contract::in("gamma[C]"), contract::in("beta[C]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardWeightArgsOf<Stored> arguments(const RowCall& c) {
    return {.dw = c.f32(kDw),
            .x = c.pointer<Stored>(kX),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = conv_shape(c[kX], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_dw = c.adds(kDw),
            .norm = {.mean = c.f32(kMean), .rstd = c.f32(kRstd), .gamma = c.f32(kGamma), .beta = c.f32(kBeta)}};
  }
};

// The transposed convolution: y is computed as conv.backward_data computes dx, with x in place of
// dy. conv.forward and conv.backward_weight compute the gradients of x and w.
struct ConvTransposeForward {
  enum : uint32_t { kY, kX, kW, kB, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (!shape::is_vector(c, kB, c[kY].last_dimension())) return Fault::kShape;
    return contract::conv_fault(c.attribute<WindowAttribute>(), c[kY], c[kX], c[kW]);
  }
  static constexpr const char* kSynopsis = "y = conv^T(x, w) + b";
  static constexpr KernelInfo kInfo = {.op = Op::kConvTranspose,
                                       .pass = Pass::kForward,
                                       .name = "conv_transpose.forward",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("x[N,P,Q,K]"),
                                                     contract::weight("w[K,R,S,C/groups]"),
                                                     contract::optional(contract::in("b[C]")), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static ConvBackwardDataArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kY),
            .dy = c.pointer<Stored>(kX),
            .w = c.weight(kW),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = conv_shape(c[kY], c[kX], c.attribute<WindowAttribute>()),
            .accumulate_dx = false,
            .b = c.f32(kB)};
  }
};

using ConvKernels =
    TypeList<ConvForward, ConvBackwardData, ConvBackwardWeight, NormConvForward, NormConvBackwardWeight>;
using ConvTransposeKernels = TypeList<ConvTransposeForward>;

}  // namespace reprise
