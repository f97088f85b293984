// Copies and appends parts of marked text. Implements the character functions that templates need.
#include "tools/files/chat/marked_text.h"

namespace reprise {

MarkedText MarkedText::piece(size_t begin, size_t end) const {
  MarkedText text;
  text.bytes = bytes.substr(begin, end - begin);
  text.origins = origins.substr(begin, end - begin);
  return text;
}

void MarkedText::append(const MarkedText& other) {
  bytes += other.bytes;
  origins += other.origins;
}

void MarkedText::append(std::string_view text, TextOrigin origin) {
  bytes += text;
  origins.append(text.size(), static_cast<char32_t>(origin));
}

bool is_python_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
         code == 0x205f || code == 0x3000;
}

uint32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(at);
  const size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint32_t code = bytes == 1 ? first : first & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(at + i) & 0x3f);
  at += bytes;
  return code;
}

void append_character(std::string& text, uint32_t code) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

ByteRange without_space(std::string_view text) {
  ByteRange range{text.size(), 0};
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_python_space(next_character(text, at))) continue;
    if (range.begin == text.size()) range.begin = begin;
    range.end = at;
  }
  return range;
}

std::vector<size_t> character_starts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

}  // namespace reprise
