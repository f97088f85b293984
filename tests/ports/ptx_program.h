// A kernel's PTX in the form in which it runs: instructions with a function each, and places in a warp's registers.
// Here between the decoder, which makes it from text once, and the machine, which runs it for every block.
//
// A warp's registers lie in one array of words, lane beside lane:
//   a register of up to 32 bits     32 words; one of 16 bits holds them in its lower half, and the upper half is nothing's
//   a register of 64 bits           64 words, of each lane the lower one first
//   a predicate                     one word, a bit for each lane
// Constants and special registers (%tid.x) are registers too, which no instruction writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ports/ptx_text.h"

namespace reprise::ptx {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr uint32_t kNowhere = ~uint32_t{0};

class Machine;
struct Instruction;
using Step = void (*)(Machine& machine, const Instruction& instruction, uint32_t lanes);

// What an instruction does to the order in which a warp's lanes run.
enum class Control : uint8_t {
  kNone,
  kBranch,
  kExit,
  kBlockBarrier,
  kWarpMeeting,  // it needs the lanes of a mask at once
};

enum class Width : uint8_t { kPredicate, kWord, kDouble };

struct Instruction {
  static constexpr uint32_t kMostOperands = 14;

  Step step = nullptr;
  uint32_t guard = kNowhere;  // the word of a predicate
  bool negated = false;
  Control control = Control::kNone;
  // Of loads and stores: how many elements of how many bytes, and what registers hold them.
  uint8_t count = 1, bytes = 0;
  bool is_signed = false, wide = false, wide_address = false;
  uint32_t target = 0;       // of a branch
  uint32_t mask = kNowhere;  // the register of a meeting's mask; kNowhere: the whole warp
  uint32_t line = 0;
  uint32_t at[kMostOperands] = {};
  uint64_t plus[2] = {};  // what is added to the first and to the second address
  std::string_view opcode;
};

// The first registers, of a word each.
enum Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kSpecials
};

struct Constant {
  uint32_t at = 0;
  uint64_t value = 0;
  Width width = Width::kWord;
};

// Bytes of shared memory that an array has; an access lies within one.
struct SharedRange {
  uint32_t begin = 0, end = 0;
};

struct Parameter {
  uint32_t begin = 0, bytes = 0;
};

struct Program {
  std::string file, name;
  std::vector<Instruction> code;
  uint32_t words = 0;  // of a warp's registers
  std::vector<Constant> constants;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  std::vector<SharedRange> shared;  // static
  uint32_t dynamic_begin = 0;       // where the dynamic bytes begin
  uint32_t local_bytes = 0;         // of a thread
};

// Throws a PtxError that names the first statement that is not understood. The opcodes refer to the module's text.
Program decode(const ModuleText& module, const KernelPlace& place);

}  // namespace reprise::ptx
