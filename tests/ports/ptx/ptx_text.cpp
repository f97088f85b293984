// A scanner of PTX, and a parser of the part of its grammar that nvcc uses for kernels.
#include "tests/ports/ptx/ptx_text.h"

#include <cctype>
#include <charconv>

namespace reprise::ptx {
namespace {

constexpr bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.' || c == '@';
}

// Splits text into tokens with their lines: words, quoted strings and single characters. A word
// consists of letters, digits, dots and the characters _ $ %. The @ of a guard is a single
// character.
class Scanner {
 public:
  Scanner(const std::string& file, std::string_view text, uint32_t line) : file_(file), text_(text), line_(line) {
    next();
  }

  bool at_end() const { return token_.empty(); }
  uint32_t line() const { return token_line_; }
  std::string_view peek() const { return token_; }
  std::string_view take() {
    const std::string_view token = token_;
    next();
    return token;
  }
  bool take_if(std::string_view wanted) {
    if (token_ != wanted) return false;
    next();
    return true;
  }
  void expect(std::string_view wanted) {
    if (!take_if(wanted)) fail("'" + std::string(wanted) + "' must stand where '" + std::string(token_) + "' is");
  }
  void skip_past(std::string_view last) {
    while (!at_end() && token_ != last) next();
    expect(last);
  }
  [[noreturn]] void fail(const std::string& what) const { throw PtxError(file_, token_line_, what); }

  // True if a number begins here: -1, 0x1F, 0f3F800000 (the bits of an f32), 0d3FF0000000000000.
  bool starts_number() const {
    return token_ == "-" || (!token_.empty() && std::isdigit(static_cast<unsigned char>(token_[0])) != 0);
  }
  uint64_t take_number() {
    const bool negative = take_if("-");
    std::string_view digits = token_;
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && std::isalpha(static_cast<unsigned char>(digits[1])) != 0) {
      base = 16;
      digits.remove_prefix(2);
    }
    if (!digits.empty() && digits.back() == 'U') digits.remove_suffix(1);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail("'" + std::string(token_) + "' is no number");
    next();
    return negative ? 0 - value : value;
  }
  uint32_t take_count() { return static_cast<uint32_t>(take_number()); }

 private:
  void next() {
    skip_blanks();
    token_line_ = line_;
    size_t length = at_ < text_.size() ? 1 : 0;
    if (length != 0 && is_word(text_[at_]) && text_[at_] != '@') {
      while (at_ + length < text_.size() && is_word(text_[at_ + length]) && text_[at_ + length] != '@') ++length;
    } else if (length != 0 && text_[at_] == '"') {
      const size_t end = text_.find('"', at_ + 1);
      length = (end == std::string_view::npos ? text_.size() : end + 1) - at_;
    }
    token_ = text_.substr(at_, length);
    at_ += length;
  }
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') ++line_;
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else {
        return;
      }
    }
  }

  const std::string& file_;
  std::string_view text_, token_;
  size_t at_ = 0;
  uint32_t line_, token_line_ = 0;
};

uint32_t bytes_of_type(const Scanner& scanner, std::string_view type) {
  if (type == ".pred") return 1;
  uint32_t bits = 0;
  const auto [end, error] = std::from_chars(type.data() + 2, type.data() + type.size(), bits);
  if (error != std::errc() || end != type.data() + type.size()) scanner.fail("'" + std::string(type) + "' is no type");
  return bits / 8;
}

// Parses a variable after .shared, .local or .param, for example: .align 4 .b8 name[48]
Variable take_variable(Scanner& scanner) {
  Variable variable;
  bool aligned = false;
  if (scanner.take_if(".align")) {
    variable.alignment = scanner.take_count();
    aligned = true;
  }
  const uint32_t element = bytes_of_type(scanner, scanner.take());
  if (!aligned) variable.alignment = element;
  variable.name = scanner.take();
  variable.bytes = element;
  if (scanner.take_if("[")) {
    variable.bytes = scanner.peek() == "]" ? 0 : element * scanner.take_count();
    scanner.expect("]");
  }
  return variable;
}

void take_registers(Scanner& scanner, KernelText& kernel) {
  const std::string_view type = scanner.take();
  do {
    Registers registers{.type = type, .name = scanner.take()};
    if (scanner.take_if("<")) {
      registers.count = scanner.take_count();
      scanner.expect(">");
    }
    kernel.registers.push_back(registers);
  } while (scanner.take_if(","));
  scanner.expect(";");
}

// Parses the numbers after .maxntid, for example: 256, 1, 1. Returns their product.
uint32_t take_threads(Scanner& scanner) {
  uint32_t threads = 1;
  do threads *= scanner.take_count();
  while (scanner.take_if(","));
  return threads;
}

Operand take_operand(Scanner& scanner, bool braced) {
  Operand operand{.braced = braced};
  if (scanner.take_if("[")) {
    operand.kind = Operand::Kind::kAddress;
    if (!scanner.starts_number()) operand.name = scanner.take();
    if (scanner.take_if("+") || scanner.starts_number()) operand.number = scanner.take_number();
    scanner.expect("]");
  } else if (scanner.starts_number()) {
    operand.kind = Operand::Kind::kNumber;
    operand.number = scanner.take_number();
  } else {
    operand.name = scanner.take();
    if (scanner.take_if("+")) operand.number = scanner.take_number();
  }
  return operand;
}

Statement take_statement(Scanner& scanner) {
  Statement statement{.line = scanner.line()};
  if (scanner.take_if("@")) {
    statement.negated = scanner.take_if("!");
    statement.guard = scanner.take();
  }
  statement.opcode = scanner.take();
  while (!scanner.take_if(";")) {
    if (scanner.at_end()) scanner.fail("a statement must end with ';'");
    if (scanner.take_if("{")) {
      do statement.operands.push_back(take_operand(scanner, true));
      while (scanner.take_if(","));
      scanner.expect("}");
    } else {
      statement.operands.push_back(take_operand(scanner, false));
    }
    // An instruction with two results separates them by '|', as in "d|p".
    if (!scanner.take_if(",") && !scanner.take_if("|") && scanner.peek() != ";") {
      scanner.fail("',' or ';' must stand where '" + std::string(scanner.peek()) + "' is");
    }
  }
  return statement;
}

void take_label(Scanner& scanner, KernelText& kernel, const Statement& label) {
  if (!kernel.labels.emplace(label.opcode, kernel.statements.size()).second) {
    scanner.fail("the label '" + std::string(label.opcode) + "' stands twice");
  }
}

void take_body(Scanner& scanner, KernelText& kernel) {
  scanner.expect("{");
  for (uint32_t depth = 1; depth > 0;) {
    if (scanner.at_end()) scanner.fail("the kernel must end with '}'");
    const std::string_view word = scanner.peek();
    if (word == "{" || word == "}") {
      depth += word == "{" ? 1u : ~0u;
      scanner.take();
    } else if (scanner.take_if(".reg")) {
      take_registers(scanner, kernel);
    } else if (scanner.take_if(".shared")) {
      kernel.shared.push_back(take_variable(scanner));
      scanner.expect(";");
    } else if (scanner.take_if(".local")) {
      kernel.local.push_back(take_variable(scanner));
      scanner.expect(";");
    } else if (word == ".pragma") {
      scanner.skip_past(";");
    } else if (word[0] == '.') {
      scanner.fail("the directive " + std::string(word) + " is not known");
    } else if (word[0] == '$') {
      const Statement label{.opcode = scanner.take()};
      scanner.expect(":");
      take_label(scanner, kernel, label);
    } else {
      kernel.statements.push_back(take_statement(scanner));
    }
  }
}

constexpr std::string_view kEntry = ".entry ";

}  // namespace

// Finds the kernels. A kernel begins with a line that contains .entry and ends with a line that
// begins with '}'.
ModuleText::ModuleText(std::string file, std::string text) : file_(std::move(file)), text_(std::move(text)) {
  uint32_t line = 0;
  bool within = false;
  size_t begin = 0;
  for (size_t at = 0; at < text_.size();) {
    ++line;
    const size_t end = std::min(text_.find('\n', at), text_.size());
    const std::string_view row = std::string_view(text_).substr(at, end - at);
    const size_t entry = row.find(kEntry);
    if (!within && entry != std::string_view::npos) {
      within = true;
      begin = at + entry;
      Scanner scanner(file_, row.substr(entry + kEntry.size()), line);
      kernels_.push_back({std::string(scanner.take()), line, {}});
    } else if (within && row.substr(0, 1) == "}") {
      within = false;
      kernels_.back().text = std::string_view(text_).substr(begin, end - begin);
    } else if (!within && !row.empty() && row[0] == '.') {
      Scanner scanner(file_, row, line);
      scanner.take_if(".visible");
      scanner.take_if(".extern");
      scanner.take_if(".weak");
      const std::string_view directive = scanner.take();
      if (directive == ".shared") {
        shared_.push_back(take_variable(scanner));
      } else if (directive != ".version" && directive != ".target" && directive != ".address_size" &&
                 directive != ".maxntid" && directive != ".minnctapersm") {
        scanner.fail("the directive " + std::string(directive) + " is not known");
      }
    }
    at = end + 1;
  }
}

KernelText ModuleText::take_apart(const KernelPlace& place) const {
  KernelText kernel{.name = place.name, .line = place.line};
  Scanner scanner(file_, place.text, place.line);
  scanner.expect(".entry");
  scanner.take();
  if (scanner.take_if("(")) {
    while (!scanner.take_if(")")) {
      scanner.expect(".param");
      kernel.parameters.push_back(take_variable(scanner));
      scanner.take_if(",");
    }
  }
  while (!scanner.at_end() && scanner.peek() != "{") {
    if (scanner.take() == ".maxntid") kernel.max_threads = take_threads(scanner);
  }
  kernel.shared = shared_;
  take_body(scanner, kernel);
  return kernel;
}

}  // namespace reprise::ptx
