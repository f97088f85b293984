// Max pooling, which stores the index of each maximum; average pooling over each window; and the
// mean over an image or a sequence.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// The sizes of a pool: N images of C channels, input H x W, output P x Q.
struct PoolShape {
  uint32_t N, H, W, C, P, Q;
  WindowAttribute window;
};
// Returns the sizes of the pool from x to y.
constexpr PoolShape pool_shape(const Tensor& x, const Tensor& y, const WindowAttribute& window) {
  return {.N = x.shape[0],
          .H = x.shape[1],
          .W = x.shape[2],
          .C = x.shape[3],
          .P = y.shape[1],
          .Q = y.shape[2],
          .window = window};
}

// y = the maximum of each window; padding is never the maximum. `index` is r * S + s, where r and s
// are the row and the column of the first maximum in the window.
template <typename Stored>
struct MaxPoolForwardArgsOf {
  Stored* y;        // [N,P,Q,C]
  uint8_t* index;  // [N,P,Q,C]
  const Stored* x;  // [N,H,W,C]
  PoolShape shape;
};
// dx (+)= dy at the elements that were the maxima
template <typename Stored>
struct MaxPoolBackwardArgsOf {
  Stored* dx;             // [N,H,W,C]
  const uint8_t* index;  // [N,P,Q,C]
  const Stored* dy;       // [N,P,Q,C]
  PoolShape shape;
  bool accumulate_dx;
};
// Forward: y = the mean of x in each window: the sum of the elements inside x, divided by their
// number, or by the number of taps of the window if the attribute counts padding. Backward: `in` is
// dy and `out` is dx.
template <typename Stored>
struct AvgPoolArgsOf {
  Stored* out;       // forward [N,P,Q,C], backward [N,H,W,C]
  const Stored* in;  // forward [N,H,W,C], backward [N,P,Q,C]
  PoolShape shape;
  bool accumulate_out;  // backward only
};
// The mean over H, W of each image, or over the T = HW positions of each sequence [N,T,C].
// Backward: `in` is dy, `out` is dx.
template <typename Stored>
struct GlobalPoolArgsOf {
  Stored* out;       // forward [N,C], backward [N,H,W,C]
  const Stored* in;  // forward [N,H,W,C], backward [N,C]
  uint32_t N, HW, C;
  bool accumulate_out;  // backward only
  // [N,T] or null. Not null: the mean is over each sequence's first document only. Padding after a
  // shorter text is another document (lib/ops/attention.h states which starts are valid).
  const int32_t* document_start = nullptr;
};
// Returns the number of positions of the first document, at least 1. The first document ends before
// the first position whose document starts after 0.
constexpr uint32_t first_document_positions(const int32_t* document_start, uint32_t T) {
  uint32_t inside = 0, behind = T;
  while (behind - inside > 1) {
    const uint32_t middle = inside + (behind - inside) / 2;
    (document_start[middle] == 0 ? inside : behind) = middle;
  }
  return behind;
}
// Returns the number of positions over which the mean of sequence `n` is taken.
template <typename Stored>
constexpr uint32_t pooled_positions(const GlobalPoolArgsOf<Stored>& args, uint64_t n) {
  return args.document_start == nullptr ? args.HW
                                        : first_document_positions(args.document_start + n * args.HW, args.HW);
}

namespace contract {
// Returns the fault of a pool from x to y. A window that is in the padding only has no maximum and
// no mean, so it is a fault. Groups of channels are not supported.
constexpr Fault pool_fault(const WindowAttribute& a, const Tensor& x, const Tensor& y) {
  if (!shape::slides(a, x, y) || x.shape[3] != y.shape[3]) return Fault::kShape;
  return shape::require(a.rows().always_meets(x.shape[1], y.shape[1]) &&
                            a.columns().always_meets(x.shape[2], y.shape[2]) && a.groups == 1,
                        Fault::kAttribute);
}
// Returns the fault of a max pool. The index of a maximum must fit in a byte.
constexpr Fault max_pool_fault(const WindowAttribute& a, const Tensor& x, const Tensor& y, const Tensor& index) {
  if (uint32_t{a.kernel_h} * a.kernel_w > 256) return Fault::kAttribute;
  const Fault fault = pool_fault(a, x, y);
  return fault != Fault::kNone ? fault : shape::require(same_shape(index, y));
}
// True if `whole` is images [N,H,W,C] or sequences [N,T,C], and `rows` has one row for each image
// or sequence.
constexpr bool are_pooled(const Tensor& whole, const Tensor& rows) {
  return (whole.rank == 4 || whole.rank == 3) && rows.rank == 2 && rows.shape[0] == whole.shape[0] &&
         rows.shape[1] == whole.last_dimension();
}
// True if there are no document starts, or if `whole` is sequences with a start for each position.
constexpr bool has_documents_of(const ShapedCall& c, const Tensor& whole, uint32_t document_start) {
  return !c.has(document_start) ||
         (whole.rank == 3 && shape::is_matrix(c, document_start, whole.shape[0], whole.shape[1]));
}
// Returns the arguments of global pooling; `whole` and `document_start` are indices of arguments.
template <typename Stored>
GlobalPoolArgsOf<Stored> global_pool_arguments(const RowCall& c, uint32_t whole, uint32_t document_start) {
  const uint32_t N = c.dimension(whole, 0);
  return {.out = c.pointer<Stored>(0),
          .in = c.pointer<Stored>(1),
          .N = N,
          .HW = static_cast<uint32_t>(c.leading(whole) / N),
          .C = c.last(whole),
          .accumulate_out = c.adds(0),
          .document_start = c.i32(document_start)};
}
}  // namespace contract

struct MaxPoolForward {
  enum : uint32_t { kY, kIndex, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::max_pool_fault(c.attribute<WindowAttribute>(), c[kX], c[kY], c[kIndex]);
  }
  static constexpr const char* kSynopsis = "y = max of x by window; index = its first place there";
  static constexpr KernelInfo kInfo = {.op = Op::kMaxPool,
                                       .pass = Pass::kForward,
                                       .name = "max_pool.forward",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_out("y[N,P,Q,C]"),
                                                     contract::out("index[N,P,Q,C]", Storage::kU8),
                                                     contract::act_in("x[N,H,W,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static MaxPoolForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .index = c.u8(kIndex), .x = c.pointer<Stored>(kX),
            .shape = pool_shape(c[kX], c[kY], c.attribute<WindowAttribute>())};
  }
};

struct MaxPoolBackward {
  enum : uint32_t { kDx, kIndex, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::max_pool_fault(c.attribute<WindowAttribute>(), c[kDx], c[kDy], c[kIndex]);
  }
  static constexpr const char* kSynopsis = "dx[index] = sum of dy";
  static constexpr KernelInfo kInfo = {.op = Op::kMaxPool,
                                       .pass = Pass::kBackward,
                                       .name = "max_pool.backward",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_sum("dx[N,H,W,C]"),
                                                     contract::in("index[N,P,Q,C]", Storage::kU8),
                                                     contract::act_in("dy[N,P,Q,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static MaxPoolBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .index = c.u8(kIndex), .dy = c.pointer<Stored>(kDy),
            .shape = pool_shape(c[kDx], c[kDy], c.attribute<WindowAttribute>()), .accumulate_dx = c.adds(kDx)};
  }
};

struct AvgPoolForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::pool_fault(c.attribute<WindowAttribute>(), c[kX], c[kY]);
  }
  static constexpr const char* kSynopsis = "y = mean of x by window";
  static constexpr KernelInfo kInfo = {.op = Op::kAvgPool,
                                       .pass = Pass::kForward,
                                       .name = "avg_pool.forward",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_out("y[N,P,Q,C]"), contract::act_in("x[N,H,W,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static AvgPoolArgsOf<Stored> arguments(const RowCall& c) {
    return {.out = c.pointer<Stored>(kY),
            .in = c.pointer<Stored>(kX),
            .shape = pool_shape(c[kX], c[kY], c.attribute<WindowAttribute>()),
            .accumulate_out = false};
  }
};

struct AvgPoolBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::pool_fault(c.attribute<WindowAttribute>(), c[kDx], c[kDy]);
  }
  static constexpr const char* kSynopsis = "dx = sum of dy / places of its window";
  static constexpr KernelInfo kInfo = {.op = Op::kAvgPool,
                                       .pass = Pass::kBackward,
                                       .name = "avg_pool.backward",
                                       .attribute = kAttributeKind<WindowAttribute>,
                                       .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,P,Q,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static AvgPoolArgsOf<Stored> arguments(const RowCall& c) {
    return {.out = c.pointer<Stored>(kDx),
            .in = c.pointer<Stored>(kDy),
            .shape = pool_shape(c[kDx], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_out = c.adds(kDx)};
  }
};

struct GlobalPoolForward {
  enum : uint32_t { kY, kX, kDocumentStart, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::are_pooled(c[kX], c[kY]) && contract::has_documents_of(c, c[kX], kDocumentStart));
  }
  static constexpr const char* kSynopsis = "y = mean of x over H, W, or of its first places by document_start";
  static constexpr KernelInfo kInfo = {.op = Op::kGlobalPool,
                                       .pass = Pass::kForward,
                                       .name = "global_pool.forward",
                                       .arguments = {contract::act_out("y[N,C]"), contract::act_in("x[N,H,W,C]"),
                                                     contract::document_start()},
                                       .shape_fault = fault};
  template <typename Stored>
  static GlobalPoolArgsOf<Stored> arguments(const RowCall& c) {
    return contract::global_pool_arguments<Stored>(c, kX, kDocumentStart);
  }
};

struct GlobalPoolBackward {
  enum : uint32_t { kDx, kDy, kDocumentStart, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::are_pooled(c[kDx], c[kDy]) &&
                          contract::has_documents_of(c, c[kDx], kDocumentStart));
  }
  static constexpr const char* kSynopsis =
      "dx = dy / (H W), or dy / W in its first places by document_start and 0 from there";
  static constexpr KernelInfo kInfo = {.op = Op::kGlobalPool,
                                       .pass = Pass::kBackward,
                                       .name = "global_pool.backward",
                                       .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,C]"),
                                                     contract::document_start()},
                                       .shape_fault = fault};
  template <typename Stored>
  static GlobalPoolArgsOf<Stored> arguments(const RowCall& c) {
    return contract::global_pool_arguments<Stored>(c, kDx, kDocumentStart);
  }
};

using PoolKernels = TypeList<MaxPoolForward, MaxPoolBackward, GlobalPoolForward, GlobalPoolBackward>;
using AvgPoolKernels = TypeList<AvgPoolForward, AvgPoolBackward>;

}  // namespace reprise
