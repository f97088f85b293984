// Products and sums of two activations, the second of which may be repeated: along missing leading dimensions and along those of size 1, as NumPy
// and ONNX have it. Squeeze-and-excitation's gate is [N,1,1,C], a layer scale [C], learned positions [1,T,C].
//
// The sums of equal shapes are kAdd's (elementwise.h), which hands its gradient on.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Both shapes as five sizes, neighbouring dimensions of one kind joined; b has the first, the third and the last of them:
//   y[o,r,i,s,c] = a[o,r,i,s,c] b[o,i,c]
// Dimensions are joined from the last one on, so that four need no more, and `columns` is 1 only where the last dimension is a repeated one.
struct Broadcast {
  uint64_t outer = 1, repeats = 1, inner = 1, rows = 1, columns = 1;

  constexpr uint64_t elements() const { return outer * repeats * inner * rows * columns; }
  constexpr uint64_t segments() const { return outer * inner; }         // of b, `columns` elements each
  constexpr uint64_t repeated() const { return repeats * rows; }        // how often each is used
  // Of so many runs of `rows` rows of a, one after the other: the segment of b that run `run` meets.
  constexpr uint64_t segment_of(uint64_t run) const { return run / (repeats * inner) * inner + run % inner; }
  // The run of a in which segment `segment` is used for the `repeat`-th time.
  constexpr uint64_t run_of(uint64_t segment, uint64_t repeat) const {
    return (segment / inner * repeats + repeat) * inner + segment % inner;
  }
};

namespace contract {
// b's dimension that stands under dimension d of a.
constexpr uint32_t dimension_under(const Tensor& a, const Tensor& b, uint32_t d) {
  const uint32_t missing = uint32_t{a.rank} - b.rank;
  return d < missing ? 1 : b.shape[d - missing];
}
constexpr bool is_broadcast(const Tensor& a, const Tensor& b) {
  if (b.rank > a.rank) return false;
  for (uint32_t d = 0; d < a.rank; ++d) {
    const uint32_t own = dimension_under(a, b, d);
    if (own != 1 && own != a.shape[d]) return false;
  }
  return true;
}
// Of a and b that obey it.
constexpr Broadcast broadcast_of(const Tensor& a, const Tensor& b) {
  uint64_t sizes[5] = {1, 1, 1, 1, 1};
  uint32_t at = 4;  // the size that is being joined: b has it where it is even
  for (uint32_t d = a.rank; d-- > 0;) {
    if (a.shape[d] == 1) continue;
    const bool repeated = dimension_under(a, b, d) == 1;
    if (repeated == (at % 2 == 0)) --at;
    sizes[at] *= a.shape[d];
  }
  return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
}
}  // namespace contract

// y from a and b: forward, and the gradient of a from dy and b.
template <typename Stored>
struct BroadcastArgsOf {
  Stored* y;        // a's shape; may be a
  const Stored* a;
  const Stored* b;  // a's shape, or broadcast to it
  Broadcast shape;
};
// The gradient of b: the sum of dy a, or of dy where a is null, over what is repeated.
template <typename Stored>
struct BroadcastSumArgsOf {
  Stored* db;        // b's shape
  const Stored* dy;  // a's shape
  const Stored* a;   // dy's shape, or null
  void* scratch;
  uint64_t scratch_bytes;
  Broadcast shape;
  bool accumulate_db;
};

// `Operation` says what tells one from another: its op, and what its forward is called and computes.
template <typename Operation>
struct BroadcastForward {
  enum : uint32_t { kY, kA, kB, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kY], c[kA]) && contract::is_broadcast(c[kA], c[kB])); }
  static constexpr const char* kSynopsis = Operation::kSynopsis;
  static constexpr KernelInfo kInfo = {
      .op = Operation::kOp, .pass = Pass::kForward, .name = Operation::kForward, .in_place_output = kY, .in_place_input = kA,
      .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("a[N,H,W,C]"), contract::act_in("b[N,1,1,C]")}, .shape_fault = fault};
  template <typename Stored>
  static BroadcastArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .a = c.pointer<Stored>(kA), .b = c.pointer<Stored>(kB), .shape = contract::broadcast_of(c[kA], c[kB])};
  }
};

namespace contract {
struct Product {
  static constexpr Op kOp = Op::kMultiply;
  static constexpr const char *kForward = "multiply.forward", *kSynopsis = "y = a b, b alike over what it has not";
};
struct RepeatedSum {
  static constexpr Op kOp = Op::kBroadcastAdd;
  static constexpr const char *kForward = "broadcast_add.forward", *kSynopsis = "y = a + b, b alike over what it has not";
};
}  // namespace contract

using MultiplyForward = BroadcastForward<contract::Product>;
using BroadcastAddForward = BroadcastForward<contract::RepeatedSum>;

// Of a.
struct MultiplyBackwardData {
  enum : uint32_t { kDa, kDy, kB, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kDa], c[kDy]) && contract::is_broadcast(c[kDy], c[kB])); }
  static constexpr const char* kSynopsis = "da = dy b, b alike over what it has not";
  static constexpr KernelInfo kInfo = {
      .op = Op::kMultiply, .pass = Pass::kBackwardData, .name = "multiply.backward_data", .in_place_output = kDa, .in_place_input = kDy,
      .arguments = {contract::act_out("da[N,H,W,C]"), contract::act_in("dy[N,H,W,C]"), contract::act_in("b[N,1,1,C]")}, .shape_fault = fault};
  template <typename Stored>
  static BroadcastArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kDa), .a = c.pointer<Stored>(kDy), .b = c.pointer<Stored>(kB), .shape = contract::broadcast_of(c[kDy], c[kB])};
  }
};

// Of b.
struct MultiplyBackwardWeight {
  enum : uint32_t { kDb, kDy, kA, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(same_shape(c[kDy], c[kA]) && contract::is_broadcast(c[kDy], c[kDb])); }
  static constexpr const char* kSynopsis = "db = sum of dy a over what db has not";
  static constexpr KernelInfo kInfo = {
      .op = Op::kMultiply, .pass = Pass::kBackwardWeight, .name = "multiply.backward_weight",
      .arguments = {contract::act_sum("db[N,1,1,C]"), contract::act_in("dy[N,H,W,C]"), contract::act_in("a[N,H,W,C]"), contract::scratch()},
      .shape_fault = fault};
  template <typename Stored>
  static BroadcastSumArgsOf<Stored> arguments(const RowCall& c) {
    return {.db = c.pointer<Stored>(kDb), .dy = c.pointer<Stored>(kDy), .a = c.pointer<Stored>(kA), .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = contract::broadcast_of(c[kDy], c[kDb]), .accumulate_db = c.adds(kDb)};
  }
};

// Of b; that of a is dy.
struct BroadcastAddBackward {
  enum : uint32_t { kDb, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(contract::is_broadcast(c[kDy], c[kDb])); }
  static constexpr const char* kSynopsis = "db = sum of dy over what db has not";
  static constexpr KernelInfo kInfo = {
      .op = Op::kBroadcastAdd, .pass = Pass::kBackward, .name = "broadcast_add.backward",
      .arguments = {contract::act_sum("db[N,1,1,C]"), contract::act_in("dy[N,H,W,C]"), contract::scratch()}, .shape_fault = fault};
  template <typename Stored>
  static BroadcastSumArgsOf<Stored> arguments(const RowCall& c) {
    return {.db = c.pointer<Stored>(kDb), .dy = c.pointer<Stored>(kDy), .a = nullptr, .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch), .shape = contract::broadcast_of(c[kDy], c[kDb]), .accumulate_db = c.adds(kDb)};
  }
};

using BroadcastKernels = TypeList<MultiplyForward, MultiplyBackwardData, MultiplyBackwardWeight, BroadcastAddForward, BroadcastAddBackward>;

}  // namespace reprise
