// Layer-norm (Ba, Kiros & Hinton 2016) and RMS-norm (Zhang & Sennrich 2019) over the last dimension
// or a part of it, forward and backward.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Layer-norm over the last dimension (Ba et al. 2016): y = (x - mean) rstd gamma + beta, rstd = 1 /
// sqrt(biased variance + epsilon).
template <typename Stored>
struct LayerNormForwardArgsOf {
  Stored* y;     // [M,C]
  float* mean;  // [M]
  float* rstd;  // [M]
  const Stored* x;     // [M,C]
  const float* gamma;  // [C]
  const float* beta;   // [C]
  uint64_t M;
  uint32_t C;
  float epsilon;
};
// The gradients of layer-norm.
template <typename Stored>
struct LayerNormBackwardArgsOf {
  Stored* dx;      // [M,C]
  float* dgamma;  // [C] or null
  float* dbeta;   // [C] or null
  const Stored* x;     // [M,C]
  const float* mean;   // [M]
  const float* rstd;   // [M]
  const float* gamma;  // [C]
  const Stored* dy;    // [M,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dx, accumulate_dgamma, accumulate_dbeta;
};

// RMS-norm: y = x * rstd * (offset + gamma), rstd = 1 / sqrt(mean(x^2) + epsilon). A row has as
// many elements as gamma: the last dimension, or one of its equal parts (the heads of q and k,
// Qwen3). M is the number of rows.
template <typename Stored>
struct RmsNormForwardArgsOf {
  Stored* y;    // [M,C]
  float* rstd;  // [M]
  const Stored* x;     // [M,C]
  const float* gamma;  // [C]
  uint64_t M;
  uint32_t C;
  float epsilon, offset;
};
// The gradients of RMS-norm.
template <typename Stored>
struct RmsNormBackwardArgsOf {
  Stored* dx;     // [M,C]
  float* dgamma;  // [C] or null
  const Stored* x;     // [M,C]
  const float* rstd;   // [M]
  const float* gamma;  // [C]
  const Stored* dy;    // [M,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  float offset;
  bool accumulate_dx, accumulate_dgamma;
};

struct LayerNormForward {
  enum : uint32_t { kY, kMean, kRstd, kX, kGamma, kBeta, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t M = c[kX].leading_elements();
    return shape::require(shape::same_rows(c[kY], c[kX]) && shape::has_elements(c, kMean, M) &&
                          shape::has_elements(c, kRstd, M) && shape::are_vectors(c, kGamma, 2, c[kX].last_dimension()));
  }
  static constexpr const char* kSynopsis =
      "y = (x - mean) rstd gamma + beta; mean = sum(x) / C; "
      "rstd = 1 / sqrt(sum((x - mean)^2) / C + epsilon)";
  static constexpr KernelInfo kInfo = {.op = Op::kLayerNorm,
                                       .pass = Pass::kForward,
                                       .name = "layer_norm.forward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .arguments = {contract::act_out("y[M,C]"), contract::out("mean[M]"),
                                                     contract::out("rstd[M]"), contract::act_in("x[M,C]"),
                                                     contract::in("gamma[C]"), contract::in("beta[C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static LayerNormForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .x = c.pointer<Stored>(kX),
            .gamma = c.f32(kGamma),
            .beta = c.f32(kBeta),
            .M = c.leading(kX),
            .C = c.last(kX),
            .epsilon = c.attribute<NormAttribute>().epsilon};
  }
};

struct LayerNormBackward {
  enum : uint32_t { kDx, kDgamma, kDbeta, kX, kMean, kRstd, kGamma, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t M = c[kX].leading_elements(), C = c[kX].last_dimension();
    return shape::require(shape::same_rows(c[kDx], c[kX]) && shape::same_rows(c[kDy], c[kX]) &&
                          shape::are_vectors(c, kDgamma, 2, C) && shape::has_elements(c, kMean, M) &&
                          shape::has_elements(c, kRstd, M) && shape::is_vector(c, kGamma, C));
  }
  static constexpr const char* kSynopsis =
      "dx = rstd (g - sum(g) / C - z sum(g z) / C); dgamma = sum of dy z over M; "
      "dbeta = sum of dy over M; where g = dy gamma, z = (x - mean) rstd";
  static constexpr KernelInfo kInfo = {.op = Op::kLayerNorm,
                                       .pass = Pass::kBackward,
                                       .name = "layer_norm.backward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .arguments = {contract::act_sum("dx[M,C]"),
                                                     contract::optional(contract::sum("dgamma[C]")),
                                                     contract::optional(contract::sum("dbeta[C]")),
                                                     contract::act_in("x[M,C]"), contract::in("mean[M]"),
                                                     contract::in("rstd[M]"), contract::in("gamma[C]"),
                                                     contract::act_in("dy[M,C]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static LayerNormBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dgamma = c.f32(kDgamma),
            .dbeta = c.f32(kDbeta),
            .x = c.pointer<Stored>(kX),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .gamma = c.f32(kGamma),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kX),
            .C = c.last(kX),
            .accumulate_dx = c.adds(kDx),
            .accumulate_dgamma = c.adds(kDgamma),
            .accumulate_dbeta = c.adds(kDbeta)};
  }
};

namespace contract {
// True if the last dimension of x is whole rows of gamma's size, and rstd has one
// element for each row.
constexpr bool norms_rows(const Tensor& x, const Tensor& gamma, const Tensor& rstd) {
  const uint64_t C = gamma.elements();
  return gamma.rank <= 1 && C > 0 && x.last_dimension() % C == 0 && rstd.elements() == x.elements() / C;
}
}  // namespace contract

struct RmsNormForward {
  enum : uint32_t { kY, kRstd, kX, kGamma, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::same_rows(c[kY], c[kX]) && contract::norms_rows(c[kX], c[kGamma], c[kRstd]));
  }
  static constexpr const char* kSynopsis =
      "y = x rstd (attribute.offset + gamma); rstd = 1 / sqrt(sum(x^2) / C + epsilon)";
  static constexpr KernelInfo kInfo = {.op = Op::kRmsNorm,
                                       .pass = Pass::kForward,
                                       .name = "rms_norm.forward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .arguments = {contract::act_out("y[M,C]"), contract::out("rstd[M]"),
                                                     contract::act_in("x[M,C]"), contract::in("gamma[C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static RmsNormForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .rstd = c.f32(kRstd), .x = c.pointer<Stored>(kX), .gamma = c.f32(kGamma),
            .M = c[kRstd].elements(), .C = c.last(kGamma), .epsilon = c.attribute<NormAttribute>().epsilon,
            .offset = c.attribute<NormAttribute>().offset};
  }
};

struct RmsNormBackward {
  enum : uint32_t { kDx, kDgamma, kX, kRstd, kGamma, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::same_rows(c[kDx], c[kX]) && shape::same_rows(c[kDy], c[kX]) &&
                          contract::norms_rows(c[kX], c[kGamma], c[kRstd]) &&
                          shape::is_vector(c, kDgamma, c[kGamma].elements()));
  }
  static constexpr const char* kSynopsis =
      "dx = rstd (g - z sum(g z) / C); dgamma = sum of dy z over M; where g = dy (attribute.offset + gamma), z = x "
      "rstd";
  static constexpr KernelInfo kInfo = {.op = Op::kRmsNorm,
                                       .pass = Pass::kBackward,
                                       .name = "rms_norm.backward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .arguments = {contract::act_sum("dx[M,C]"),
                                                     contract::optional(contract::sum("dgamma[C]")),
                                                     contract::act_in("x[M,C]"), contract::in("rstd[M]"),
                                                     contract::in("gamma[C]"), contract::act_in("dy[M,C]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static RmsNormBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dgamma = c.f32(kDgamma),
            .x = c.pointer<Stored>(kX),
            .rstd = c.f32(kRstd),
            .gamma = c.f32(kGamma),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c[kRstd].elements(),
            .C = c.last(kGamma),
            .offset = c.attribute<NormAttribute>().offset,
            .accumulate_dx = c.adds(kDx),
            .accumulate_dgamma = c.adds(kDgamma)};
  }
};

using LayerNormKernels = TypeList<LayerNormForward, LayerNormBackward, RmsNormForward, RmsNormBackward>;

}  // namespace reprise
