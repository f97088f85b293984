// The keys of PEFT's rank_pattern and alpha_pattern: Python's regular expressions over the names of modules.
// Here because an adapter whose ranks are read by another rule than PEFT's is another model, of other shapes or, worse, of the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace reprise {

// Taken are characters of names, '.', "\." and "\d", "[0-9]", each with '*', '+' or '?' behind it or not, "(a|b)" with such parts, '^' at the
// beginning and '$' at the end.
class PeftPattern {
 public:
  // None where the expression has another part.
  static std::optional<PeftPattern> parse(const std::string& expression);

  // Whether re.match("(.*\.)?(EXPRESSION)$", module) finds something.
  bool matches(const std::string& module) const;

 private:
  struct Part {
    enum class Kind { kCharacter, kAny, kDigit } kind = Kind::kCharacter;
    char character = 0;
    bool may_lack = false, may_repeat = false;
    bool fits(char c) const { return kind == Kind::kAny || (kind == Kind::kDigit ? c >= '0' && c <= '9' : c == character); }
  };
  struct Alternative {
    bool from_start = false;  // '^': of the whole name, not of an end
    std::vector<Part> parts;
    bool matches(const std::string& module) const;
  };
  static bool add_alternatives(const std::string& expression, std::vector<Alternative>& to);
  static std::optional<Alternative> parse_one(const std::string& expression);

  std::vector<Alternative> alternatives_;
};

}  // namespace reprise
