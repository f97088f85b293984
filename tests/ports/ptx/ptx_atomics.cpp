// Executes atomics. A lane's operands are the address, the result (unused by red), and the values.
#include "tests/ports/ptx/ptx_atomics.h"

#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/ports/ptx/ptx_machine.h"

namespace reprise::ptx {
namespace {

enum class Verb : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange, kCompareAndSwap, kIncrement };

template <Verb kVerb, typename T>
T after(T old, T b, T c) {
  if constexpr (kVerb == Verb::kAdd) return old + b;
  if constexpr (kVerb == Verb::kMin) return std::min(old, b);
  if constexpr (kVerb == Verb::kMax) return std::max(old, b);
  if constexpr (kVerb == Verb::kExchange) return b;
  if constexpr (kVerb == Verb::kCompareAndSwap) return old == b ? c : old;
  if constexpr (kVerb == Verb::kIncrement) return old >= b ? T{0} : old + 1;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (kVerb == Verb::kAnd) return old & b;
    if constexpr (kVerb == Verb::kOr) return old | b;
    if constexpr (kVerb == Verb::kXor) return old ^ b;
  }
}

template <Verb kVerb, typename T, bool kReads>
void change(Machine& machine, const Instruction& i, uint32_t lanes) {
  const auto value = [&](uint32_t at, uint32_t lane) {
    if constexpr (sizeof(T) == 8) return std::bit_cast<T>(machine.wide(i.at[at], lane));
    else return std::bit_cast<T>(machine.words(i.at[at])[lane]);
  };
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    const uint64_t base = i.wide_address ? machine.wide(i.at[0], lane) : machine.words(i.at[0])[lane];
    T& memory = *static_cast<T*>(machine.begin_atomic(i, lane, base + i.plus[0], sizeof(T), kReads));
    const T old = memory;
    memory = after<kVerb>(old, value(2, lane), value(3, lane));
    if constexpr (!kReads) continue;
    if constexpr (sizeof(T) == 8) machine.wide(i.at[1], lane) = std::bit_cast<uint64_t>(old);
    else machine.words(i.at[1])[lane] = std::bit_cast<uint32_t>(old);
  }
}

struct Known {
  std::string_view name;  // verb and type, for example "add.u32"
  Step atom, red;
  bool wide;
  uint32_t values;
};
template <Verb kVerb, typename T>
Known known(std::string_view name, uint32_t values = 1) {
  return {name, change<kVerb, T, true>, change<kVerb, T, false>, sizeof(T) == 8, values};
}

const std::vector<Known>& table() {
  static const std::vector<Known> kTable = {
      known<Verb::kAdd, uint32_t>("add.u32"),
      known<Verb::kAdd, uint32_t>("add.s32"),
      known<Verb::kAdd, uint64_t>("add.u64"),
      known<Verb::kAdd, float>("add.f32"),
      known<Verb::kAdd, double>("add.f64"),
      known<Verb::kMin, uint32_t>("min.u32"),
      known<Verb::kMin, int32_t>("min.s32"),
      known<Verb::kMin, uint64_t>("min.u64"),
      known<Verb::kMax, uint32_t>("max.u32"),
      known<Verb::kMax, int32_t>("max.s32"),
      known<Verb::kMax, uint64_t>("max.u64"),
      known<Verb::kAnd, uint32_t>("and.b32"),
      known<Verb::kOr, uint32_t>("or.b32"),
      known<Verb::kXor, uint32_t>("xor.b32"),
      known<Verb::kExchange, uint32_t>("exch.b32"),
      known<Verb::kExchange, uint64_t>("exch.b64"),
      known<Verb::kCompareAndSwap, uint32_t>("cas.b32", 2),
      known<Verb::kCompareAndSwap, uint64_t>("cas.b64", 2),
      known<Verb::kIncrement, uint32_t>("inc.u32"),
  };
  return kTable;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

void fence_device(Machine& machine, const Instruction&, uint32_t lanes) { machine.fence(lanes); }
void fence_block(Machine&, const Instruction&, uint32_t) {}

}  // namespace

// Parses, for example, atom.relaxed.gpu.global.add.u32. An opcode without relaxed, gpu or global
// means the same.
std::optional<Atomic> find_atomic(std::string_view opcode) {
  const bool has_result = take(opcode, "atom.");
  if (!has_result && !take(opcode, "red.")) return std::nullopt;
  take(opcode, "relaxed.");
  take(opcode, "gpu.");
  take(opcode, "global.");
  for (const Known& each : table()) {
    if (each.name == opcode) return Atomic{has_result ? each.atom : each.red, each.wide, has_result, each.values};
  }
  return std::nullopt;
}

Step find_fence(std::string_view opcode) {
  for (const std::string_view device :
       {"membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.acq_rel.sys", "fence.sc.gpu", "fence.sc.sys"}) {
    if (opcode == device) return fence_device;
  }
  for (const std::string_view block : {"membar.cta", "fence.acq_rel.cta", "fence.sc.cta"}) {
    if (opcode == block) return fence_block;
  }
  return nullptr;
}

}  // namespace reprise::ptx
