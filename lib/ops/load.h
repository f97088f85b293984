// Loads: a frozen parameter comes from the file of weights into a slot while other rows run. A start and a wait name the same slot and the same
// parameter; between them the slot is in flight. The port's file of weights carries them (carriers.h). A slot is loaded once: who wants the
// parameter again after the slot's end loads it into another one, so that no read can find another weight than it was planned for.
#pragma once

#include "lib/kernel_info.h"

namespace reprise {

struct LoadStart {
  enum : uint32_t { kW, kFrom, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "w = from begins, out of the file of weights";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLoad, .pass = Pass::kStart, .name = "load.start", .carrier = Carrier::kWeights,
      .arguments = {contract::out("w[...]", Storage::kAny), contract::in("from[...]", Storage::kAny)}, .shape_fault = fault};
};

struct LoadWait {
  enum : uint32_t { kW, kFrom, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "w = from has ended";
  static constexpr KernelInfo kInfo = {
      .op = Op::kLoad, .pass = Pass::kWait, .name = "load.wait", .carrier = Carrier::kWeights,
      .arguments = {contract::updated("w[...]", Storage::kAny), contract::in("from[...]", Storage::kAny)}, .shape_fault = fault};
};

using LoadKernels = TypeList<LoadStart, LoadWait>;

}  // namespace reprise
