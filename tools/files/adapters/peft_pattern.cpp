// See peft_pattern.h. Source: github.com/huggingface/peft, get_pattern_key.
#include "tools/files/adapters/peft_pattern.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace reprise {
namespace {

constexpr size_t kMaxAlternatives = 256, kMaxCharacters = 1024;

bool is_of_names(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

}  // namespace

std::optional<PeftPattern::Alternative> PeftPattern::parse_one(const std::string& expression) {
  Alternative alternative;
  size_t at = 0, end = expression.size();
  if (at < end && expression[at] == '^') alternative.from_start = true, ++at;
  if (at < end && expression[end - 1] == '$') --end;
  while (at < end) {
    const std::string_view rest = std::string_view(expression).substr(at, end - at);
    Part part;
    if (is_of_names(rest[0])) {
      part.character = rest[0], at += 1;
    } else if (rest.starts_with("\\.")) {
      part.character = '.', at += 2;
    } else if (rest[0] == '.') {
      part.kind = Part::Kind::kAny, at += 1;
    } else if (rest.starts_with("\\d") || rest.starts_with("[0-9]")) {
      part.kind = Part::Kind::kDigit, at += rest[0] == '[' ? 5 : 2;
    } else {
      return std::nullopt;
    }
    if (at < end && (expression[at] == '*' || expression[at] == '+' || expression[at] == '?')) {
      part.may_lack = expression[at] != '+';
      part.may_repeat = expression[at] != '?';
      ++at;
    }
    alternative.parts.push_back(part);
  }
  return alternative.parts.empty() ? std::nullopt : std::optional(alternative);
}

// Expands the first group of the expression: each choice gives an expression with one group less.
bool PeftPattern::add_alternatives(const std::string& expression, std::vector<Alternative>& to) {
  const size_t open = expression.find('('), close = expression.find(')', open == std::string::npos ? 0 : open);
  if (open == std::string::npos) {
    const std::optional<Alternative> one = parse_one(expression);
    if (!one || to.size() == kMaxAlternatives) return false;
    to.push_back(*one);
    return true;
  }
  const bool is_plain =
      close != std::string::npos && (open == 0 || expression[open - 1] != '\\') &&
      expression.find('(', open + 1) > close &&
      (close + 1 == expression.size() || std::string("*+?{").find(expression[close + 1]) == std::string::npos);
  if (!is_plain) return false;
  for (size_t at = open + 1; at <= close;) {
    const size_t end = std::min(expression.find('|', at), close);
    const std::string choice = expression.substr(at, end - at);
    if (choice.empty() || !add_alternatives(expression.substr(0, open) + choice + expression.substr(close + 1), to))
      return false;
    at = end + 1;
  }
  return true;
}

std::optional<PeftPattern> PeftPattern::parse(const std::string& expression) {
  PeftPattern pattern;
  if (expression.size() > kMaxCharacters || !add_alternatives(expression, pattern.alternatives_)) return std::nullopt;
  return pattern;
}

// Processes the parts one by one. After each part, `ends` states for all positions in the name
// whether a match of the parts so far can end there.
bool PeftPattern::Alternative::matches(const std::string& module) const {
  std::vector<bool> ends(module.size() + 1);
  ends[0] = true;
  for (size_t i = 0; i < module.size(); ++i) ends[i + 1] = !from_start && module[i] == '.';
  for (const Part& part : parts) {
    std::vector<bool> next = part.may_lack ? ends : std::vector<bool>(ends.size());
    for (size_t i = 0; i < module.size(); ++i) {
      const bool may_begin = ends[i] || (part.may_repeat && next[i]);
      if (may_begin && part.fits(module[i])) next[i + 1] = true;
    }
    ends = std::move(next);
  }
  return ends[module.size()];
}

bool PeftPattern::matches(const std::string& module) const {
  return std::any_of(alternatives_.begin(), alternatives_.end(),
                     [&](const Alternative& one) { return one.matches(module); });
}

}  // namespace reprise
