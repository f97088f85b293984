// Rotary position embedding (Su et al. 2021) of queries and keys; they and the values are written side by side, as attention reads them.
// Here so that three linear layers, each with an adapter or a norm of its own, feed one attention; backward turns the gradients back.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Element pairs (a, b) of every query and key head turn by position * frequency: scale * (a cos - b sin, b cos + a sin). The values, and
// what lies behind the first `rotary` elements of a head, pass. Position t of a sequence counts from its document's start. Angles are
// computed in double, so that positions up to 2^20 keep an f32's precision.
template <typename Stored>
struct RopeForwardArgsOf {
  Stored* qkv;      // [B,T,(heads + 2 kv_heads) D]: q heads, then k heads, then v heads
  const Stored* q;  // [B,T,heads D]
  const Stored* k;  // [B,T,kv_heads D]
  const Stored* v;  // [B,T,kv_heads D]
  const int32_t* document_start;  // [B,T] or null: the position at which t's document starts, at most t
  const float* frequencies;       // [rotary / 2] or null: radians a position, in place of theta's
  uint64_t M;                     // B * T
  uint32_t T, D;
  RopeAttribute rope;
};
// The gradients turn the other way: the transpose of what forward does.
template <typename Stored>
struct RopeBackwardArgsOf {
  Stored* dq;          // [B,T,heads D]
  Stored* dk;          // [B,T,kv_heads D]
  Stored* dv;          // [B,T,kv_heads D]
  const Stored* dqkv;  // [B,T,(heads + 2 kv_heads) D]
  const int32_t* document_start;
  const float* frequencies;
  uint64_t M;
  uint32_t T, D;
  RopeAttribute rope;
};

namespace contract {
// `first`: the argument that is q or dq; those of k and v follow it.
constexpr Fault rope_fault(const ShapedCall& c, const Tensor& qkv, uint32_t first, uint32_t document_start) {
  const RopeAttribute& rope = c.attribute<RopeAttribute>();
  const Tensor& q = c[first];
  if (rope.heads == 0 || q.rank != 3 || q.shape[2] % rope.heads != 0) return Fault::kShape;
  const uint64_t B = q.shape[0], T = q.shape[1], D = q.shape[2] / rope.heads;
  const uint64_t shared = rope.kv_heads * D;
  return shape::require(rope.rotary <= D && qkv.rank == 3 && shape::is_shape(qkv, B, T, q.shape[2] + 2 * shared, 1) &&
                        c[first + 1].rank == 3 && shape::is_shape(c[first + 1], B, T, shared, 1) && c[first + 2].rank == 3 &&
                        shape::is_shape(c[first + 2], B, T, shared, 1) && shape::is_matrix(c, document_start, B, T) &&
                        shape::is_vector(c, document_start + 1, rope.rotary / 2));
}
}  // namespace contract

struct RopeForward {
  enum : uint32_t { kQkv, kQ, kK, kV, kDocumentStart, kFrequencies, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::rope_fault(c, c[kQkv], kQ, kDocumentStart); }
  static constexpr const char* kSynopsis = "qkv = turn(q), turn(k), v; where turn = scale rotation by position frequencies";
  static constexpr KernelInfo kInfo = {
      .op = Op::kRope, .pass = Pass::kForward, .name = "rope.forward", .attribute = kAttributeKind<RopeAttribute>,
      .arguments = {contract::act_out("qkv[B,T,(heads+2kv_heads)D]"), contract::act_in("q[B,T,heads*D]"), contract::act_in("k[B,T,kv_heads*D]"),
                    contract::act_in("v[B,T,kv_heads*D]"), contract::document_start(), contract::optional(contract::in("frequencies[rotary/2]"))},
      .shape_fault = fault};
  template <typename Stored>
  static RopeForwardArgsOf<Stored> arguments(const RowCall& c) {
    const RopeAttribute& rope = c.attribute<RopeAttribute>();
    return {.qkv = c.pointer<Stored>(kQkv), .q = c.pointer<Stored>(kQ), .k = c.pointer<Stored>(kK), .v = c.pointer<Stored>(kV),
            .document_start = c.i32(kDocumentStart), .frequencies = c.f32(kFrequencies), .M = c.leading(kQ), .T = c.dimension(kQ, 1),
            .D = c.last(kQ) / rope.heads, .rope = rope};
  }
};

struct RopeBackward {
  enum : uint32_t { kDq, kDk, kDv, kDqkv, kDocumentStart, kFrequencies, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::rope_fault(c, c[kDqkv], kDq, kDocumentStart); }
  static constexpr const char* kSynopsis = "dq, dk, dv = turn^T(dqkv); where turn = scale rotation by position frequencies";
  static constexpr KernelInfo kInfo = {
      .op = Op::kRope, .pass = Pass::kBackward, .name = "rope.backward", .attribute = kAttributeKind<RopeAttribute>,
      .arguments = {contract::act_out("dq[B,T,heads*D]"), contract::act_out("dk[B,T,kv_heads*D]"), contract::act_out("dv[B,T,kv_heads*D]"),
                    contract::act_in("dqkv[B,T,(heads+2kv_heads)D]"), contract::document_start(),
                    contract::optional(contract::in("frequencies[rotary/2]"))},
      .shape_fault = fault};
  template <typename Stored>
  static RopeBackwardArgsOf<Stored> arguments(const RowCall& c) {
    const RopeAttribute& rope = c.attribute<RopeAttribute>();
    return {.dq = c.pointer<Stored>(kDq), .dk = c.pointer<Stored>(kDk), .dv = c.pointer<Stored>(kDv), .dqkv = c.pointer<Stored>(kDqkv),
            .document_start = c.i32(kDocumentStart), .frequencies = c.f32(kFrequencies), .M = c.leading(kDqkv),
            .T = c.dimension(kDqkv, 1), .D = c.last(kDq) / rope.heads, .rope = rope};
  }
};

using RopeKernels = TypeList<RopeForward, RopeBackward>;

}  // namespace reprise
