// What one process of a plan for several has, and all get: a tensor of any type, while other rows run. Every rank runs the same rows, each on values
// of its own; `root` says whose x becomes y everywhere. A start and a wait name the same y and x; between them y is in flight. The port's Peers carry
// them (carriers.h). Gradients of micro-batches come so from rank to rank, whole, and are added in the order of ranks by rows of their own.
// A spread is the same in place, for a parameter that one rank alone has updated (StateTensor::keeper): no other row may touch it before.
#pragma once

#include "lib/kernel_info.h"

namespace reprise {

struct ShareStart {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "y = x of rank root begins";
  static constexpr KernelInfo kInfo = {
      .op = Op::kShare, .pass = Pass::kStart, .name = "share.start", .attribute = kAttributeKind<ShareAttribute>, .carrier = Carrier::kPeers,
      .arguments = {contract::out("y[...]", Storage::kAny), contract::in("x[...]", Storage::kAny)}, .shape_fault = fault};
};

struct ShareWait {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "y = x of rank root has ended";
  static constexpr KernelInfo kInfo = {
      .op = Op::kShare, .pass = Pass::kWait, .name = "share.wait", .attribute = kAttributeKind<ShareAttribute>, .carrier = Carrier::kPeers,
      .arguments = {contract::updated("y[...]", Storage::kAny), contract::in("x[...]", Storage::kAny)}, .shape_fault = fault};
};

namespace contract {
// y and x are one tensor.
constexpr Fault spread_fault(const ShapedCall& c) { return c.tensors[0] == c.tensors[1] ? Fault::kNone : Fault::kAliasing; }
}  // namespace contract

struct SpreadStart {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::spread_fault(c); }
  static constexpr const char* kSynopsis = "y = x of rank root, in place, begins";
  static constexpr KernelInfo kInfo = {
      .op = Op::kSpread, .pass = Pass::kStart, .name = "spread.start", .attribute = kAttributeKind<ShareAttribute>, .in_place_output = kY,
      .in_place_input = kX, .carrier = Carrier::kPeers,
      .arguments = {contract::updated("y[...]", Storage::kAny), contract::in("x[...]", Storage::kAny)}, .shape_fault = fault};
};

struct SpreadWait {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::spread_fault(c); }
  static constexpr const char* kSynopsis = "y = x of rank root, in place, has ended";
  static constexpr KernelInfo kInfo = {
      .op = Op::kSpread, .pass = Pass::kWait, .name = "spread.wait", .attribute = kAttributeKind<ShareAttribute>, .in_place_output = kY,
      .in_place_input = kX, .carrier = Carrier::kPeers,
      .arguments = {contract::updated("y[...]", Storage::kAny), contract::in("x[...]", Storage::kAny)}, .shape_fault = fault};
};

using ShareKernels = TypeList<ShareStart, ShareWait, SpreadStart, SpreadWait>;

}  // namespace reprise
