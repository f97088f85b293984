// Copies of tensors of any type while other rows run: between memory and a block of the second
// level, or within memory. A start and a wait name the same destination and source; between them
// the destination is in flight. The carrier of the plan's second level carries out the rows
// (carriers.h).
#pragma once

#include "lib/kernel_info.h"

namespace reprise {

struct TransferStart {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "y = x begins";
  static constexpr KernelInfo kInfo = {.op = Op::kTransfer,
                                       .pass = Pass::kStart,
                                       .name = "transfer.start",
                                       .carrier = Carrier::kSpill,
                                       .arguments = {contract::out("y[...]", Storage::kAny),
                                                     contract::in("x[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

struct TransferWait {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "y = x has ended";
  static constexpr KernelInfo kInfo = {.op = Op::kTransfer,
                                       .pass = Pass::kWait,
                                       .name = "transfer.wait",
                                       .carrier = Carrier::kSpill,
                                       .arguments = {contract::updated("y[...]", Storage::kAny),
                                                     contract::in("x[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

using TransferKernels = TypeList<TransferStart, TransferWait>;

}  // namespace reprise
