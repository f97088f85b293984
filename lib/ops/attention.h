// Causal multi-head attention in tiles, forward and backward.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Causal multi-head attention, softmax(q k^T / sqrt(D)) v with D = C / heads, in tiles: no T x T matrix (Dao et al. 2022; Rabe &
// Staats 2021). qkv holds q, k, v side by side in the last dimension. lse is the log of the sum of exponentials of each row.
// Dropout of the weights: element ((b*heads + h)*T + t)*T + s of the node's mask (rng.h), kept weights scaled by 1/(1-p).
template <typename Stored>
struct AttentionForwardArgsOf {
  Stored* y;    // [B,T,C]
  float* lse;  // [B,heads,T]
  const Stored* qkv;  // [B,T,3C]
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};
template <typename Stored>
struct AttentionBackwardArgsOf {
  Stored* dqkv;  // [B,T,3C]
  const Stored* qkv;
  const Stored* y;
  const float* lse;
  const Stored* dy;
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};

// D of attention, in every backend: a head's tiles stand on the worker's stack or in registers.
constexpr uint32_t kAttentionMaxHead = 256;

namespace contract {
constexpr Fault attention_fault(const AttentionAttribute& a, const Tensor& y, const Tensor& lse, const Tensor& qkv) {
  const uint64_t B = y.shape[0], T = y.shape[1], C = y.shape[2];
  if (C % a.heads != 0 || C / a.heads > kAttentionMaxHead) return Fault::kAttribute;
  return shape::require(y.rank == 3 && qkv.rank == 3 && shape::is_shape(qkv, B, T, 3 * C, 1) && lse.rank == 3 &&
                        shape::is_shape(lse, B, a.heads, T, 1));
}
}  // namespace contract

struct AttentionForward {
  enum : uint32_t { kY, kLse, kQkv, kScalars, kScratch };
  static constexpr Fault fault(const ShapedCall& c) { return contract::attention_fault(c.attribute<AttentionAttribute>(), c[kY], c[kLse], c[kQkv]); }
  static constexpr KernelInfo kInfo = {
      .op = Op::kAttention, .pass = Pass::kForward, .name = "attention.forward", .attribute = kAttributeKind<AttentionAttribute>,
      .attribute_is_cost = false,
      .arguments = {contract::act_out("y[B,T,C]"), contract::out("lse[B,heads,T]"), contract::act_in("qkv[B,T,3C]"), contract::scalars_in(),
                    contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static AttentionForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .lse = c.f32(kLse), .qkv = c.pointer<Stored>(kQkv), .scalars = c.scalars(kScalars),
            .scratch = c.pointer<void>(kScratch), .scratch_bytes = c.bytes(kScratch), .B = c.dimension(kY, 0), .T = c.dimension(kY, 1),
            .C = c.dimension(kY, 2), .attention = c.attribute<AttentionAttribute>()};
  }
};

struct AttentionBackward {
  enum : uint32_t { kDqkv, kQkv, kY, kLse, kDy, kScalars, kScratch };
  static constexpr Fault fault(const ShapedCall& c) {
    if (!same_shape(c[kDqkv], c[kQkv]) || !same_shape(c[kY], c[kDy])) return Fault::kShape;
    return contract::attention_fault(c.attribute<AttentionAttribute>(), c[kY], c[kLse], c[kQkv]);
  }
  static constexpr KernelInfo kInfo = {
      .op = Op::kAttention, .pass = Pass::kBackward, .name = "attention.backward", .attribute = kAttributeKind<AttentionAttribute>,
      .attribute_is_cost = false,
      .arguments = {contract::act_out("dqkv[B,T,3C]"), contract::act_in("qkv[B,T,3C]"), contract::act_in("y[B,T,C]"),
                    contract::in("lse[B,heads,T]"), contract::act_in("dy[B,T,C]"), contract::scalars_in(), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static AttentionBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dqkv = c.pointer<Stored>(kDqkv), .qkv = c.pointer<Stored>(kQkv), .y = c.pointer<Stored>(kY), .lse = c.f32(kLse),
            .dy = c.pointer<Stored>(kDy), .scalars = c.scalars(kScalars), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .B = c.dimension(kY, 0), .T = c.dimension(kY, 1), .C = c.dimension(kY, 2),
            .attention = c.attribute<AttentionAttribute>()};
  }
};

using AttentionKernels = TypeList<AttentionForward, AttentionBackward>;

}  // namespace reprise
