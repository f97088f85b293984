// Products and sums of two activations, the second of which may be broadcast as in NumPy and ONNX:
// along missing leading dimensions and along dimensions of size 1. Examples: the gate of
// squeeze-and-excitation is [N,1,1,C], a layer scale [C], learned positions [1,T,C].
//
// Op::kAdd (elementwise.h) adds equal shapes; the gradients of its inputs are dy.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// The shapes of a and b as five sizes. Neighbouring dimensions are joined if b has all of them or
// if b lacks all of them. b has only the first, the third and the last of the five sizes:
//   y[o,r,i,s,c] = a[o,r,i,s,c] b[o,i,c]
// Dimensions are joined from the last one on, so that five sizes suffice for four dimensions.
// `columns` is 1 if b is broadcast along the last dimension.
struct Broadcast {
  // The sizes of o, r, i, s and c.
  uint64_t outer = 1, repeats = 1, inner = 1, rows = 1, columns = 1;

  // Returns the number of elements of a.
  constexpr uint64_t elements() const { return outer * repeats * inner * rows * columns; }
  // Returns the number of segments of b; each has `columns` elements.
  constexpr uint64_t segments() const { return outer * inner; }
  // Returns how often each segment of b is used.
  constexpr uint64_t repeated() const { return repeats * rows; }
  // Returns the segment of b that belongs to run `run` of a. A run is `rows` consecutive rows of a,
  // each of `columns` elements.
  constexpr uint64_t segment_of(uint64_t run) const { return run / (repeats * inner) * inner + run % inner; }
  // Returns the run of a that uses segment `segment` for the `repeat`-th time, counted from 0.
  constexpr uint64_t run_of(uint64_t segment, uint64_t repeat) const {
    return (segment / inner * repeats + repeat) * inner + segment % inner;
  }
};

namespace contract {
// Returns the size of b's dimension that is aligned with dimension d of a; 1 if b has none.
constexpr uint32_t dimension_under(const Tensor& a, const Tensor& b, uint32_t d) {
  const uint32_t missing = uint32_t{a.rank} - b.rank;
  return d < missing ? 1 : b.shape[d - missing];
}
// True if b can be broadcast to the shape of a.
constexpr bool is_broadcast(const Tensor& a, const Tensor& b) {
  if (b.rank > a.rank) return false;
  for (uint32_t d = 0; d < a.rank; ++d) {
    const uint32_t own = dimension_under(a, b, d);
    if (own != 1 && own != a.shape[d]) return false;
  }
  return true;
}
// Returns the five sizes; is_broadcast(a, b) must be true.
constexpr Broadcast broadcast_of(const Tensor& a, const Tensor& b) {
  uint64_t sizes[5] = {1, 1, 1, 1, 1};
  uint32_t at = 4;  // index of the size that is being multiplied; b has the sizes with an even index
  for (uint32_t d = a.rank; d-- > 0;) {
    if (a.shape[d] == 1) continue;
    const bool repeated = dimension_under(a, b, d) == 1;
    if (repeated == (at % 2 == 0)) --at;
    sizes[at] *= a.shape[d];
  }
  return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
}
}  // namespace contract

// The arguments of y = f(a, b). The gradient of a has them too: y is then da, and a is dy.
template <typename Stored>
struct BroadcastArgsOf {
  Stored* y;        // a's shape; may be a
  const Stored* a;  // y's shape
  const Stored* b;  // a's shape, or a shape that is broadcast to it
  Broadcast shape;  // Sizes of a and b.
};
// The gradient of b: the sum of the products dy a over the broadcast dimensions, or of dy if a is
// null.
template <typename Stored>
struct BroadcastSumArgsOf {
  Stored* db;        // b's shape
  const Stored* dy;  // a's shape
  const Stored* a;   // dy's shape, or null
  void* scratch;
  uint64_t scratch_bytes;
  Broadcast shape;  // Sizes of dy and db.
  bool accumulate_db;
};

// The forward kernel of an `Operation`, which provides the op, the name and the synopsis.
template <typename Operation>
struct BroadcastForward {
  enum : uint32_t { kY, kA, kB, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(same_shape(c[kY], c[kA]) && contract::is_broadcast(c[kA], c[kB]));
  }
  static constexpr const char* kSynopsis = Operation::kSynopsis;
  static constexpr KernelInfo kInfo = {.op = Operation::kOp,
                                       .pass = Pass::kForward,
                                       .name = Operation::kForward,
                                       .in_place_output = kY,
                                       .in_place_input = kA,
                                       .arguments = {contract::act_out("y[N,H,W,C]"), contract::act_in("a[N,H,W,C]"),
                                                     contract::act_in("b[N,1,1,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static BroadcastArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .a = c.pointer<Stored>(kA),
            .b = c.pointer<Stored>(kB),
            .shape = contract::broadcast_of(c[kA], c[kB])};
  }
};

namespace contract {
// The operation y = a b.
struct Product {
  static constexpr Op kOp = Op::kMultiply;
  static constexpr const char *kForward = "multiply.forward", *kSynopsis = "y = a b, b alike over what it has not";
};
// The operation y = a + b.
struct RepeatedSum {
  static constexpr Op kOp = Op::kBroadcastAdd;
  static constexpr const char *kForward = "broadcast_add.forward",
                              *kSynopsis = "y = a + b, b alike over what it has not";
};
}  // namespace contract

using MultiplyForward = BroadcastForward<contract::Product>;
using BroadcastAddForward = BroadcastForward<contract::RepeatedSum>;

// The gradient of a in y = a b.
struct MultiplyBackwardData {
  enum : uint32_t { kDa, kDy, kB, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(same_shape(c[kDa], c[kDy]) && contract::is_broadcast(c[kDy], c[kB]));
  }
  static constexpr const char* kSynopsis = "da = dy b, b alike over what it has not";
  static constexpr KernelInfo kInfo = {.op = Op::kMultiply,
                                       .pass = Pass::kBackwardData,
                                       .name = "multiply.backward_data",
                                       .in_place_output = kDa,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("da[N,H,W,C]"), contract::act_in("dy[N,H,W,C]"),
                                                     contract::act_in("b[N,1,1,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static BroadcastArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kDa),
            .a = c.pointer<Stored>(kDy),
            .b = c.pointer<Stored>(kB),
            .shape = contract::broadcast_of(c[kDy], c[kB])};
  }
};

// The gradient of b in y = a b.
struct MultiplyBackwardWeight {
  enum : uint32_t { kDb, kDy, kA, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(same_shape(c[kDy], c[kA]) && contract::is_broadcast(c[kDy], c[kDb]));
  }
  static constexpr const char* kSynopsis = "db = sum of dy a over what db has not";
  static constexpr KernelInfo kInfo = {.op = Op::kMultiply,
                                       .pass = Pass::kBackwardWeight,
                                       .name = "multiply.backward_weight",
                                       .arguments = {contract::act_sum("db[N,1,1,C]"), contract::act_in("dy[N,H,W,C]"),
                                                     contract::act_in("a[N,H,W,C]"), contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static BroadcastSumArgsOf<Stored> arguments(const RowCall& c) {
    return {.db = c.pointer<Stored>(kDb),
            .dy = c.pointer<Stored>(kDy),
            .a = c.pointer<Stored>(kA),
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = contract::broadcast_of(c[kDy], c[kDb]),
            .accumulate_db = c.adds(kDb)};
  }
};

// The gradient of b in y = a + b; the gradient of a is dy.
struct BroadcastAddBackward {
  enum : uint32_t { kDb, kDy, kScratch, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::require(contract::is_broadcast(c[kDy], c[kDb])); }
  static constexpr const char* kSynopsis = "db = sum of dy over what db has not";
  static constexpr KernelInfo kInfo = {.op = Op::kBroadcastAdd,
                                       .pass = Pass::kBackward,
                                       .name = "broadcast_add.backward",
                                       .arguments = {contract::act_sum("db[N,1,1,C]"), contract::act_in("dy[N,H,W,C]"),
                                                     contract::scratch()},
                                       .shape_fault = fault};
  template <typename Stored>
  static BroadcastSumArgsOf<Stored> arguments(const RowCall& c) {
    return {.db = c.pointer<Stored>(kDb),
            .dy = c.pointer<Stored>(kDy),
            .a = nullptr,
            .scratch = c.pointer<void>(kScratch),
            .scratch_bytes = c.bytes(kScratch),
            .shape = contract::broadcast_of(c[kDy], c[kDb]),
            .accumulate_db = c.adds(kDb)};
  }
};

using BroadcastKernels =
    TypeList<MultiplyForward, MultiplyBackwardData, MultiplyBackwardWeight, BroadcastAddForward, BroadcastAddBackward>;

}  // namespace reprise
