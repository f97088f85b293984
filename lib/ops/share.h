// Broadcasts between the ranks of a plan, while other rows run: x of rank `root`, a tensor of any
// type, is copied to y of every rank. Every rank runs the same rows on its own values. A start and
// a wait name the same y and x; between them y is in flight. The port's Peers carry out the rows
// (carriers.h).
// The complete gradients of micro-batches are sent in this way. Other rows then add them in the
// order of the ranks.
// kShareInPlace broadcasts in place: y and x are the same tensor, a parameter that only its owner
// has updated (StateTensor::owner). Before this broadcast no other row may touch the parameter.
#pragma once

#include "lib/kernel_info.h"

namespace reprise {

struct ShareStart {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "y = x of rank root begins";
  static constexpr KernelInfo kInfo = {.op = Op::kShare,
                                       .pass = Pass::kStart,
                                       .name = "share.start",
                                       .attribute = kAttributeKind<ShareAttribute>,
                                       .carrier = Carrier::kPeers,
                                       .arguments = {contract::out("y[...]", Storage::kAny),
                                                     contract::in("x[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

struct ShareWait {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "y = x of rank root has ended";
  static constexpr KernelInfo kInfo = {.op = Op::kShare,
                                       .pass = Pass::kWait,
                                       .name = "share.wait",
                                       .attribute = kAttributeKind<ShareAttribute>,
                                       .carrier = Carrier::kPeers,
                                       .arguments = {contract::updated("y[...]", Storage::kAny),
                                                     contract::in("x[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

namespace contract {
// Returns kNone if y and x are one tensor, else kAliasing.
constexpr Fault share_in_place_fault(const ShapedCall& c) {
  return c.tensors[0] == c.tensors[1] ? Fault::kNone : Fault::kAliasing;
}
}  // namespace contract

struct ShareInPlaceStart {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::share_in_place_fault(c); }
  static constexpr const char* kSynopsis = "y = x of rank root, in place, begins";
  static constexpr KernelInfo kInfo = {.op = Op::kShareInPlace,
                                       .pass = Pass::kStart,
                                       .name = "spread.start",
                                       .attribute = kAttributeKind<ShareAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .carrier = Carrier::kPeers,
                                       .arguments = {contract::updated("y[...]", Storage::kAny),
                                                     contract::in("x[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

struct ShareInPlaceWait {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::share_in_place_fault(c); }
  static constexpr const char* kSynopsis = "y = x of rank root, in place, has ended";
  static constexpr KernelInfo kInfo = {.op = Op::kShareInPlace,
                                       .pass = Pass::kWait,
                                       .name = "spread.wait",
                                       .attribute = kAttributeKind<ShareAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .carrier = Carrier::kPeers,
                                       .arguments = {contract::updated("y[...]", Storage::kAny),
                                                     contract::in("x[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

using ShareKernels = TypeList<ShareStart, ShareWait, ShareInPlaceStart, ShareInPlaceWait>;

}  // namespace reprise
