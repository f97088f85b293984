// Parses PTX as nvcc writes it: the kernels of a module; the variables, registers, labels and
// statements of a kernel. ptx_decode.cpp interprets the statements.
//
// The parser supports what nvcc 13 writes for cuda/: kernels (.entry) with parameters, .shared,
// .local, .reg, .pragma, labels, guards and inline assembly. For anything else it throws a PtxError
// that names file and line.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::ptx {

// An error with a text like "linear.ptx line 12: ...".
struct PtxError : std::runtime_error {
  PtxError(const std::string& file, uint32_t line, const std::string& what)
      : std::runtime_error(file + " line " + std::to_string(line) + ": " + what) {}
};

struct Operand {
  enum class Kind : uint8_t { kName, kNumber, kAddress };  // kName: a register, a variable or a label
  Kind kind = Kind::kName;
  bool braced = false;         // true: a member of a list { a, b }
  std::string_view name = {};  // a name, or the base of an address; "" for a number, and for an address without a base
  uint64_t number = 0;         // bits of a number; offset of an address from its base
};

struct Statement {
  uint32_t line = 0;
  std::string_view guard = {};  // predicate of the guard; "": no guard
  bool negated = false;         // true: the guard is @!guard
  std::string_view opcode = {};
  std::vector<Operand> operands = {};
};

struct Variable {
  std::string_view name;
  uint32_t bytes = 0, alignment = 1;  // bytes is 0 for the dynamic shared memory
};

// A declaration of registers: %r<4> declares %r0 to %r3. A name without a count declares one
// register.
struct Registers {
  std::string_view type = {}, name = {};
  uint32_t count = 0;  // 0: one register with exactly this name
};

struct KernelText {
  std::string name;  // mangled name
  uint32_t line = 0;
  uint32_t max_threads = 0;  // maximum threads of a block by .maxntid; 0: not stated
  std::vector<Variable> parameters = {}, shared = {}, local = {};
  std::vector<Registers> registers = {};
  std::map<std::string_view, uint32_t> labels = {};  // value: index of the statement after the label
  std::vector<Statement> statements = {};
};

// The position of a kernel in the text. The body of a kernel is parsed on request, because a module
// has many kernels and a test needs few.
struct KernelPlace {
  std::string name;
  uint32_t line = 0;
  std::string_view text;  // from .entry to the closing brace
};

class ModuleText {
 public:
  ModuleText(std::string file, std::string text);
  ModuleText(const ModuleText&) = delete;
  ModuleText& operator=(const ModuleText&) = delete;

  const std::string& file() const { return file_; }
  const std::vector<KernelPlace>& kernels() const { return kernels_; }
  // Returns the parsed kernel. The result refers to this module's text, so it must not outlive the
  // module.
  KernelText take_apart(const KernelPlace& place) const;

 private:
  std::string file_, text_;
  std::vector<KernelPlace> kernels_;
  std::vector<Variable> shared_;  // shared variables outside of kernels: extern variables and arrays
};

}  // namespace reprise::ptx
