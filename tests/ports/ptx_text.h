// PTX as nvcc writes it, taken apart: a module's kernels, and a kernel's variables, registers, labels and statements.
// Here apart from what instructions mean (ptx_decode.h), so that a statement's text is understood in one place.
//
// Understood is what nvcc 13 makes of cuda/: kernels (.entry) with parameters, .shared, .local, .reg, .pragma, labels, guards, inline
// assembly. What is not understood throws a PtxError that names file and line.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::ptx {

// "linear.ptx line 12: ..."
struct PtxError : std::runtime_error {
  PtxError(const std::string& file, uint32_t line, const std::string& what)
      : std::runtime_error(file + " line " + std::to_string(line) + ": " + what) {}
};

struct Operand {
  enum class Kind : uint8_t { kName, kNumber, kAddress };  // a name is a register's, a variable's or a label's
  Kind kind = Kind::kName;
  bool braced = false;         // one of { a, b }
  std::string_view name = {};  // of an address: its base, empty where it is a number alone
  uint64_t number = 0;         // a number's bits; of an address, what is added to its base
};

struct Statement {
  uint32_t line = 0;
  std::string_view guard = {};  // a predicate, or empty
  bool negated = false;         // @!guard
  std::string_view opcode = {};
  std::vector<Operand> operands = {};
};

struct Variable {
  std::string_view name;
  uint32_t bytes = 0, alignment = 1;  // bytes 0: the dynamic shared memory
};

// %r<4> declares %r0 to %r3; a name without a count is one register.
struct Registers {
  std::string_view type = {}, name = {};
  uint32_t count = 0;  // 0: one register of exactly that name
};

struct KernelText {
  std::string name;  // as it is mangled
  uint32_t line = 0;
  uint32_t most_threads = 0;  // of a block, by .maxntid; 0: as many as a card takes
  std::vector<Variable> parameters = {}, shared = {}, local = {};
  std::vector<Registers> registers = {};
  std::map<std::string_view, uint32_t> labels = {};  // the statement that follows
  std::vector<Statement> statements = {};
};

// Where a kernel stands. A module has many and a test needs few, so a body is taken apart when it is asked for.
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
  // It refers to this module's text.
  KernelText take_apart(const KernelPlace& place) const;

 private:
  std::string file_, text_;
  std::vector<KernelPlace> kernels_;
  std::vector<Variable> shared_;  // of the module: extern, and arrays outside kernels
};

}  // namespace reprise::ptx
