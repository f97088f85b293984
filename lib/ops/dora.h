// DoRA (Liu et al. 2024, "Weight-Decomposed Low-Rank Adaptation"): an adapter in which the length
// of each row of the adapted weight is a parameter. An adapted linear layer without a bias computes
// z = x V^T with V = W + scale * B A (lib/ops/linear.h). These kernels compute the lengths of V's
// rows, and y from z.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// norms[k] = the length of row k of W + scale * B A. W is [K,C], or [C,K] if input_major, in any
// format. An element is w + the sum over r, in order, of (scale * b_r) * a_r, as in a merged
// weight. Squares are added in double.
struct DoraNormsArgs {
  float* norms;  // [K]
  Weight w;      // [K,C], or [C,K] if input_major
  Weight a;  // [R,C]
  Weight b;  // [K,R]
  void* scratch;
  uint64_t scratch_bytes;  // Bytes of scratch, defined by dora_rules.h of the backend.
  uint32_t C, K, R;
  bool input_major;
  float scale;
};
// y = z f + bias, with f[k] = magnitudes[k] / norms[k] for each of the M rows. A zero row of V has
// no direction: f is 0.
template <typename Stored>
struct DoraForwardArgsOf {
  Stored* y;                // [M,K]; may be z
  const Stored* z;          // [M,K]
  const float* magnitudes;  // [K]
  const float* norms;       // [K]
  const float* bias;        // [K] or null
  uint64_t M;
  uint32_t K;
};
// dz = dy f; dmagnitudes = the sum over rows of dy z / norms. The norms count as constants (section
// 4.3 of the paper).
template <typename Stored>
struct DoraBackwardArgsOf {
  Stored* dz;          // [M,K]; may be dy
  float* dmagnitudes;  // [K] or null
  const Stored* z;     // [M,K]
  const float* magnitudes;  // [K]
  const float* norms;       // [K]
  const Stored* dy;         // [M,K]
  void* scratch;
  uint64_t scratch_bytes;
  uint64_t M;
  uint32_t K;
  bool accumulate_dmagnitudes;
};

struct DoraNorms {
  enum : uint32_t { kNorms, kW, kA, kB, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t K = c[kNorms].elements(), R = c[kB].last_dimension(), C = c[kA].last_dimension();
    const bool by_input = c.attribute<LinearAttribute>().input_major != 0;
    return shape::require(shape::is_vector(c, kNorms, K) &&
                          shape::is_matrix(c, kW, by_input ? C : K, by_input ? K : C) &&
                          shape::is_matrix(c, kA, R, C) && shape::is_matrix(c, kB, K, R));
  }
  static constexpr const char* kSynopsis = "norms = sqrt(sum((w + scale b a)^2)) over C";
  static constexpr KernelInfo kInfo = {
      .op = Op::kDora, .pass = Pass::kStatistics, .name = "dora.norms", .attribute = kAttributeKind<LinearAttribute>,
      .arguments = {contract::out("norms[K]"), contract::weight("w[K,C] or [C,K]"), contract::weight("a[R,C]"),
                    contract::weight("b[K,R]"), contract::scratch()},
      .shape_fault = fault};
  static DoraNormsArgs arguments(const RowCall& c) {
    const LinearAttribute& linear = c.attribute<LinearAttribute>();
    return {.norms = c.f32(kNorms),
            .w = c.weight(kW),
            .a = c.weight(kA),
            .b = c.weight(kB),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .C = c.last(kA),
            .K = c.last(kNorms),
            .R = c.last(kB),
            .input_major = linear.input_major != 0,
            .scale = linear.scale};
  }
};

struct DoraForward {
  enum : uint32_t { kY, kZ, kMagnitudes, kNorms, kBias, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(shape::same_rows(c[kY], c[kZ]) &&
                          shape::are_vectors(c, kMagnitudes, 3, c[kZ].last_dimension()));
  }
  static constexpr const char* kSynopsis = "y = z magnitudes / norms + bias";
  static constexpr KernelInfo kInfo = {.op = Op::kDora,
                                       .pass = Pass::kForward,
                                       .name = "dora.forward",
                                       .in_place_output = kY,
                                       .in_place_input = kZ,
                                       .arguments = {contract::act_out("y[M,K]"), contract::act_in("z[M,K]"),
                                                     contract::in("magnitudes[K]"), contract::in("norms[K]"),
                                                     contract::optional(contract::in("bias[K]"))},
                                       .shape_fault = fault};
  template <typename Stored>
  static DoraForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .z = c.pointer<Stored>(kZ),
            .magnitudes = c.f32(kMagnitudes),
            .norms = c.f32(kNorms),
            .bias = c.f32(kBias),
            .M = c.leading(kZ),
            .K = c.last(kZ)};
  }
};

struct DoraBackward {
  enum : uint32_t { kDz, kDmagnitudes, kZ, kMagnitudes, kNorms, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const uint64_t K = c[kZ].last_dimension();
    return shape::require(shape::same_rows(c[kDz], c[kZ]) && shape::same_rows(c[kDy], c[kZ]) &&
                          shape::is_vector(c, kDmagnitudes, K) && shape::are_vectors(c, kMagnitudes, 2, K));
  }
  static constexpr const char* kSynopsis = "dz = dy magnitudes / norms; dmagnitudes = sum of dy z / norms over M";
  static constexpr KernelInfo kInfo = {.op = Op::kDora,
                                       .pass = Pass::kBackward,
                                       .name = "dora.backward",
                                       .in_place_output = kDz,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dz[M,K]"),
                                                     contract::optional(contract::sum("dmagnitudes[K]")),
                                                     contract::act_in("z[M,K]"), contract::in("magnitudes[K]"),
                                                     contract::in("norms[K]"), contract::act_in("dy[M,K]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static DoraBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dz = c.pointer<Stored>(kDz),
            .dmagnitudes = c.f32(kDmagnitudes),
            .z = c.pointer<Stored>(kZ),
            .magnitudes = c.f32(kMagnitudes),
            .norms = c.f32(kNorms),
            .dy = c.pointer<Stored>(kDy),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .M = c.leading(kZ),
            .K = c.last(kZ),
            .accumulate_dmagnitudes = c.adds(kDmagnitudes)};
  }
};

using DoraKernels = TypeList<DoraNorms, DoraForward, DoraBackward>;

}  // namespace reprise
