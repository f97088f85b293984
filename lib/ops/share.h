// What one process of a plan for several has, and all get: a tensor of any type, while other rows run. Every rank runs the same rows, each on values
// of its own; `root` says whose x becomes y everywhere. A start and a wait name the same y and x; between them y is in flight. The port's Peers carry
// them (carriers.h). Gradients of micro-batches come so from rank to rank, whole, and are added in the order of ranks by rows of their own.
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

using ShareKernels = TypeList<ShareStart, ShareWait>;

}  // namespace reprise
