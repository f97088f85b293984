// Writes C++ literals and comments (cpp_text.h).
#include "tools/plan/writing/cpp_text.h"

namespace reprise {

namespace {

// Maximum source bytes of one literal: MSVC accepts 16,380, and ISO C++ requires 65,536.
constexpr size_t kLongestLiteral = 8000;

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

void append_escaped(std::string& out, char c) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '"' || c == '\\' || c == '?') {
    out += {'\\', c};
  } else if (c >= ' ' && c <= '~') {
    out += c;
  } else {
    const unsigned byte = static_cast<unsigned char>(c);
    out += '\\';
    for (const unsigned digit : {byte >> 6, byte >> 3 & 7, byte & 7}) out += static_cast<char>('0' + digit);
  }
}

}  // namespace

std::string cpp_literal(std::string_view text, std::string_view between) {
  std::string out = "\"";
  size_t begin = 0;  // begin of the current literal
  for (size_t i = 0; i < text.size(); ++i) {
    append_escaped(out, text[i]);
    const bool is_full = text[i] == '\n' || out.size() - begin > kLongestLiteral;
    if (!is_full || i + 1 == text.size()) continue;
    out += '"';
    out += between;
    begin = out.size();
    out += '"';
  }
  return out + "\"";
}

std::string cpp_comment(std::string_view text, size_t longest) {
  constexpr std::string_view kSigns = " _.,:;=()[]{}<>/+-#%&@^|~!$'";
  std::string out;
  for (const char c : text.substr(0, longest))
    out += is_letter_or_digit(c) || kSigns.find(c) != std::string_view::npos ? c : '_';
  return text.size() > longest ? out + "..." : out;
}

}  // namespace reprise
