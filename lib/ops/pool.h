// Max pooling, which saves where each maximum was found; the mean by window; and the mean over an image or a sequence.
#pragma once

#include "lib/row_call.h"

namespace reprise {

struct PoolShape {
  uint32_t N, H, W, C, P, Q;
  WindowAttribute window;
};
constexpr PoolShape pool_shape(const Tensor& x, const Tensor& y, const WindowAttribute& window) {
  return {.N = x.shape[0], .H = x.shape[1], .W = x.shape[2], .C = x.shape[3], .P = y.shape[1], .Q = y.shape[2], .window = window};
}

// Padding never wins. index is r * S + s of the first maximum in the window.
template <typename Stored>
struct MaxPoolForwardArgsOf {
  Stored* y;        // [N,P,Q,C]
  uint8_t* index;  // [N,P,Q,C]
  const Stored* x;  // [N,H,W,C]
  PoolShape shape;
};
template <typename Stored>
struct MaxPoolBackwardArgsOf {
  Stored* dx;             // [N,H,W,C]
  const uint8_t* index;  // [N,P,Q,C]
  const Stored* dy;       // [N,P,Q,C]
  PoolShape shape;
  bool accumulate_dx;
};
// Forward: y = mean of x by window: the sum of what lies inside x, divided by how many these are, or by all places of a window where the attribute
// counts padding. Backward: y is dy, x is dx.
template <typename Stored>
struct AvgPoolArgsOf {
  Stored* out;       // forward [N,P,Q,C], backward [N,H,W,C]
  const Stored* in;  // the other one
  PoolShape shape;
  bool accumulate_out;  // backward only
};
template <typename Stored>
struct GlobalPoolArgsOf {  // forward: y = mean over H, W of x; of sequences [N,T,C] HW is T. backward: y is dy, x is dx.
  Stored* out;
  const Stored* in;
  uint32_t N, HW, C;
  bool accumulate_out;  // backward only
  // [N,T] or null. Not null: the mean is of each sequence's first document alone. A text that is padded to the length of others has its padding
  // behind it as another document (lib/ops/attention.h, which says what starts may be).
  const int32_t* document_start = nullptr;
};
// The positions of the first document of T: from 0 to the first whose document starts behind 0; 1 or more.
constexpr uint32_t first_document_positions(const int32_t* document_start, uint32_t T) {
  uint32_t inside = 0, behind = T;
  while (behind - inside > 1) {
    const uint32_t middle = inside + (behind - inside) / 2;
    (document_start[middle] == 0 ? inside : behind) = middle;
  }
  return behind;
}
template <typename Stored>
constexpr uint32_t pooled_positions(const GlobalPoolArgsOf<Stored>& args, uint64_t n) {
  return args.document_start == nullptr ? args.HW : first_document_positions(args.document_start + n * args.HW, args.HW);
}

namespace contract {
// A window that lies wholly in the padding has no maximum and no mean. Channels are pooled each by itself.
constexpr Fault pool_fault(const WindowAttribute& a, const Tensor& x, const Tensor& y) {
  if (!shape::slides(a, x, y) || x.shape[3] != y.shape[3]) return Fault::kShape;
  return shape::require(a.rows().always_meets(x.shape[1], y.shape[1]) && a.columns().always_meets(x.shape[2], y.shape[2]) && a.groups == 1,
                        Fault::kAttribute);
}
// The index of a maximum must fit a byte.
constexpr Fault max_pool_fault(const WindowAttribute& a, const Tensor& x, const Tensor& y, const Tensor& index) {
  if (uint32_t{a.kernel_h} * a.kernel_w > 256) return Fault::kAttribute;
  const Fault fault = pool_fault(a, x, y);
  return fault != Fault::kNone ? fault : shape::require(same_shape(index, y));
}
// Images [N,H,W,C] or sequences [N,T,C], and a row for each.
constexpr bool are_pooled(const Tensor& whole, const Tensor& rows) {
  return (whole.rank == 4 || whole.rank == 3) && rows.rank == 2 && rows.shape[0] == whole.shape[0] && rows.shape[1] == whole.last_dimension();
}
// Documents are of sequences.
constexpr bool has_documents_of(const ShapedCall& c, const Tensor& whole, uint32_t document_start) {
  return !c.has(document_start) || (whole.rank == 3 && shape::is_matrix(c, document_start, whole.shape[0], whole.shape[1]));
}
template <typename Stored>
GlobalPoolArgsOf<Stored> global_pool_arguments(const RowCall& c, uint32_t whole, uint32_t document_start) {
  const uint32_t N = c.dimension(whole, 0);
  return {.out = c.pointer<Stored>(0), .in = c.pointer<Stored>(1), .N = N, .HW = static_cast<uint32_t>(c.leading(whole) / N), .C = c.last(whole),
          .accumulate_out = c.adds(0), .document_start = c.i32(document_start)};
}
}  // namespace contract

struct MaxPoolForward {
  enum : uint32_t { kY, kIndex, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::max_pool_fault(c.attribute<WindowAttribute>(), c[kX], c[kY], c[kIndex]); }
  static constexpr const char* kSynopsis = "y = max of x by window; index = its first place there";
  static constexpr KernelInfo kInfo = {
      .op = Op::kMaxPool, .pass = Pass::kForward, .name = "max_pool.forward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_out("y[N,P,Q,C]"), contract::out("index[N,P,Q,C]", Storage::kU8), contract::act_in("x[N,H,W,C]")},
      .shape_fault = fault};
  template <typename Stored>
  static MaxPoolForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .index = c.u8(kIndex), .x = c.pointer<Stored>(kX),
            .shape = pool_shape(c[kX], c[kY], c.attribute<WindowAttribute>())};
  }
};

struct MaxPoolBackward {
  enum : uint32_t { kDx, kIndex, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::max_pool_fault(c.attribute<WindowAttribute>(), c[kDx], c[kDy], c[kIndex]); }
  static constexpr const char* kSynopsis = "dx[index] = sum of dy";
  static constexpr KernelInfo kInfo = {
      .op = Op::kMaxPool, .pass = Pass::kBackward, .name = "max_pool.backward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::in("index[N,P,Q,C]", Storage::kU8), contract::act_in("dy[N,P,Q,C]")},
      .shape_fault = fault};
  template <typename Stored>
  static MaxPoolBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .index = c.u8(kIndex), .dy = c.pointer<Stored>(kDy),
            .shape = pool_shape(c[kDx], c[kDy], c.attribute<WindowAttribute>()), .accumulate_dx = c.adds(kDx)};
  }
};

struct AvgPoolForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::pool_fault(c.attribute<WindowAttribute>(), c[kX], c[kY]); }
  static constexpr const char* kSynopsis = "y = mean of x by window";
  static constexpr KernelInfo kInfo = {
      .op = Op::kAvgPool, .pass = Pass::kForward, .name = "avg_pool.forward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_out("y[N,P,Q,C]"), contract::act_in("x[N,H,W,C]")}, .shape_fault = fault};
  template <typename Stored>
  static AvgPoolArgsOf<Stored> arguments(const RowCall& c) {
    return {.out = c.pointer<Stored>(kY), .in = c.pointer<Stored>(kX), .shape = pool_shape(c[kX], c[kY], c.attribute<WindowAttribute>()),
            .accumulate_out = false};
  }
};

struct AvgPoolBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::pool_fault(c.attribute<WindowAttribute>(), c[kDx], c[kDy]); }
  static constexpr const char* kSynopsis = "dx = sum of dy / places of its window";
  static constexpr KernelInfo kInfo = {
      .op = Op::kAvgPool, .pass = Pass::kBackward, .name = "avg_pool.backward", .attribute = kAttributeKind<WindowAttribute>,
      .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,P,Q,C]")}, .shape_fault = fault};
  template <typename Stored>
  static AvgPoolArgsOf<Stored> arguments(const RowCall& c) {
    return {.out = c.pointer<Stored>(kDx), .in = c.pointer<Stored>(kDy), .shape = pool_shape(c[kDx], c[kDy], c.attribute<WindowAttribute>()),
            .accumulate_out = c.adds(kDx)};
  }
};

struct GlobalPoolForward {
  enum : uint32_t { kY, kX, kDocumentStart, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::are_pooled(c[kX], c[kY]) && contract::has_documents_of(c, c[kX], kDocumentStart));
  }
  static constexpr const char* kSynopsis = "y = mean of x over H, W, or of its first places by document_start";
  static constexpr KernelInfo kInfo = {
      .op = Op::kGlobalPool, .pass = Pass::kForward, .name = "global_pool.forward",
      .arguments = {contract::act_out("y[N,C]"), contract::act_in("x[N,H,W,C]"), contract::document_start()}, .shape_fault = fault};
  template <typename Stored>
  static GlobalPoolArgsOf<Stored> arguments(const RowCall& c) {
    return contract::global_pool_arguments<Stored>(c, kX, kDocumentStart);
  }
};

struct GlobalPoolBackward {
  enum : uint32_t { kDx, kDy, kDocumentStart, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return shape::require(contract::are_pooled(c[kDx], c[kDy]) && contract::has_documents_of(c, c[kDx], kDocumentStart));
  }
  static constexpr const char* kSynopsis = "dx = dy / (H W), or dy / W in its first places by document_start and 0 from there";
  static constexpr KernelInfo kInfo = {
      .op = Op::kGlobalPool, .pass = Pass::kBackward, .name = "global_pool.backward",
      .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,C]"), contract::document_start()}, .shape_fault = fault};
  template <typename Stored>
  static GlobalPoolArgsOf<Stored> arguments(const RowCall& c) {
    return contract::global_pool_arguments<Stored>(c, kDx, kDocumentStart);
  }
};

using PoolKernels = TypeList<MaxPoolForward, MaxPoolBackward, GlobalPoolForward, GlobalPoolBackward>;
using AvgPoolKernels = TypeList<AvgPoolForward, AvgPoolBackward>;

}  // namespace reprise
