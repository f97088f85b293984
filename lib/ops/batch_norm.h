// Batch-norm (Ioffe & Szegedy 2015). One kernel computes the statistics; others normalise with them
// as often as needed. Two operations are fused with batch-norm (tools/plan/graph/fold.h): the
// backward of a ReLU after it, and the addition and ReLU at the end of a residual unit. Also
// group-norm (Wu & He 2018), which computes the statistics for each sample and each group of
// channels.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Statistics of batch-norm over M = N*H*W rows of C channels (Ioffe & Szegedy 2015): mean and rstd
// = 1 / sqrt(biased variance + epsilon).
template <typename Stored>
struct BatchNormStatisticsArgsOf {
  float* mean;     // [C]
  float* rstd;     // [C]
  const Stored* x;  // [M,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  float epsilon;
};
// running = (1 - momentum) * running + momentum * batch. The variance is the unbiased one, M / (M -
// 1) times the biased variance, as in torch. batches += 1. A channel whose mean or variance is not
// finite keeps its old values.
struct BatchNormRunningArgs {
  float* running_mean;  // [C]
  float* running_var;   // [C]
  int64_t* batches;     // [1]
  const float* mean;    // [C]
  const float* rstd;    // [C]
  uint64_t M;
  uint32_t C;
  float epsilon, momentum;
};
// y = (x - mean) rstd gamma + beta
template <typename Stored>
struct BatchNormForwardArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  const float* mean;   // [C]
  const float* rstd;   // [C]
  const float* gamma;  // [C]
  const float* beta;   // [C]
  uint64_t M;
  uint32_t C;
};
// y = (x - running_mean) / sqrt(running_var + epsilon) gamma + beta
template <typename Stored>
struct BatchNormInferenceArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  const float* running_mean;  // [C]
  const float* running_var;   // [C]
  const float* gamma;         // [C]
  const float* beta;          // [C]
  uint64_t M;
  uint32_t C;
  float epsilon;
};
// The gradient of batch-norm with running statistics, which count as constants: dx = dy gamma /
// sqrt(running_var + epsilon).
template <typename Stored>
struct BatchNormBackwardDataArgsOf {
  Stored* dx;        // [M,C]; may be dy
  const Stored* dy;  // [M,C]
  const float* running_var;  // [C]
  const float* gamma;        // [C]
  uint64_t M;
  uint32_t C;
  float epsilon;
};
// The gradients of batch-norm, or of batch-norm followed by a ReLU if `beta` is not null.
template <typename Stored>
struct BatchNormBackwardArgsOf {
  Stored* dx;      // [M,C]; may be dy
  float* dgamma;  // [C] or null
  float* dbeta;   // [C] or null
  const Stored* x;     // [M,C]
  const float* mean;   // [C]
  const float* rstd;   // [C]
  const float* gamma;  // [C]
  const Stored* dy;    // [M,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t C;
  bool accumulate_dgamma, accumulate_dbeta;
  const float* beta;  // [C] or null. Not null: dy is the gradient of relu(y), and is used only where y > 0.
};

// y = relu(norm(x) + b), with norm as in BatchNormForwardArgsOf.
template <typename Stored>
struct NormAddReluArgsOf {
  Stored* y;        // [M,C]; may be x
  const Stored* x;  // [M,C]
  const Stored* b;  // [M,C]
  const float* mean;   // [C]
  const float* rstd;   // [C]
  const float* gamma;  // [C]
  const float* beta;   // [C]
  uint64_t M;
  uint32_t C;
};

// Group-norm (Wu & He 2018, equations 1, 2, 6 and 7). The C channels are G groups of C/G
// neighbours. Each group of a sample has a mean and a biased variance over H, W and its channels: y
// = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + epsilon).
// G = 1 is the paper's equation 4 for images, layer-norm over H, W and C. G = C is the paper's
// equation 5, instance norm. Training and evaluation compute the same function.
template <typename Stored>
struct GroupNormForwardArgsOf {
  Stored* y;           // [N,H,W,C]; may be x
  float* mean;         // [N,G]
  float* rstd;         // [N,G]
  const Stored* x;     // [N,H,W,C]
  const float* gamma;  // [C]
  const float* beta;   // [C]
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t N, C, G;
  uint64_t HW;
  float epsilon;
};
// The gradients of group-norm.
template <typename Stored>
struct GroupNormBackwardArgsOf {
  Stored* dx;          // [N,H,W,C]; may be dy
  float* dgamma;       // [C] or null
  float* dbeta;        // [C] or null
  const Stored* x;     // [N,H,W,C]
  const float* mean;   // [N,G]
  const float* rstd;   // [N,G]
  const float* gamma;  // [C]
  const Stored* dy;    // [N,H,W,C]
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t N, C, G;
  uint64_t HW;
  bool accumulate_dgamma, accumulate_dbeta;
};

struct BatchNormStatistics {
  enum : uint32_t { kMean, kRstd, kX, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<NormAttribute>().count != c[kX].leading_elements()) return Fault::kAttribute;
    return shape::require(shape::are_vectors(c, kMean, 2, c[kX].last_dimension()));
  }
  static constexpr const char* kSynopsis =
      "mean = sum(x) / count; rstd = 1 / sqrt(sum((x - mean)^2) / count + epsilon), by channel";
  static constexpr KernelInfo kInfo = {.op = Op::kBatchNorm,
                                       .pass = Pass::kStatistics,
                                       .name = "batch_norm.statistics",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .arguments = {contract::out("mean[C]"), contract::out("rstd[C]"),
                                                     contract::act_in("x[N,H,W,C]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static BatchNormStatisticsArgsOf<Stored> arguments(const RowCall& c) {
    return {.mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .x = c.pointer<Stored>(kX),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kX),
            .C = c.last(kX),
            .epsilon = c.attribute<NormAttribute>().epsilon};
  }
};

struct BatchNormRunning {
  enum : uint32_t { kRunningMean, kRunningVar, kBatches, kMean, kRstd, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t C = c[kRunningMean].elements();
    if (c.attribute<NormAttribute>().count == 0) return Fault::kAttribute;
    return shape::require(shape::are_vectors(c, kRunningMean, 2, C) && shape::is_vector(c, kBatches, 1) &&
                          shape::are_vectors(c, kMean, 2, C));
  }
  static constexpr const char* kSynopsis =
      "running_mean = (1 - momentum) running_mean + momentum mean; "
      "running_var alike, from rstd; batches += 1";
  static constexpr KernelInfo kInfo = {.op = Op::kBatchNorm,
                                       .pass = Pass::kRunning,
                                       .name = "batch_norm.running",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .updates = update_bit(StateKind::kBuffer),
                                       .arguments = {contract::updated("running_mean[C]"),
                                                     contract::updated("running_var[C]"),
                                                     contract::updated("batches[]", Storage::kI64),
                                                     contract::in("mean[C]"), contract::in("rstd[C]")},
                                       .shape_fault = fault};
  static BatchNormRunningArgs arguments(const RowCall& c) {
    const NormAttribute& norm = c.attribute<NormAttribute>();
    return {.running_mean = c.f32(kRunningMean),
            .running_var = c.f32(kRunningVar),
            .batches = c.pointer<int64_t>(kBatches),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .M = norm.count,
            .C = c.last(kRunningMean),
            .epsilon = norm.epsilon,
            .momentum = norm.momentum};
  }
};

struct BatchNormForward {
  enum : uint32_t { kY, kX, kMean, kRstd, kGamma, kBeta, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<NormAttribute>().count != c[kX].leading_elements()) return Fault::kAttribute;
    return shape::require(shape::same_rows(c[kY], c[kX]) && shape::are_vectors(c, kMean, 4, c[kX].last_dimension()));
  }
  static constexpr const char* kSynopsis = "y = (x - mean) rstd gamma + beta";
  static constexpr KernelInfo kInfo = {.op = Op::kBatchNorm,
                                       .pass = Pass::kForward,
                                       .name = "batch_norm.forward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("x[N,H,W,C]"),
                                                     contract::in("mean[C]"), contract::in("rstd[C]"),
                                                     contract::in("gamma[C]"), contract::in("beta[C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static BatchNormForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .gamma = c.f32(kGamma),
            .beta = c.f32(kBeta),
            .M = c.leading(kX),
            .C = c.last(kX)};
  }
};

struct BatchNormInference {
  enum : uint32_t { kY, kX, kRunningMean, kRunningVar, kGamma, kBeta, kArity };

  static constexpr Fault fault(const ShapedCall& c) { return BatchNormForward::fault(c); }
  static constexpr const char* kSynopsis = "y = (x - running_mean) / sqrt(running_var + epsilon) gamma + beta";
  static constexpr KernelInfo kInfo = {.op = Op::kBatchNorm,
                                       .pass = Pass::kInference,
                                       .name = "batch_norm.inference",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("x[N,H,W,C]"),
                                                     contract::in("running_mean[C]"), contract::in("running_var[C]"),
                                                     contract::in("gamma[C]"), contract::in("beta[C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static BatchNormInferenceArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .running_mean = c.f32(kRunningMean),
            .running_var = c.f32(kRunningVar),
            .gamma = c.f32(kGamma),
            .beta = c.f32(kBeta),
            .M = c.leading(kX),
            .C = c.last(kX),
            .epsilon = c.attribute<NormAttribute>().epsilon};
  }
};

struct BatchNormBackward {
  enum : uint32_t { kDx, kDgamma, kDbeta, kX, kMean, kRstd, kGamma, kDy, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<NormAttribute>().count != c[kX].leading_elements()) return Fault::kAttribute;
    const uint64_t C = c[kX].last_dimension();
    return shape::require(shape::same_rows(c[kDx], c[kX]) && shape::same_rows(c[kDy], c[kX]) &&
                          shape::are_vectors(c, kDgamma, 2, C) && shape::are_vectors(c, kMean, 3, C));
  }
  static constexpr const char* kSynopsis =
      "dx = gamma rstd (dy - (dbeta + z dgamma) / count); "
      "dgamma = sum(dy z); dbeta = sum(dy); where z = (x - mean) rstd";
  static constexpr KernelInfo kInfo = {.op = Op::kBatchNorm,
                                       .pass = Pass::kBackward,
                                       .name = "batch_norm.backward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[N,H,W,C]"),
                                                     contract::optional(contract::sum("dgamma[C]")),
                                                     contract::optional(contract::sum("dbeta[C]")),
                                                     contract::act_in("x[N,H,W,C]"), contract::in("mean[C]"),
                                                     contract::in("rstd[C]"), contract::in("gamma[C]"),
                                                     contract::act_in("dy[N,H,W,C]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static BatchNormBackwardArgsOf<Stored> arguments(const RowCall& c) {
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
            .accumulate_dgamma = c.adds(kDgamma),
            .accumulate_dbeta = c.adds(kDbeta),
            .beta = nullptr};
  }
};

// The gradient of batch_norm.inference, for a training that normalises with running statistics
// (tools/plan/graph/graph.h).
struct BatchNormBackwardData {
  enum : uint32_t { kDx, kDy, kRunningVar, kGamma, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<NormAttribute>().count != c[kDy].leading_elements()) return Fault::kAttribute;
    return shape::require(shape::same_rows(c[kDx], c[kDy]) &&
                          shape::are_vectors(c, kRunningVar, 2, c[kDy].last_dimension()));
  }
  static constexpr const char* kSynopsis = "dx = dy gamma / sqrt(running_var + epsilon)";
  static constexpr KernelInfo kInfo = {.op = Op::kBatchNorm,
                                       .pass = Pass::kBackwardData,
                                       .name = "batch_norm.backward_data",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[N,H,W,C]"), contract::act_in("dy[N,H,W,C]"),
                                                     contract::in("running_var[C]"), contract::in("gamma[C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static BatchNormBackwardDataArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dy = c.pointer<Stored>(kDy),
            .running_var = c.f32(kRunningVar),
            .gamma = c.f32(kGamma),
            .M = c.leading(kDy),
            .C = c.last(kDy),
            .epsilon = c.attribute<NormAttribute>().epsilon};
  }
};

// The gradients of batch-norm, computed from da, the gradient of a = relu(norm(x)).
struct NormReluBackward {
  enum : uint32_t { kDx, kDgamma, kDbeta, kX, kMean, kRstd, kGamma, kBeta, kDa, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<NormAttribute>().count != c[kX].leading_elements()) return Fault::kAttribute;
    const uint64_t C = c[kX].last_dimension();
    return shape::require(shape::same_rows(c[kDx], c[kX]) && shape::same_rows(c[kDa], c[kX]) &&
                          shape::are_vectors(c, kDgamma, 2, C) && shape::are_vectors(c, kMean, 4, C));
  }
  static constexpr const char* kSynopsis =
      "dx = gamma rstd (dy - (dbeta + z dgamma) / count); dgamma = sum(dy z); "
      "dbeta = sum(dy); where z = (x - mean) rstd, dy = (z gamma + beta > 0 ? da : 0)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kNormRelu,
      .pass = Pass::kBackward,
      .name = "norm_relu.backward",
      .attribute = kAttributeKind<NormAttribute>,
      .in_place_output = kDx,
      .in_place_input = kDa,
      .arguments = {contract::act_out("dx[N,H,W,C]"), contract::optional(contract::sum("dgamma[C]")),
                    contract::optional(contract::sum("dbeta[C]")), contract::act_in("x[N,H,W,C]"),
                    contract::in("mean[C]"), contract::in("rstd[C]"), contract::in("gamma[C]"), contract::in("beta[C]"),
                    contract::act_in("da[N,H,W,C]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static BatchNormBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dgamma = c.f32(kDgamma),
            .dbeta = c.f32(kDbeta),
            .x = c.pointer<Stored>(kX),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .gamma = c.f32(kGamma),
            .dy = c.pointer<Stored>(kDa),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kX),
            .C = c.last(kX),
            .accumulate_dgamma = c.adds(kDgamma),
            .accumulate_dbeta = c.adds(kDbeta),
            .beta = c.f32(kBeta)};
  }
};

// y = relu(norm(x) + b)
struct NormAddReluForward {
  enum : uint32_t { kY, kX, kB, kMean, kRstd, kGamma, kBeta, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<NormAttribute>().count != c[kX].leading_elements()) return Fault::kAttribute;
    return shape::require(shape::same_rows(c[kY], c[kX]) && shape::same_rows(c[kB], c[kX]) &&
                          shape::are_vectors(c, kMean, 4, c[kX].last_dimension()));
  }
  static constexpr const char* kSynopsis = "y = relu((x - mean) rstd gamma + beta + b)";
  static constexpr KernelInfo kInfo = {.op = Op::kNormAddRelu,
                                       .pass = Pass::kForward,
                                       .name = "norm_add_relu.forward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("x[N,H,W,C]"),
                                                     contract::act_in("b[N,H,W,C]"), contract::in("mean[C]"),
                                                     contract::in("rstd[C]"), contract::in("gamma[C]"),
                                                     contract::in("beta[C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static NormAddReluArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .b = c.pointer<Stored>(kB),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .gamma = c.f32(kGamma),
            .beta = c.f32(kBeta),
            .M = c.leading(kX),
            .C = c.last(kX)};
  }
};

namespace contract {
// True if mean and rstd are [N,G] and the channels of the images x are a multiple of G.
constexpr bool are_group_moments(const Tensor& x, const Tensor& mean, const Tensor& rstd) {
  const uint32_t G = mean.shape[1];
  const bool stand_alike = x.rank == 4 && mean.rank == 2 && rstd.rank == 2 && same_shape(mean, rstd);
  return stand_alike && mean.shape[0] == x.shape[0] && G > 0 && x.shape[3] % G == 0;
}
}  // namespace contract

struct GroupNormForward {
  enum : uint32_t { kY, kMean, kRstd, kX, kGamma, kBeta, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(same_shape(c[kY], c[kX]) && contract::are_group_moments(c[kX], c[kMean], c[kRstd]) &&
                          shape::are_vectors(c, kGamma, 2, c[kX].last_dimension()));
  }
  static constexpr const char* kSynopsis =
      "y = (x - mean) rstd gamma + beta; mean = sum(x) / S, rstd = 1 / sqrt(sum((x - mean)^2) / S + epsilon), "
      "by N, G over its S; where S = H W C / G";
  static constexpr KernelInfo kInfo = {.op = Op::kGroupNorm,
                                       .pass = Pass::kForward,
                                       .name = "group_norm.forward",
                                       .attribute = kAttributeKind<NormAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[N,H,W,C]"), contract::out("mean[N,G]"),
                                                     contract::out("rstd[N,G]"), contract::act_in("x[N,H,W,C]"),
                                                     contract::in("gamma[C]"), contract::in("beta[C]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static GroupNormForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .mean = c.f32(kMean),
            .rstd = c.f32(kRstd),
            .x = c.pointer<Stored>(kX),
            .gamma = c.f32(kGamma),
            .beta = c.f32(kBeta),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .N = c.dimension(kX, 0),
            .C = c.dimension(kX, 3),
            .G = c.dimension(kMean, 1),
            .HW = uint64_t{c.dimension(kX, 1)} * c.dimension(kX, 2),
            .epsilon = c.attribute<NormAttribute>().epsilon};
  }
};

struct GroupNormBackward {
  enum : uint32_t { kDx, kDgamma, kDbeta, kX, kMean, kRstd, kGamma, kDy, kScratch, kArity };

  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t C = c[kX].last_dimension();
    return shape::require(same_shape(c[kDx], c[kX]) && same_shape(c[kDy], c[kX]) &&
                          contract::are_group_moments(c[kX], c[kMean], c[kRstd]) &&
                          shape::are_vectors(c, kDgamma, 2, C) && shape::is_vector(c, kGamma, C));
  }
  static constexpr const char* kSynopsis =
      "dx = rstd (g - (sum(g) + z sum(g z)) / S), by N, G over its S; dgamma = sum(dy z) by channel; dbeta = sum(dy) "
      "by channel; "
      "where g = dy gamma, z = (x - mean) rstd, S = H W C / G";
  static constexpr KernelInfo kInfo = {.op = Op::kGroupNorm,
                                       .pass = Pass::kBackward,
                                       .name = "group_norm.backward",
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[N,H,W,C]"),
                                                     contract::optional(contract::sum("dgamma[C]")),
                                                     contract::optional(contract::sum("dbeta[C]")),
                                                     contract::act_in("x[N,H,W,C]"), contract::in("mean[N,G]"),
                                                     contract::in("rstd[N,G]"), contract::in("gamma[C]"),
                                                     contract::act_in("dy[N,H,W,C]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static GroupNormBackwardArgsOf<Stored> arguments(const RowCall& c) {
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
            .N = c.dimension(kX, 0),
            .C = c.dimension(kX, 3),
            .G = c.dimension(kMean, 1),
            .HW = uint64_t{c.dimension(kX, 1)} * c.dimension(kX, 2),
            .accumulate_dgamma = c.adds(kDgamma),
            .accumulate_dbeta = c.adds(kDbeta)};
  }
};

using BatchNormKernels =
    TypeList<BatchNormStatistics, BatchNormRunning, BatchNormForward, BatchNormInference, BatchNormBackward,
             BatchNormBackwardData, NormReluBackward, NormAddReluForward, GroupNormForward, GroupNormBackward>;

}  // namespace reprise
