// Text with the origin of each byte: the chat template, or the sample that is rendered. A spelling
// of a control token is that token if the template writes it. If a user types the same characters
// into a message, they must stay plain text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// Origin of a byte. kSample: a part of the sample that has none of the later origins. From
// kFirstPart on: the parts of the messages. Each member of a message except its role has a number,
// in their order.
enum class TextOrigin : uint32_t { kTemplate, kSample, kRole, kTools, kFirstPart };
inline TextOrigin part_origin(size_t part) {
  return static_cast<TextOrigin>(static_cast<size_t>(TextOrigin::kFirstPart) + part);
}

// UTF-8 text with one origin for each byte.
struct MarkedText {
  std::string bytes;
  std::u32string origins;  // a TextOrigin for each byte

  MarkedText() = default;
  MarkedText(std::string text, TextOrigin origin)
      : bytes(std::move(text)), origins(bytes.size(), static_cast<char32_t>(origin)) {}

  size_t size() const { return bytes.size(); }
  TextOrigin origin(size_t at) const { return static_cast<TextOrigin>(origins[at]); }
  MarkedText piece(size_t begin, size_t end) const;
  void append(const MarkedText& other);
  void append(std::string_view text, TextOrigin origin);
};

// True if Python's str counts the character as white space: strip() and a template's "-%}" remove
// it.
bool is_python_space(uint32_t code);

// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin, end;
};
// Returns the range from the first to the last character of `text` that is not white space;
// {text.size(), 0} if there is none.
ByteRange without_space(std::string_view text);

// Returns the offset of each character, and then the end of the text. The text must be UTF-8.
std::vector<size_t> character_starts(std::string_view text);
size_t count_characters(std::string_view text);

// Returns the code point at offset `at`, and moves `at` to the next character.
uint32_t next_character(std::string_view text, size_t& at);
void append_character(std::string& text, uint32_t code);

}  // namespace reprise
