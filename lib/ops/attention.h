// Attention in tiles, causal or over all positions, forward and backward; and causal attention for
// generation with caches. Each head of q has its own keys and values, or several heads share them.
#pragma once

#include <cmath>

#include "lib/row_call.h"

namespace reprise {

// Attention: softmax(z) v with z = scale q k^T, capped by the attribute's softcap. It is computed
// in tiles, without a T x T matrix (Dao et al. 2022; Rabe & Staats 2021). D = C / heads. Scores are
// divided by sqrt(D) if the attribute's scale is 0.
// The W = (heads + 2 kv_heads) D columns of qkv are the heads of q, then of k, then of v. Head h of
// q reads head h / (heads / kv_heads) of k and v (Ainslie et al. 2023). lse has, for each row of z,
// the log of the sum of its exponentials.
//
// Causal: position t attends to the positions from document_start[b,t] to t, or from 0 if
// document_start is null. With a window it attends to the last `window` of these only. A start
// outside [0,t] is a fault (DataFault::kDocument).
// Not causal: position t attends to its whole document, which starts at document_start[b,t], or to
// the whole sequence if document_start is null. The documents of a sequence are consecutive: a
// start that is neither t nor the start of position t - 1 is also a fault. Padding after a text is
// a document of its own, so that text and padding do not attend to each other.
//
// Dropout acts on softmax(z). The weight with which position t attends to position s uses element
// ((b*heads + h)*T + t)*T + s of the node's mask (rng.h). Weights that are kept are scaled by
// 1/(1-p).
template <typename Stored>
struct AttentionForwardArgsOf {
  Stored* y;    // [B,T,C]
  float* lse;  // [B,heads,T]
  const Stored* qkv;  // [B,T,W]
  const int32_t* document_start;  // [B,T] or null
  const StepScalars* scalars;     // state[0]: seed, step and micro-batch of the mask
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};
// The gradients of attention. The gradient of a head of k or v is a sum over the heads of q that
// read it. The sum is in the order of those heads of q.
template <typename Stored>
struct AttentionBackwardArgsOf {
  Stored* dqkv;  // [B,T,W]
  const Stored* qkv;              // [B,T,W]
  const Stored* y;                // [B,T,C]
  const float* lse;               // [B,heads,T]
  const Stored* dy;               // [B,T,C]
  const int32_t* document_start;  // [B,T] or null
  const StepScalars* scalars;
  void* scratch;
  uint64_t scratch_bytes;
  uint32_t B, T, C;
  AttentionAttribute attention;
};

// Causal attention for the generation of one sequence. The keys and values of up to P rows are
// stored in caches of L positions. Each row attends to all positions from 0 to its own, or to the
// last `window` of them. There is no dropout.
// Row t is at position t - document_start[t]. A row whose document starts after it is padding: it
// is not stored, and its y is 0. Positions are consecutive and padding comes last. Another order,
// or a position at or past L, is a fault (DataFault::kDocument): then nothing is stored and y is 0.
// A row reads the caches only up to its own position.
template <typename Stored>
struct AttentionDecodeArgsOf {
  Stored* y;                      // [1,P,C]
  Stored* keys;                   // [L,kv_heads D], updated
  Stored* values;                 // [L,kv_heads D], updated
  const Stored* qkv;              // [1,P,W]
  const int32_t* document_start;  // [1,P]; the negated position of row 0 for every row that is not padding
  uint32_t P, L, C;
  AttentionAttribute attention;
};

// Returns the factor of the scores: the attribute's scale, or 1 / sqrt(D) if the attribute's scale
// is 0.
inline float attention_scale(const AttentionAttribute& attention, uint32_t D) {
  return attention.scale != 0 ? attention.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(D)));
}

// The maximum of D in every backend. It is limited because a head's tiles are on the worker's stack
// or in registers.
constexpr uint32_t kAttentionMaxHead = 256;

namespace contract {
// Returns the fault of the shapes of forward or backward. `document_start` is the index of that
// argument.
constexpr Fault attention_fault(const ShapedCall& c, const Tensor& y, const Tensor& lse, const Tensor& qkv,
                                uint32_t document_start) {
  const AttentionAttribute& a = c.attribute<AttentionAttribute>();
  const uint64_t B = y.shape[0], T = y.shape[1], C = y.shape[2];
  if (C % a.heads != 0 || C / a.heads > kAttentionMaxHead) return Fault::kAttribute;
  const uint64_t W = (a.heads + uint64_t{2} * a.kv_heads) * (C / a.heads);
  return shape::require(y.rank == 3 && qkv.rank == 3 && shape::is_shape(qkv, B, T, W, 1) && lse.rank == 3 &&
                        shape::is_shape(lse, B, a.heads, T, 1) && shape::is_matrix(c, document_start, B, T));
}
}  // namespace contract

struct AttentionForward {
  enum : uint32_t { kY, kLse, kQkv, kDocumentStart, kScalars, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::attention_fault(c, c[kY], c[kLse], c[kQkv], kDocumentStart);
  }
  static constexpr const char* kSynopsis =
      "y = softmax(z) v, attribute.causal in its window; lse = log(sum(exp(z))); "
      "where z = q k^T attribute.scale, capped, and q, k, v = qkv by head";
  static constexpr KernelInfo kInfo = {.op = Op::kAttention,
                                       .pass = Pass::kForward,
                                       .name = "attention.forward",
                                       .attribute = kAttributeKind<AttentionAttribute>,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("y[B,T,C]"), contract::out("lse[B,heads,T]"),
                                                     contract::act_in("qkv[B,T,W]"), contract::document_start(),
                                                     contract::scalars_in(), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static AttentionForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .lse = c.f32(kLse),
            .qkv = c.pointer<Stored>(kQkv),
            .document_start = c.i32(kDocumentStart),
            .scalars = c.scalars(kScalars),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .B = c.dimension(kY, 0),
            .T = c.dimension(kY, 1),
            .C = c.dimension(kY, 2),
            .attention = c.attribute<AttentionAttribute>()};
  }
};

struct AttentionBackward {
  enum : uint32_t { kDqkv, kQkv, kY, kLse, kDy, kDocumentStart, kScalars, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    if (!same_shape(c[kDqkv], c[kQkv]) || !same_shape(c[kY], c[kDy])) return Fault::kShape;
    return contract::attention_fault(c, c[kY], c[kLse], c[kQkv], kDocumentStart);
  }
  static constexpr const char* kSynopsis =
      "dqkv = ds k s, ds^T q s, p^T dy; "
      "where p = exp(z - lse), ds = p (dy v^T - sum(dy y)) capped', z = q k^T s, capped, s = attribute.scale, q, k, v "
      "= qkv by head";
  static constexpr KernelInfo kInfo = {.op = Op::kAttention,
                                       .pass = Pass::kBackward,
                                       .name = "attention.backward",
                                       .attribute = kAttributeKind<AttentionAttribute>,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("dqkv[B,T,W]"), contract::act_in("qkv[B,T,W]"),
                                                     contract::act_in("y[B,T,C]"), contract::in("lse[B,heads,T]"),
                                                     contract::act_in("dy[B,T,C]"), contract::document_start(),
                                                     contract::scalars_in(), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static AttentionBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dqkv = c.pointer<Stored>(kDqkv),
            .qkv = c.pointer<Stored>(kQkv),
            .y = c.pointer<Stored>(kY),
            .lse = c.f32(kLse),
            .dy = c.pointer<Stored>(kDy),
            .document_start = c.i32(kDocumentStart),
            .scalars = c.scalars(kScalars),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .B = c.dimension(kY, 0),
            .T = c.dimension(kY, 1),
            .C = c.dimension(kY, 2),
            .attention = c.attribute<AttentionAttribute>()};
  }
};

struct AttentionDecode {
  enum : uint32_t { kY, kKeys, kValues, kQkv, kDocumentStart, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    const AttentionAttribute& a = c.attribute<AttentionAttribute>();
    const Tensor &y = c[kY], &qkv = c[kQkv], &keys = c[kKeys];
    const uint64_t P = y.shape[1], C = y.shape[2], L = keys.shape[0];
    if (C % a.heads != 0 || C / a.heads > kAttentionMaxHead || a.dropout != 0 || a.causal == 0)
      return Fault::kAttribute;
    const uint64_t D = C / a.heads, shared = a.kv_heads * D;
    return shape::require(y.rank == 3 && y.shape[0] == 1 && qkv.rank == 3 &&
                          shape::is_shape(qkv, 1, P, C + 2 * shared, 1) && P <= L &&
                          shape::is_matrix(c, kKeys, L, shared) && shape::is_matrix(c, kValues, L, shared) &&
                          shape::is_matrix(c, kDocumentStart, 1, P));
  }
  static constexpr const char* kSynopsis =
      "keys[t], values[t] = k, v; y = softmax(z) values; "
      "where z = q keys^T attribute.scale, capped, and q, k, v = qkv by head, t = row - document_start";
  static constexpr KernelInfo kInfo = {.op = Op::kAttention,
                                       .pass = Pass::kDecode,
                                       .name = "attention.decode",
                                       .attribute = kAttributeKind<AttentionAttribute>,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("y[1,P,C]"),
                                                     contract::act_updated("keys[L,kv_heads*D]"),
                                                     contract::act_updated("values[L,kv_heads*D]"),
                                                     contract::act_in("qkv[1,P,W]"),
                                                     contract::required(contract::document_start())},
                                       .shape_fault = fault};
  template <typename Stored>
  static AttentionDecodeArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .keys = c.pointer<Stored>(kKeys),
            .values = c.pointer<Stored>(kValues),
            .qkv = c.pointer<Stored>(kQkv),
            .document_start = c.i32(kDocumentStart),
            .P = c.dimension(kY, 1),
            .L = c.dimension(kKeys, 0),
            .C = c.dimension(kY, 2),
            .attention = c.attribute<AttentionAttribute>()};
  }
};

using DecodeKernels = TypeList<AttentionDecode>;
using AttentionKernels = TypeList<AttentionForward, AttentionBackward>;

}  // namespace reprise
