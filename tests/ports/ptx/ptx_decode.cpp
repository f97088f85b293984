// Decodes a kernel's text into instructions. Assigns positions in a warp's words to registers and
// constants, and offsets to arrays. Decodes the operands of loads, stores, branches and
// collectives.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "tests/ports/ptx/ptx_arithmetic.h"
#include "tests/ports/ptx/ptx_atomics.h"
#include "tests/ports/ptx/ptx_collectives.h"
#include "tests/ports/ptx/ptx_memory.h"
#include "tests/ports/ptx/ptx_program.h"

namespace reprise::ptx {
namespace {

constexpr uint32_t kSharedGap = 128;  // gap between arrays, so that an access past the end of an array is in no array
constexpr uint32_t kMaxSharedBytes = 48 * 1024;

uint32_t align(uint32_t value, uint32_t to) { return (value + to - 1) / to * to; }

struct Register {
  Width width = Width::kWord;
  uint32_t at = 0;
};

class Decoder {
 public:
  Decoder(const ModuleText& module, const KernelPlace& place) : module_(module), kernel_(module.take_apart(place)) {
    program_.file = module.file();
    program_.name = kernel_.name;
    program_.words = kSpecials * kLanes;
    place_parameters();
    place_shared();
    place_local();
    place_registers();
  }

  Program decode() {
    for (const Statement& statement : kernel_.statements) {
      statement_ = &statement;
      Instruction i;
      i.opcode = statement.opcode;
      i.line = statement.line;
      if (!statement.guard.empty()) {
        i.guard = register_of(statement.guard, Width::kPredicate).at;
        i.negated = statement.negated;
      }
      decode_statement(i);
      program_.code.push_back(i);
    }
    if (program_.code.empty() || program_.code.back().control != Control::kExit ||
        program_.code.back().guard != kNowhere) {
      Instruction end;  // added if the kernel's text does not end with ret
      end.opcode = "the kernel's end";
      end.control = Control::kExit;
      end.line = program_.code.empty() ? kernel_.line : program_.code.back().line;
      program_.code.push_back(end);
    }
    return std::move(program_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw PtxError(module_.file(), statement_ != nullptr ? statement_->line : kernel_.line, what);
  }
  [[noreturn]] void fail_unknown() const {
    fail("the instruction '" + std::string(statement_->opcode) + "' is not known");
  }

  // ---- positions of registers, constants and arrays ----

  void place_parameters() {
    uint32_t at = 0;
    for (const Variable& parameter : kernel_.parameters) {
      at = align(at, parameter.alignment);
      program_.parameters.push_back({at, parameter.bytes});
      symbols_[parameter.name] = at;
      at += parameter.bytes;
    }
    program_.parameter_bytes = at;
  }
  void place_shared() {
    uint32_t end = 0, alignment = 128;
    std::vector<std::string_view> dynamic;
    for (const Variable& array : kernel_.shared) {
      if (array.bytes == 0) {
        dynamic.push_back(array.name);
        alignment = std::max(alignment, array.alignment);
        continue;
      }
      const uint32_t begin = align(end, array.alignment);
      symbols_[array.name] = begin;
      program_.shared.push_back({begin, begin + array.bytes});
      end = begin + array.bytes + kSharedGap;
    }
    if (end > kMaxSharedBytes + kSharedGap * kernel_.shared.size())
      fail(std::to_string(end) + " bytes of static shared memory");
    program_.dynamic_begin = align(end, alignment);
    for (const std::string_view name : dynamic) symbols_[name] = program_.dynamic_begin;
  }
  void place_local() {
    for (const Variable& array : kernel_.local) {
      program_.local_bytes = align(program_.local_bytes, array.alignment);
      symbols_[array.name] = program_.local_bytes;
      program_.local_bytes = align(program_.local_bytes + array.bytes, 16);
    }
  }
  void place_registers() {
    constexpr const char* kSpecialNames[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                             "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                             "%nctaid.y", "%nctaid.z", "%laneid"};
    static_assert(std::size(kSpecialNames) == kSpecials);
    for (uint32_t i = 0; i < kSpecials; ++i) registers_[kSpecialNames[i]] = {Width::kWord, i * kLanes};
    // Predicates follow all other registers, so that each other register begins at a multiple of 64
    // bytes.
    for (const bool predicates : {false, true}) {
      for (const Registers& each : kernel_.registers) {
        const Width width = each.type == ".pred"          ? Width::kPredicate
                            : each.type.substr(2) == "64" ? Width::kDouble
                                                          : Width::kWord;
        if (predicates != (width == Width::kPredicate)) continue;
        if (each.count == 0) registers_[std::string(each.name)] = {width, take_words(width)};
        for (uint32_t n = 0; n < each.count; ++n)
          registers_[std::string(each.name) + std::to_string(n)] = {width, take_words(width)};
      }
      if (!predicates) no_result_ = take_words(Width::kDouble);
    }
    no_predicate_ = take_words(Width::kPredicate);
    program_.words = align(program_.words, 2 * kLanes);
  }
  uint32_t take_words(Width width) { return std::exchange(program_.words, program_.words + words_of(width)); }
  static uint32_t words_of(Width width) {
    return width == Width::kPredicate ? 1 : width == Width::kWord ? kLanes : 2 * kLanes;
  }

  // ---- operands ----

  const Register* find_register(std::string_view name) const {
    const auto found = registers_.find(name);
    return found == registers_.end() ? nullptr : &found->second;
  }
  Register register_of(std::string_view name, Width width) const {
    const Register* found = find_register(name);
    if (found == nullptr) fail("the name '" + std::string(name) + "' is not known");
    if (found->width != width)
      fail("the register " + std::string(name) + " has not the width that " + std::string(statement_->opcode) +
           " takes");
    return *found;
  }
  uint32_t constant(uint64_t value, Width width) {
    const auto [found, is_new] = constants_.try_emplace({value, width}, 0);
    if (is_new) {
      if (width != Width::kPredicate) program_.words = align(program_.words, kLanes);
      found->second = take_words(width);
      program_.constants.push_back({found->second, value, width});
    }
    return found->second;
  }
  uint64_t symbol(std::string_view name) const {
    const auto found = symbols_.find(name);
    if (found == symbols_.end()) fail("the name '" + std::string(name) + "' is not known");
    return found->second;
  }
  // Returns the position of an operand that is read: a register or a constant.
  uint32_t source(const Operand& operand, Width width) {
    if (operand.kind == Operand::Kind::kAddress) fail("an address stands where a value must");
    if (operand.kind == Operand::Kind::kName && find_register(operand.name) != nullptr)
      return register_of(operand.name, width).at;
    const uint64_t value =
        operand.kind == Operand::Kind::kNumber ? operand.number : symbol(operand.name) + operand.number;
    return constant(value, width);
  }
  uint32_t result(const Operand& operand, Width width) const {
    if (operand.kind != Operand::Kind::kName) fail("a register must stand where a result goes");
    if (operand.name == "_") return width == Width::kPredicate ? no_predicate_ : no_result_;
    return register_of(operand.name, width).at;
  }
  // Decodes an address: its base register or variable, and the offset that is added.
  void address(const Operand& operand, Instruction& i, uint32_t at, uint32_t plus) {
    if (operand.kind != Operand::Kind::kAddress) fail("an address must stand there");
    i.plus[plus] = operand.number;
    if (const Register* base = find_register(operand.name); base != nullptr) {
      if (base->width == Width::kPredicate) fail("a predicate is no address");
      i.wide_address = base->width == Width::kDouble;
      i.at[at] = base->at;
    } else {
      i.wide_address = true;
      i.at[at] = constant(operand.name.empty() ? 0 : symbol(operand.name), Width::kDouble);
    }
  }
  void need(size_t count) const {
    if (statement_->operands.size() != count) {
      fail(std::string(statement_->opcode) + " takes " + std::to_string(count) + " operands, not " +
           std::to_string(statement_->operands.size()));
    }
  }
  const Operand& operand(size_t k) const { return statement_->operands[k]; }

  // ---- statements ----

  void decode_statement(Instruction& i) {
    const std::string_view opcode = statement_->opcode;
    if (opcode == "bra" || opcode == "bra.uni") return decode_branch(i);
    if (opcode == "ret" || opcode == "exit") return need(0), static_cast<void>(i.control = Control::kExit);
    if (opcode == "bar.sync" || opcode == "barrier.sync") return decode_barrier(i, 1);
    if (opcode == "bar.red.or.pred" || opcode == "barrier.cta.red.or.pred") return decode_barrier(i, 3);
    if (is_move_of_parts()) return decode_parts(i);
    if (const Arithmetic* arithmetic = find_arithmetic(opcode)) return decode_arithmetic(i, *arithmetic);
    if (const std::optional<MemoryAccess> access = find_access(opcode)) return decode_access(i, *access);
    if (const std::optional<Atomic> atomic = find_atomic(opcode)) return decode_atomic(i, *atomic);
    if (const Step fence = find_fence(opcode)) return need(0), static_cast<void>(i.step = fence);
    if (const Collective* collective = find_collective(opcode)) return decode_collective(i, *collective);
    fail_unknown();
  }

  void decode_branch(Instruction& i) {
    need(1);
    const auto found = kernel_.labels.find(operand(0).name);
    if (found == kernel_.labels.end()) fail("there is no label '" + std::string(operand(0).name) + "'");
    i.control = Control::kBranch;
    i.target = found->second;
  }

  // Decodes barrier 0, for the whole block. If the barrier has a vote, also decodes the vote's
  // result and input.
  void decode_barrier(Instruction& i, size_t operands) {
    need(operands);
    const Operand& number = operand(operands == 1 ? 0 : 1);
    if (number.kind != Operand::Kind::kNumber || number.number != 0) fail("the barrier must be number 0");
    i.control = Control::kBlockBarrier;
    if (operands == 1) return;
    i.at[0] = result(operand(0), Width::kPredicate);
    i.at[1] = source(operand(2), Width::kPredicate);
    i.step = [](Machine&, const Instruction&, uint32_t) {};  // only marks that the barrier has a vote
  }

  void decode_arithmetic(Instruction& i, const Arithmetic& arithmetic) {
    need(arithmetic.operands.size());
    i.step = arithmetic.step;
    i.at[0] = result(operand(0), arithmetic.operands[0]);
    for (size_t k = 1; k < arithmetic.operands.size(); ++k) i.at[k] = source(operand(k), arithmetic.operands[k]);
  }

  // True for moves like mov.b32 r, {low, high} and mov.b64 {low, high}, d.
  bool is_move_of_parts() const {
    const auto& operands = statement_->operands;
    return statement_->opcode.substr(0, 5) == "mov.b" &&
           std::any_of(operands.begin(), operands.end(), [](const Operand& each) { return each.braced; });
  }
  void decode_parts(Instruction& i) {
    const bool is_64 = statement_->opcode == "mov.b64";
    if (!is_64 && statement_->opcode != "mov.b32") fail_unknown();
    const bool joins = !operand(0).braced;
    const auto parts = static_cast<uint32_t>(statement_->operands.size() - 1);
    if (parts != 2 && !(parts == 4 && is_64)) fail_unknown();
    i.count = static_cast<uint8_t>(parts);
    i.bytes = static_cast<uint8_t>((is_64 ? 8 : 4) / parts);
    i.wide = is_64;
    i.step = joins ? join_parts : split_parts;
    const Width whole = is_64 ? Width::kDouble : Width::kWord;
    i.at[0] = joins ? result(operand(0), whole) : source(operand(parts), whole);
    for (uint32_t k = 0; k < parts; ++k)
      i.at[k + 1] = joins ? source(operand(k + 1), Width::kWord) : result(operand(k), Width::kWord);
  }

  // Decodes a load or store. In the text, the registers are first in a load, and the address is
  // first in a store. In `at` the address is always first.
  void decode_access(Instruction& i, const MemoryAccess& access) {
    need(access.count + 1u);
    i.step = access.step;
    i.count = access.count;
    i.bytes = access.bytes;
    i.is_signed = access.is_signed;
    address(operand(access.is_load ? access.count : 0), i, 0, 0);
    for (uint32_t k = 0; k < access.count; ++k) {
      const Operand& element = operand(access.is_load ? k : k + 1);
      if (access.count > 1 && !element.braced) fail("the elements must stand in braces");
      const Register* place = find_register(element.name);
      const bool wide = place != nullptr ? place->width == Width::kDouble : access.bytes == 8;
      if (k == 0) i.wide = wide;
      const Width width = i.wide ? Width::kDouble : Width::kWord;
      if (access.bytes == 8 && !i.wide) fail("8 bytes need registers of 64 bits");
      i.at[k + 1] = access.is_load ? result(element, width) : source(element, width);
    }
  }

  void decode_atomic(Instruction& i, const Atomic& atomic) {
    const uint32_t first = atomic.has_result ? 1 : 0;
    need(first + 1 + atomic.values);
    i.step = atomic.step;
    const Width width = atomic.wide ? Width::kDouble : Width::kWord;
    address(operand(first), i, 0, 0);
    i.at[1] = atomic.has_result ? result(operand(0), width) : no_result_;
    for (uint32_t k = 0; k < 2; ++k) i.at[k + 2] = source(operand(first + 1 + std::min(k, atomic.values - 1)), width);
  }

  void decode_collective(Instruction& i, const Collective& collective) {
    need(collective.form.size());
    i.step = collective.step;
    i.control = collective.meets ? Control::kWarpMeeting : Control::kNone;
    uint32_t addresses = 0;
    for (uint32_t k = 0; k < collective.form.size(); ++k) {
      const Operand& each = operand(k);
      switch (collective.form[k]) {
        case Collective::kResult: i.at[k] = result(each, Width::kWord); break;
        case Collective::kResultPredicate: i.at[k] = result(each, Width::kPredicate); break;
        case Collective::kWord: i.at[k] = source(each, Width::kWord); break;
        case Collective::kPredicate: i.at[k] = source(each, Width::kPredicate); break;
        case Collective::kMask: i.mask = i.at[k] = source(each, Width::kWord); break;
        case Collective::kNumber:
          if (each.kind != Operand::Kind::kNumber)
            fail("a number must stand where '" + std::string(each.name) + "' is");
          i.at[k] = static_cast<uint32_t>(each.number);
          break;
        case Collective::kSharedAddress:
        case Collective::kGlobalAddress:
          address(each, i, k, addresses++);
          if (i.wide_address != (collective.form[k] == Collective::kGlobalAddress))
            fail("the address has not the width that it must have");
      }
    }
  }

  const ModuleText& module_;
  const KernelText kernel_;
  const Statement* statement_ = nullptr;
  Program program_;
  std::map<std::string_view, uint64_t> symbols_;
  std::map<std::string, Register, std::less<>> registers_;
  std::map<std::pair<uint64_t, Width>, uint32_t> constants_;
  uint32_t no_result_ = 0, no_predicate_ = 0;
};

}  // namespace

Program decode(const ModuleText& module, const KernelPlace& place) { return Decoder(module, place).decode(); }

}  // namespace reprise::ptx
