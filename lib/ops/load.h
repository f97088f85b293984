// Loads: a frozen parameter, or some rows of it, comes from the file of weights into a slot while other rows run. A start and a wait name the same
// slot and the same parameter; between them the slot is in flight. The port's file of weights carries them (carriers.h). A slot is loaded once: who
// wants the parameter again after the slot's end loads it into another one, so that no read can find another weight than it was planned for.
#pragma once

#include "lib/kernel_info.h"

namespace reprise {

struct LoadStart {
  enum : uint32_t { kW, kFrom, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::same_bytes(c, 2); }
  static constexpr const char* kSynopsis = "w = from begins";
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

// The rows of a table that tokens name, one for each token, M = B T: what embedding.forward needs of a table that stays in the file. It is given
// `rows` as its table and `places` as its tokens: place i is i, or -1 where the token is not in [0,V), which the embedding then reports. `places` is
// there when the start returns, `rows` after the wait.
namespace contract {
constexpr Fault gather_fault(const ShapedCall& c) {
  const Tensor &rows = c[0], &places = c[1], &table = c[2], &tokens = c[3];
  if (rows.dtype != table.dtype) return Fault::kDType;
  const bool alike = same_shape(places, tokens) && table.rank == 2 && rows.rank == 2 && rows.shape[0] == tokens.elements();
  return shape::require(alike && rows.shape[1] == table.shape[1]);
}
}  // namespace contract

struct GatherStart {
  enum : uint32_t { kRows, kPlaces, kTable, kTokens, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::gather_fault(c); }
  static constexpr const char* kSynopsis = "rows = table[tokens] begins; places = position in tokens";
  static constexpr KernelInfo kInfo = {
      .op = Op::kGather, .pass = Pass::kStart, .name = "gather.start", .carrier = Carrier::kWeights,
      .arguments = {contract::out("rows[M,C]", Storage::kAny), contract::out("places[B,T]", Storage::kI32), contract::in("table[V,C]", Storage::kAny),
                    contract::in("tokens[B,T]", Storage::kI32)},
      .shape_fault = fault};
};

struct GatherWait {
  enum : uint32_t { kRows, kPlaces, kTable, kTokens, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::gather_fault(c); }
  static constexpr const char* kSynopsis = "rows = table[tokens] has ended; places = position in tokens";
  static constexpr KernelInfo kInfo = {
      .op = Op::kGather, .pass = Pass::kWait, .name = "gather.wait", .carrier = Carrier::kWeights,
      .arguments = {contract::updated("rows[M,C]", Storage::kAny), contract::updated("places[B,T]", Storage::kI32), contract::in("table[V,C]", Storage::kAny),
                    contract::in("tokens[B,T]", Storage::kI32)},
      .shape_fault = fault};
};

using LoadKernels = TypeList<LoadStart, LoadWait, GatherStart, GatherWait>;

}  // namespace reprise
