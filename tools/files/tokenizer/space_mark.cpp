// See space_mark.h.
#include "tools/files/tokenizer/space_mark.h"

#include <cstdio>

namespace reprise {

namespace {

bool puts_space(std::string_view text, SpaceBefore before, TextPlace place) {
  if (place == TextPlace::kGoesOn || before == SpaceBefore::kNothing) return false;
  if (before == SpaceBefore::kEveryPiece) return true;
  if (text.starts_with(' ') || text.starts_with(kSpaceMark)) return false;
  return before == SpaceBefore::kPieceWithoutSpace || place == TextPlace::kBegins;
}

}  // namespace

std::string_view marked_spaces(std::string_view text, SpaceBefore before, TextPlace place, std::string& buffer) {
  buffer.clear();
  if (puts_space(text, before, place)) buffer += kSpaceMark;
  for (const char c : text) c == ' ' ? void(buffer += kSpaceMark) : buffer.push_back(c);
  return buffer;
}

std::string bytes_of_marked(const FileToken& token) {
  if (token.kind == TokenKind::kControl) return token.name;
  if (token.kind == TokenKind::kByte) return {static_cast<char>(byte_of_name(token.name).value_or(0))};
  std::string bytes;
  for (size_t at = 0; at < token.name.size();) {
    const bool is_mark = std::string_view(token.name).substr(at).starts_with(kSpaceMark);
    bytes.push_back(is_mark ? ' ' : token.name[at]);
    at += is_mark ? kSpaceMark.size() : 1;
  }
  return bytes;
}

std::string name_of_byte(uint8_t byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
  return name;
}

std::optional<uint8_t> byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : name.substr(3, 2)) {
    if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'))) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : c - 'A' + 10);
  }
  return static_cast<uint8_t>(value);
}

}  // namespace reprise
