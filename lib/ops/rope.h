// Rotary position embedding (Su et al. 2021) of the queries and keys of a fused q, k, v; backward turns the gradient back.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Element pairs (a, b) of every query and key head turn by position * frequency: (a cos - b sin, b cos + a sin). The values, and what
// lies behind the first `rotary` elements of a head, pass. Position t of a sequence counts from its document's start. Angles are
// computed in double, so that positions up to 2^20 keep an f32's precision.
template <typename Stored>
struct RopeArgsOf {
  Stored* y;                      // [B,T,(heads + 2 kv_heads) D]; may be x
  const Stored* x;                // q heads, then k heads, then v heads
  const int32_t* document_start;  // [B,T] or null: the position at which t's document starts, at most t
  const float* frequencies;       // [rotary / 2] or null: radians a position, in place of theta's
  uint64_t M;                     // B * T
  uint32_t T, D;
  RopeAttribute rope;
  bool inverse;  // turns back
};

namespace contract {
// Argument 0 from argument 1, for both passes.
constexpr Fault rope_fault(const ShapedCall& c) {
  const RopeAttribute& rope = c.attribute<RopeAttribute>();
  const Tensor &y = c[0], &x = c[1];
  const uint64_t all = uint64_t{rope.heads} + 2 * uint64_t{rope.kv_heads}, columns = x.last_dimension();
  return shape::require(x.rank == 3 && same_shape(y, x) && all > 0 && columns % all == 0 && rope.rotary <= columns / all &&
                        shape::is_matrix(c, 2, x.shape[0], x.shape[1]) && shape::is_vector(c, 3, rope.rotary / 2));
}
template <typename Stored>
RopeArgsOf<Stored> rope_arguments(const RowCall& c, bool inverse) {
  const RopeAttribute& rope = c.attribute<RopeAttribute>();
  return {.y = c.pointer<Stored>(0), .x = c.pointer<Stored>(1), .document_start = c.i32(2), .frequencies = c.f32(3), .M = c.leading(1),
          .T = c.dimension(1, 1), .D = c.last(1) / (rope.heads + 2 * rope.kv_heads), .rope = rope, .inverse = inverse};
}
}  // namespace contract

struct RopeForward {
  enum : uint32_t { kY, kX, kDocumentStart, kFrequencies };
  static constexpr KernelInfo kInfo = {
      .op = Op::kRope, .pass = Pass::kForward, .name = "rope.forward", .attribute = kAttributeKind<RopeAttribute>, .in_place_output = kY,
      .in_place_input = kX,
      .arguments = {contract::act_out("y[B,T,(heads+2kv_heads)D]"), contract::act_in("x[B,T,(heads+2kv_heads)D]"),
                    contract::optional(contract::in("document_start[B,T]", Storage::kI32)),
                    contract::optional(contract::in("frequencies[rotary/2]"))},
      .shape_fault = contract::rope_fault};
  template <typename Stored>
  static RopeArgsOf<Stored> arguments(const RowCall& c) {
    return contract::rope_arguments<Stored>(c, false);
  }
};

struct RopeBackward {
  enum : uint32_t { kDx, kDy, kDocumentStart, kFrequencies };
  static constexpr KernelInfo kInfo = {
      .op = Op::kRope, .pass = Pass::kBackward, .name = "rope.backward", .attribute = kAttributeKind<RopeAttribute>, .in_place_output = kDx,
      .in_place_input = kDy,
      .arguments = {contract::act_out("dx[B,T,(heads+2kv_heads)D]"), contract::act_in("dy[B,T,(heads+2kv_heads)D]"),
                    contract::optional(contract::in("document_start[B,T]", Storage::kI32)),
                    contract::optional(contract::in("frequencies[rotary/2]"))},
      .shape_fault = contract::rope_fault};
  template <typename Stored>
  static RopeArgsOf<Stored> arguments(const RowCall& c) {
    return contract::rope_arguments<Stored>(c, true);
  }
};

using RopeKernels = TypeList<RopeForward, RopeBackward>;

}  // namespace reprise
