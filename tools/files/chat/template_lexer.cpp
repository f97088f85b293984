// Jinja's lexer (as defined in jinja2/lexer.py) for the tags {% %}, {{ }} and {# #}.
#include "tools/files/chat/template_lexer.h"

#include <algorithm>
#include <cstdint>

#include "tools/files/chat/marked_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using Kind = TemplateToken::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Converts every line end to \n, and removes one at the end of the source.
std::string with_plain_newlines(const std::string& source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class TemplateLexer {
 public:
  TemplateLexer(const std::string& source, const std::string& name)
      : source_(with_plain_newlines(source)), name_(name) {}

  std::vector<TemplateToken> cut() {
    while (cut_text()) {
      if (source_[at_ - 1 - (sign_ != 0)] == '#') {
        skip_comment();
      } else {
        cut_tag();
      }
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Cuts the text up to the next tag, and consumes the tag's opening. Returns false if there is no
  // tag.
  bool cut_text() {
    size_t tag = at_;
    do tag = source_.find('{', tag);
    while (tag != std::string::npos &&
           (tag + 1 >= source_.size() || std::string("{%#").find(source_[tag + 1]) == std::string::npos) && ++tag);
    const std::string text = source_.substr(at_, std::min(tag, source_.size()) - at_);
    if (tag == std::string::npos) {
      add_text(text, text.size());
      at_ = source_.size();
      return false;
    }
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    sign_ = after == '-' || after == '+' ? after : 0;
    add_text(text, kept_before(text, source_[tag + 1] != '{'));
    at_ = tag + 2 + (sign_ != 0);
    return true;
  }

  // Returns how many bytes of the text before a tag stay; the others are removed white space.
  size_t kept_before(const std::string& text, bool is_block) const {
    if (sign_ == '-') return without_space(text).end;
    if (sign_ == '+' || !is_block) return text.size();
    const size_t newline = text.rfind('\n');
    if (newline == std::string::npos && !line_starts_) return text.size();
    const size_t line = newline == std::string::npos ? 0 : newline + 1;
    const std::string last = text.substr(line);
    return without_space(last).begin == last.size() ? line : text.size();
  }

  void add_text(const std::string& text, size_t kept) {
    if (kept > 0) add(Kind::kText, text.substr(0, kept));
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse("a comment {# that does not end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    pass(end + 2 - at_);
    end_tag(sign == '-' || sign == '+' ? sign : '\0', true);
  }

  void cut_tag() {
    const bool is_block = source_[at_ - 1 - (sign_ != 0)] == '%';
    add(is_block ? Kind::kBlockBegin : Kind::kPrintBegin, "");
    const int opened = line_;
    open_.clear();
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) refuse_at(opened, "a tag that does not end");
      if (open_.empty() && ends_tag(is_block)) return;
      cut_token();
    }
  }

  bool ends_tag(bool is_block) {
    const std::string end = is_block ? "%}" : "}}";
    const char c = source_[at_];
    const char sign = c == '-' || (c == '+' && is_block) ? c : '\0';
    if (source_.compare(at_ + (sign != 0), end.size(), end) != 0) return false;
    add(is_block ? Kind::kBlockEnd : Kind::kPrintEnd, "");
    pass(end.size() + (sign != 0));
    end_tag(sign, is_block);
    return true;
  }

  // Removes white space after a tag's end: all of it after "-", otherwise only a newline after a
  // block or comment.
  void end_tag(char sign, bool is_block) {
    if (sign == '-') {
      skip_space();
    } else if (sign == 0 && is_block && at_ < source_.size() && source_[at_] == '\n') {
      pass(1);
    }
    line_starts_ = source_[at_ - 1] == '\n';
  }

  void cut_token() {
    const char c = source_[at_];
    if (is_digit(c)) return cut_number();
    if (is_name_start(c)) return cut_name();
    if (c == '\'' || c == '"') return cut_string();
    for (const char* const word : {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
                                   "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"}) {
      const std::string text = word;
      if (source_.compare(at_, text.size(), text) != 0) continue;
      follow_brackets(text[0]);
      add(Kind::kOperator, text);
      return pass(text.size());
    }
    refuse("a character that begins nothing: " + shown(at_));
  }

  void follow_brackets(char c) {
    if (c == '(') open_ += ')';
    if (c == '[') open_ += ']';
    if (c == '{') open_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open_.empty() || open_.back() != c) refuse(std::string("a '") + c + "' that closes nothing");
    open_.pop_back();
  }

  void cut_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    add(Kind::kName, source_.substr(at_, end - at_));
    pass(end - at_);
  }

  void cut_number() {
    size_t end = at_;
    const auto skip_digits = [&] {
      while (end < source_.size() && is_digit(source_[end])) ++end;
    };
    const auto is_digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    skip_digits();
    // After a dot, a number is an integer: a path such as messages.0.1 has two integers, not a
    // float.
    const bool is_index = !tokens_.empty() && tokens_.back().kind == Kind::kOperator && tokens_.back().text == ".";
    const bool is_float = !is_index && end < source_.size() && source_[end] == '.' && is_digit_at(end + 1);
    if (is_float) {
      ++end;
      skip_digits();
    }
    if (end < source_.size() && is_name_part(source_[end])) refuse("a number that is not of decimal digits alone");
    const std::string digits = source_.substr(at_, end - at_);
    if (!is_float && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos)
      refuse("a number with a zero in front");
    add(is_float ? Kind::kFloat : Kind::kInteger, digits);
    pass(end - at_);
  }

  void cut_string() {
    const char quote = source_[at_];
    std::string text;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at) {
      if (source_[at] != '\\') {
        text += source_[at];
      } else {
        resolve_escape(at, text);
      }
    }
    if (at >= source_.size()) refuse("a string that does not end");
    add(Kind::kString, text);
    pass(at + 1 - at_);
  }

  // Resolves a Python escape whose backslash is at `at`, and moves `at` to the escape's last
  // character. An unknown escape is kept unchanged.
  void resolve_escape(size_t& at, std::string& text) {
    if (++at >= source_.size()) return;  // the string does not end: cut_string() reports it
    const char c = source_[at];
    constexpr char kShort[] = "n\nt\tr\ra\ab\bf\fv\v\\\\''\"\"";
    for (size_t i = 0; i + 1 < sizeof kShort; i += 2) {
      if (kShort[i] == c) {
        text += kShort[i + 1];
        return;
      }
    }
    if (c == '\n') return;
    if (c == 'x') return resolve_code(at, 2, 16, text);
    if (c == 'u') return resolve_code(at, 4, 16, text);
    if (c == 'U') return resolve_code(at, 8, 16, text);
    if (c == 'N') refuse("the escape \\N in a string");
    if (c >= '0' && c <= '7') {
      --at;
      return resolve_code(at, 3, 8, text);
    }
    text += '\\';
    text += c;
  }

  // Resolves the digits after `at`: exactly `count` hexadecimal digits, or at most `count` octal
  // digits.
  void resolve_code(size_t& at, size_t count, uint32_t base, std::string& text) {
    uint32_t code = 0;
    size_t digits = 0;
    for (; digits < count && at + 1 < source_.size(); ++digits) {
      const char c = source_[at + 1];
      const uint32_t digit = is_digit(c)                          ? static_cast<uint32_t>(c - '0')
                             : (c | 32) >= 'a' && (c | 32) <= 'f' ? static_cast<uint32_t>((c | 32) - 'a' + 10)
                                                                  : 16;
      if (digit >= base) break;
      code = code * base + digit;
      ++at;
    }
    if (base == 16 && digits < count) refuse("an escape of too few digits in a string");
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) refuse("an escape that is no character in a string");
    append_character(text, code);
  }

  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    size_t end = 0;
    for (size_t next = 0; next < rest.size(); end = next) {
      if (!is_python_space(next_character(rest, next))) break;
    }
    pass(end);
  }

  void pass(size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) line_ += source_[at_ + i] == '\n';
    at_ += bytes;
  }

  std::string shown(size_t at) const {
    size_t end = at;
    next_character(source_, end);
    return source_.substr(at, end - at);
  }

  void add(Kind kind, const std::string& text) { tokens_.push_back({kind, text, line_}); }
  [[noreturn]] void refuse(const std::string& reason) const { refuse_at(line_, reason); }
  [[noreturn]] void refuse_at(int line, const std::string& reason) const { refuse_template(name_, line, reason); }

  const std::string source_;
  const std::string name_;
  std::vector<TemplateToken> tokens_;
  std::string open_;  // for each open bracket, outermost first, the bracket that closes it
  size_t at_ = 0;
  int line_ = 1;
  char sign_ = 0;
  bool line_starts_ = true;
};

}  // namespace

std::vector<TemplateToken> cut_template(const std::string& source, const std::string& name) {
  return TemplateLexer(source, name).cut();
}

void refuse_template(const std::string& name, int line, const std::string& reason) {
  constexpr size_t kLongest = 2000;
  std::string shown;
  for (const char c : reason.substr(0, kLongest)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  throw UserError(name + ", line " + std::to_string(line) + ": " + shown);
}

}  // namespace reprise
