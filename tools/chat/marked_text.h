// Text whose bytes remember where they come from: from the chat template, or from the sample that it renders.
// Here because a control token that a person types into a message must stay text, while the same letters in the template are the token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// kMarked: the sample's, from a message that whoever renders asked to find again.
enum class TextOrigin : char { kTemplate, kSample, kMarked };

// UTF-8; as many origins as bytes.
struct MarkedText {
  std::string bytes;
  std::string origins;  // a TextOrigin for each byte

  MarkedText() = default;
  MarkedText(std::string text, TextOrigin origin) : bytes(std::move(text)), origins(bytes.size(), static_cast<char>(origin)) {}

  size_t size() const { return bytes.size(); }
  TextOrigin origin(size_t at) const { return static_cast<TextOrigin>(origins[at]); }
  MarkedText piece(size_t begin, size_t end) const;
  void append(const MarkedText& other);
};

// White space as Python's str knows it, which strip() and a template's "-%}" remove.
bool is_python_space(uint32_t code);

// The first and one past the last byte of `text` that white space does not cover. Where there is none: all of the text, and 0.
struct ByteRange {
  size_t begin, end;
};
ByteRange without_space(std::string_view text);

// Where each character begins, and the end of the text. The text is UTF-8.
std::vector<size_t> character_starts(std::string_view text);
size_t count_characters(std::string_view text);

// The code of the character that begins at `at`; `at` becomes where the next one begins.
uint32_t next_character(std::string_view text, size_t& at);
void append_character(std::string& text, uint32_t code);

}  // namespace reprise
