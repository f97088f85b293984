// Rotary position embedding (Su et al. 2021) of queries and keys. The forward writes queries, keys
// and values next to each other, as attention reads them. So three linear layers, each with its own
// adapter or norm, can feed one attention. The backward rotates the gradients in the opposite
// direction.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Each pair (a, b) of elements of a query or key head is rotated by the angle position * frequency:
// scale * (a cos - b sin, b cos + a sin). The values are copied, and so are the elements of a head
// after the first `rotary` ones. Positions of a sequence count from the start of their document.
// Angles are computed in double, so that positions up to 2^20 keep the precision of an f32.
template <typename Stored>
struct RopeForwardArgsOf {
  Stored* qkv;      // [B,T,(heads + 2 kv_heads) D]: q heads, then k heads, then v heads
  const Stored* q;  // [B,T,heads D]
  const Stored* k;  // [B,T,kv_heads D]
  const Stored* v;  // [B,T,kv_heads D]
  // [B,T] or null: the position at which the document of position t starts, at most t.
  const int32_t* document_start;
  // [rotary / 2] or null: radians per position, instead of the frequencies that follow from theta.
  const float* frequencies;
  uint64_t M;                     // B * T
  uint32_t T, D;
  RopeAttribute rope;
};
// The gradients, rotated in the opposite direction: the transpose of the forward.
template <typename Stored>
struct RopeBackwardArgsOf {
  Stored* dq;          // [B,T,heads D]
  Stored* dk;          // [B,T,kv_heads D]
  Stored* dv;          // [B,T,kv_heads D]
  const Stored* dqkv;  // [B,T,(heads + 2 kv_heads) D]
  const int32_t* document_start;  // [B,T] or null
  const float* frequencies;       // [rotary / 2] or null
  uint64_t M;                     // B * T
  uint32_t T, D;
  RopeAttribute rope;
};

namespace contract {
// Returns the fault of the shapes. `first` is the index of the argument q or dq; k and v, or dk and
// dv, follow it. `document_start` is the index of the document starts; the frequencies follow them.
constexpr Fault rope_fault(const ShapedCall& c, const Tensor& qkv, uint32_t first, uint32_t document_start) {
  const RopeAttribute& rope = c.attribute<RopeAttribute>();
  const Tensor& q = c[first];
  if (rope.heads == 0 || q.rank != 3 || q.shape[2] % rope.heads != 0) return Fault::kShape;
  const uint64_t B = q.shape[0], T = q.shape[1], D = q.shape[2] / rope.heads;
  const uint64_t shared = rope.kv_heads * D;
  return shape::require(rope.rotary <= D && qkv.rank == 3 && shape::is_shape(qkv, B, T, q.shape[2] + 2 * shared, 1) &&
                        c[first + 1].rank == 3 && shape::is_shape(c[first + 1], B, T, shared, 1) &&
                        c[first + 2].rank == 3 && shape::is_shape(c[first + 2], B, T, shared, 1) &&
                        shape::is_matrix(c, document_start, B, T) &&
                        shape::is_vector(c, document_start + 1, rope.rotary / 2));
}
}  // namespace contract

struct RopeForward {
  enum : uint32_t { kQkv, kQ, kK, kV, kDocumentStart, kFrequencies, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::rope_fault(c, c[kQkv], kQ, kDocumentStart); }
  static constexpr const char* kSynopsis =
      "qkv = turn(q), turn(k), v; where turn = scale rotation by position frequencies";
  static constexpr KernelInfo kInfo = {.op = Op::kRope,
                                       .pass = Pass::kForward,
                                       .name = "rope.forward",
                                       .attribute = kAttributeKind<RopeAttribute>,
                                       .arguments = {contract::act_out("qkv[B,T,(heads+2kv_heads)D]"),
                                                     contract::act_in("q[B,T,heads*D]"),
                                                     contract::act_in("k[B,T,kv_heads*D]"),
                                                     contract::act_in("v[B,T,kv_heads*D]"), contract::document_start(),
                                                     contract::optional(contract::in("frequencies[rotary/2]"))},
                                       .shape_fault = fault};
  template <typename Stored>
  static RopeForwardArgsOf<Stored> arguments(const RowCall& c) {
    const RopeAttribute& rope = c.attribute<RopeAttribute>();
    return {.qkv = c.pointer<Stored>(kQkv),
            .q = c.pointer<Stored>(kQ),
            .k = c.pointer<Stored>(kK),
            .v = c.pointer<Stored>(kV),
            .document_start = c.i32(kDocumentStart),
            .frequencies = c.f32(kFrequencies),
            .M = c.leading(kQ),
            .T = c.dimension(kQ, 1),
            .D = c.last(kQ) / rope.heads,
            .rope = rope};
  }
};

struct RopeBackward {
  enum : uint32_t { kDq, kDk, kDv, kDqkv, kDocumentStart, kFrequencies, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::rope_fault(c, c[kDqkv], kDq, kDocumentStart); }
  static constexpr const char* kSynopsis =
      "dq, dk, dv = turn^T(dqkv); where turn = scale rotation by position frequencies";
  static constexpr KernelInfo kInfo = {
      .op = Op::kRope,
      .pass = Pass::kBackward,
      .name = "rope.backward",
      .attribute = kAttributeKind<RopeAttribute>,
      .arguments = {contract::act_out("dq[B,T,heads*D]"), contract::act_out("dk[B,T,kv_heads*D]"),
                    contract::act_out("dv[B,T,kv_heads*D]"), contract::act_in("dqkv[B,T,(heads+2kv_heads)D]"),
                    contract::document_start(), contract::optional(contract::in("frequencies[rotary/2]"))},
      .shape_fault = fault};
  template <typename Stored>
  static RopeBackwardArgsOf<Stored> arguments(const RowCall& c) {
    const RopeAttribute& rope = c.attribute<RopeAttribute>();
    return {.dq = c.pointer<Stored>(kDq),
            .dk = c.pointer<Stored>(kDk),
            .dv = c.pointer<Stored>(kDv),
            .dqkv = c.pointer<Stored>(kDqkv),
            .document_start = c.i32(kDocumentStart),
            .frequencies = c.f32(kFrequencies),
            .M = c.leading(kDqkv),
            .T = c.dimension(kDqkv, 1),
            .D = c.last(kDq) / rope.heads,
            .rope = rope};
  }
};

using RopeKernels = TypeList<RopeForward, RopeBackward>;

}  // namespace reprise
