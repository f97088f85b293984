// Moves a lane's bytes between memory and registers.
#include "tests/ports/ptx/ptx_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/ports/ptx/ptx_machine.h"

namespace reprise::ptx {
namespace {

enum class Space : uint8_t { kGlobal, kShared, kLocal, kParameter };

uint64_t address_of(Machine& machine, const Instruction& i, uint32_t lane) {
  const uint64_t base = i.wide_address ? machine.wide(i.at[0], lane) : machine.words(i.at[0])[lane];
  return base + i.plus[0];
}

void put_elements(Machine& machine, const Instruction& i, uint32_t lane, const unsigned char* bytes) {
  for (uint32_t k = 0; k < i.count; ++k) {
    uint64_t value = 0;
    std::memcpy(&value, bytes + k * i.bytes, i.bytes);
    if (i.is_signed && i.bytes < 8) {
      const uint32_t unused = 64 - 8u * i.bytes;
      value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
    }
    if (i.wide) machine.wide(i.at[k + 1], lane) = value;
    else machine.words(i.at[k + 1])[lane] = static_cast<uint32_t>(value);
  }
}

void get_elements(Machine& machine, const Instruction& i, uint32_t lane, unsigned char* bytes) {
  for (uint32_t k = 0; k < i.count; ++k) {
    const uint64_t value = i.wide ? machine.wide(i.at[k + 1], lane) : machine.words(i.at[k + 1])[lane];
    std::memcpy(bytes + k * i.bytes, &value, i.bytes);
  }
}

template <Space kSpace>
void load(Machine& machine, const Instruction& i, uint32_t lanes) {
  const uint32_t bytes = uint32_t{i.count} * i.bytes;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    const uint64_t address = address_of(machine, i, lane);
    unsigned char value[32];
    if constexpr (kSpace == Space::kGlobal) machine.load_global(i, lane, address, bytes, value);
    if constexpr (kSpace == Space::kShared) machine.load_shared(i, lane, address, bytes, value);
    if constexpr (kSpace == Space::kParameter) machine.load_parameter(i, lane, address, bytes, value);
    if constexpr (kSpace == Space::kLocal) std::memcpy(value, machine.local(i, lane, address, bytes), bytes);
    put_elements(machine, i, lane, value);
  }
}

template <Space kSpace>
void store(Machine& machine, const Instruction& i, uint32_t lanes) {
  const uint32_t bytes = uint32_t{i.count} * i.bytes;
  for (uint32_t left = lanes; left != 0; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(left));
    const uint64_t address = address_of(machine, i, lane);
    unsigned char value[32];
    get_elements(machine, i, lane, value);
    if constexpr (kSpace == Space::kGlobal) machine.store_global(i, lane, address, bytes, value);
    if constexpr (kSpace == Space::kShared) machine.store_shared(i, lane, address, bytes, value);
    if constexpr (kSpace == Space::kLocal) std::memcpy(machine.local(i, lane, address, bytes), value, bytes);
  }
}

std::string_view take_part(std::string_view& rest) {
  const size_t dot = rest.find('.');
  const std::string_view part = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return part;
}

struct Type {
  std::string_view name;
  uint8_t bytes;
  bool is_signed;
};
constexpr Type kTypes[] = {{"u8", 1, false},  {"s8", 1, true},   {"b8", 1, false},  {"u16", 2, false},
                           {"s16", 2, true},  {"b16", 2, false}, {"u32", 4, false}, {"s32", 4, true},
                           {"b32", 4, false}, {"f32", 4, false}, {"u64", 8, false}, {"s64", 8, false},
                           {"b64", 8, false}, {"f64", 8, false}};

}  // namespace

// Parses, for example, ld.global.v4.f32: verb, space, number of elements, type. If there is no
// space, the address is generic, as nvcc writes for pointers that are loaded from memory. A generic
// address counts as global, because no supported instruction makes one of shared memory
// (cvta.shared is unknown).
std::optional<MemoryAccess> find_access(std::string_view opcode) {
  MemoryAccess access;
  const std::string_view verb = take_part(opcode);
  if (verb != "ld" && verb != "st") return std::nullopt;
  access.is_load = verb == "ld";
  std::string_view part = take_part(opcode);
  const bool is_generic =
      part == "v2" || part == "v4" || std::ranges::any_of(kTypes, [&](const Type& type) { return type.name == part; });
  const std::string_view space = is_generic ? "global" : part;
  if (!is_generic) part = take_part(opcode);
  if (space == "global") {
    access.step = access.is_load ? load<Space::kGlobal> : store<Space::kGlobal>;
  } else if (space == "shared") {
    access.step = access.is_load ? load<Space::kShared> : store<Space::kShared>;
  } else if (space == "local") {
    access.step = access.is_load ? load<Space::kLocal> : store<Space::kLocal>;
  } else if (space == "param" && access.is_load) {
    access.step = load<Space::kParameter>;
  } else {
    return std::nullopt;
  }
  if (part == "nc" && access.is_load && space == "global") part = take_part(opcode);
  if (part == "v2" || part == "v4") {
    access.count = part == "v2" ? 2 : 4;
    part = take_part(opcode);
  }
  for (const Type& type : kTypes) {
    if (type.name != part || !opcode.empty() || access.count * type.bytes > 16) continue;
    access.bytes = type.bytes;
    access.is_signed = type.is_signed;
    return access;
  }
  return std::nullopt;
}

// ---- parts of a register ----

void join_parts(Machine& machine, const Instruction& i, uint32_t lanes) {
  const uint64_t part = (uint64_t{1} << 8 * i.bytes) - 1;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    uint64_t whole = 0;
    for (uint32_t k = 0; k < i.count; ++k) whole |= (machine.words(i.at[k + 1])[lane] & part) << 8 * i.bytes * k;
    if (i.wide) machine.wide(i.at[0], lane) = whole;
    else machine.words(i.at[0])[lane] = static_cast<uint32_t>(whole);
  }
}

void split_parts(Machine& machine, const Instruction& i, uint32_t lanes) {
  const uint64_t part = (uint64_t{1} << 8 * i.bytes) - 1;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const uint64_t whole = i.wide ? machine.wide(i.at[0], lane) : machine.words(i.at[0])[lane];
    for (uint32_t k = 0; k < i.count; ++k)
      machine.words(i.at[k + 1])[lane] = static_cast<uint32_t>(whole >> 8 * i.bytes * k & part);
  }
}

}  // namespace reprise::ptx
