// A kernel's PTX in executable form: each instruction is a function and the positions of its
// operands in a warp's registers. The decoder makes a Program from the text once, and the machine
// runs it for every block.
//
// The registers of a warp are one array of words, ordered by lane:
//   a register of up to 32 bits     32 words; a 16-bit register uses only the lower
//                                   halves, and the upper halves are undefined
//   a register of 64 bits           64 words, for each lane the lower word first
//   a predicate                     one word, a bit for each lane
// Constants and special registers (%tid.x) are also registers, but no instruction writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ports/ptx/ptx_text.h"

namespace reprise::ptx {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr uint32_t kNowhere = ~uint32_t{0};

class Machine;
struct Instruction;
using Step = void (*)(Machine& machine, const Instruction& instruction, uint32_t lanes);

// The effect of an instruction on the order in which a warp's lanes run.
enum class Control : uint8_t {
  kNone,
  kBranch,
  kExit,
  kBlockBarrier,
  kWarpMeeting,  // a collective or a barrier: all lanes of a mask must arrive
};

enum class Width : uint8_t { kPredicate, kWord, kDouble };

struct Instruction {
  static constexpr uint32_t kMaxOperands = 14;

  Step step = nullptr;
  uint32_t guard = kNowhere;  // position of the predicate that guards the instruction; kNowhere: no guard
  bool negated = false;
  Control control = Control::kNone;
  // For loads, stores and moves of parts: number of elements, bytes of one element, whether
  // elements are signed, and whether their registers have 64 bits. `wide_address`: the address has
  // 64 bits.
  uint8_t count = 1, bytes = 0;
  bool is_signed = false, wide = false, wide_address = false;
  uint32_t target = 0;       // index of the instruction to which a branch jumps
  uint32_t mask = kNowhere;  // register with the mask of a kWarpMeeting; kNowhere: the whole warp
  uint32_t line = 0;
  uint32_t at[kMaxOperands] = {};
  uint64_t plus[2] = {};  // offsets that are added to the first and to the second address
  std::string_view opcode;
};

// The special registers, which are the first registers of a warp.
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

// The bytes [begin, end) of one array in shared memory. An access must be within one array.
struct SharedRange {
  uint32_t begin = 0, end = 0;
};

struct Parameter {
  uint32_t begin = 0, bytes = 0;
};

struct Program {
  std::string file, name;
  std::vector<Instruction> code;
  uint32_t words = 0;  // words that the registers of a warp occupy
  std::vector<Constant> constants;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  std::vector<SharedRange> shared;  // static arrays
  uint32_t dynamic_begin = 0;       // offset of the dynamic shared memory
  uint32_t local_bytes = 0;         // bytes of local memory of one thread
};

// Decodes a kernel. The program refers to the module's text, so the module must outlive it. Throws
// a PtxError that names the first unsupported statement.
Program decode(const ModuleText& module, const KernelPlace& place);

}  // namespace reprise::ptx
