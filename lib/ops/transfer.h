// Copies that go on while other rows run: between memory and a disk block, or from memory to memory. A start and a wait name the same
// destination and source; between them the destination is in flight. dispatch.cpp runs them: their other end is the port's disk.
#pragma once

#include "lib/ops/elementwise.h"

namespace reprise {



struct TransferStart {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = x begins";
  static constexpr KernelInfo kInfo = {
      .op = Op::kTransfer, .pass = Pass::kStart, .name = "transfer.start", .asynchronous = true,
      .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
  template <typename Stored>
  static UnaryArgsOf<Stored> arguments(const RowCall& c) {
    return contract::unary_arguments<Stored>(c, false);
  }
};

struct TransferWait {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = x has ended";
  static constexpr KernelInfo kInfo = {
      .op = Op::kTransfer, .pass = Pass::kWait, .name = "transfer.wait", .asynchronous = true,
      .arguments = {contract::act_updated("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
};

using TransferKernels = TypeList<TransferStart, TransferWait>;

}  // namespace reprise
