// The keys of PEFT's rank_pattern and alpha_pattern: Python's regular expressions for the names of
// modules. They must be matched by PEFT's rule. Otherwise layers would get other ranks, so that
// shapes differ, or other alphas, which would cause no error.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace reprise {

// The pattern of one key. The supported parts are characters of names, '.', "\." and "\d", "[0-9]",
// each optionally followed by '*', '+' or '?'. Groups of alternatives, "(a|b)", of these parts are
// also supported, as are '^' at the beginning and '$' at the end.
class PeftPattern {
 public:
  // Returns the pattern; nothing if the expression is too long or has a part that is not supported.
  static std::optional<PeftPattern> parse(const std::string& expression);

  // True if re.match("(.*\.)?(EXPRESSION)$", module) finds something.
  bool matches(const std::string& module) const;

 private:
  struct Part {
    enum class Kind { kCharacter, kAny, kDigit } kind = Kind::kCharacter;
    char character = 0;
    bool may_lack = false, may_repeat = false;
    bool fits(char c) const {
      return kind == Kind::kAny || (kind == Kind::kDigit ? c >= '0' && c <= '9' : c == character);
    }
  };
  struct Alternative {
    bool from_start = false;  // true for '^': matches only a complete name, not the end of a name
    std::vector<Part> parts;
    bool matches(const std::string& module) const;
  };
  static bool add_alternatives(const std::string& expression, std::vector<Alternative>& to);
  static std::optional<Alternative> parse_one(const std::string& expression);

  std::vector<Alternative> alternatives_;
};

}  // namespace reprise
