// Loads. A frozen parameter, or some of its rows, is read from the file of weights into a slot
// while other rows run. A start and a wait name the same slot and the same parameter; between them
// the slot is in flight. The carrier of streamed weights carries out the rows (carriers.h).
// A slot is loaded once. A parameter that is needed after the end of its slot is loaded into
// another slot. So no row can read another weight than planned.
#pragma once

#include "lib/kernel_info.h"

namespace reprise {

struct LoadStart {
  enum : uint32_t { kW, kFrom, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "w = from begins";
  static constexpr KernelInfo kInfo = {.op = Op::kLoad,
                                       .pass = Pass::kStart,
                                       .name = "load.start",
                                       .carrier = Carrier::kWeights,
                                       .arguments = {contract::out("w[...]", Storage::kAny),
                                                     contract::in("from[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

struct LoadWait {
  enum : uint32_t { kW, kFrom, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "w = from has ended";
  static constexpr KernelInfo kInfo = {.op = Op::kLoad,
                                       .pass = Pass::kWait,
                                       .name = "load.wait",
                                       .carrier = Carrier::kWeights,
                                       .arguments = {contract::updated("w[...]", Storage::kAny),
                                                     contract::in("from[...]", Storage::kAny)},
                                       .shape_fault = fault};
};

// A gather reads, for each of M = B T tokens, the row of a table that the token selects.
// embedding.forward uses a gather if its table is in the file. The embedding's argument `table` is
// then `rows`, and its argument `tokens` is `places`.
// places[i] is i, or -1 if token i is not in [0,V); the embedding then reports the fault. `places`
// is complete when the start returns, `rows` after the wait.
namespace contract {
// Returns the fault of a start or a wait.
constexpr Fault gather_fault(const ShapedCall& c) {
  const Tensor &rows = c[0], &places = c[1], &table = c[2], &tokens = c[3];
  if (rows.dtype != table.dtype) return Fault::kDType;
  const bool alike =
      same_shape(places, tokens) && table.rank == 2 && rows.rank == 2 && rows.shape[0] == tokens.elements();
  return shape::require(alike && rows.shape[1] == table.shape[1]);
}
}  // namespace contract

struct GatherStart {
  enum : uint32_t { kRows, kPlaces, kTable, kTokens, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::gather_fault(c); }
  static constexpr const char* kSynopsis = "rows = table[tokens] begins; places = position in tokens";
  static constexpr KernelInfo kInfo = {.op = Op::kGather,
                                       .pass = Pass::kStart,
                                       .name = "gather.start",
                                       .carrier = Carrier::kWeights,
                                       .arguments = {contract::out("rows[M,C]", Storage::kAny),
                                                     contract::out("places[B,T]", Storage::kI32),
                                                     contract::in("table[V,C]", Storage::kAny),
                                                     contract::in("tokens[B,T]", Storage::kI32)},
                                       .shape_fault = fault};
};

struct GatherWait {
  enum : uint32_t { kRows, kPlaces, kTable, kTokens, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::gather_fault(c); }
  static constexpr const char* kSynopsis = "rows = table[tokens] has ended; places = position in tokens";
  static constexpr KernelInfo kInfo = {.op = Op::kGather,
                                       .pass = Pass::kWait,
                                       .name = "gather.wait",
                                       .carrier = Carrier::kWeights,
                                       .arguments = {contract::updated("rows[M,C]", Storage::kAny),
                                                     contract::updated("places[B,T]", Storage::kI32),
                                                     contract::in("table[V,C]", Storage::kAny),
                                                     contract::in("tokens[B,T]", Storage::kI32)},
                                       .shape_fault = fault};
};

using LoadKernels = TypeList<LoadStart, LoadWait, GatherStart, GatherWait>;

}  // namespace reprise
