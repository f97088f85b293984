// What a tokenizer asks of Unicode: where a character ends, whether it is a letter, a number or white space, and the normal forms C and D.
// Here so that only this room and ICU, whose tables answer, know Unicode. Classes are those of Unicode 16, as in the tokenizers of today:
// a short table adds what ICU 72 of Debian 12, which is Unicode 15.0, lacks.
#pragma once

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

// \p{L}, \p{N} and \s of regular expressions, and what is none of them.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

struct Character {
  uint32_t code;
  uint32_t bytes;
  CharacterClass kind;
};

CharacterClass class_of_code(uint32_t code);

inline constexpr std::array<CharacterClass, 128> kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes{};
  for (unsigned char c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = CharacterClass::kLetter;
  for (unsigned char c = '0'; c <= '9'; ++c) classes[c] = CharacterClass::kNumber;
  for (const unsigned char c : {9, 10, 11, 12, 13, 32}) classes[c] = CharacterClass::kSpace;
  return classes;
}();

// The character that begins at text[at], of a text that is UTF-8.
inline Character character_at(std::string_view text, size_t at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t first = bytes[at];
  if (first < 0x80) return {first, 1, kAsciiClasses[first]};
  size_t end = at;
  uint32_t code;
  U8_NEXT_UNSAFE(bytes, end, code);
  return {code, static_cast<uint32_t>(end - at), class_of_code(code)};
}

// Where the character before text[at] begins; at > 0.
inline size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (text[at] & 0xC0) == 0x80);
  return at;
}

// Whether \w of a regular expression would match it.
bool is_word_character(uint32_t code);

// The byte at which the text stops being UTF-8; npos where it is UTF-8 to its end.
size_t first_byte_not_utf8(std::string_view text);

// The text in normal form C, of a text that is UTF-8 and shorter than 2 GiB. `buffer` holds it where it is not the text itself.
// A character that is younger than Unicode 9 stands for itself, and no mark moves past it: the library that Hugging Face's tokenizers
// normalise with (unicode-normalization-alignments) has the tables of Unicode 9, and a model's ids are those of its tokenizer.
std::string_view composed(std::string_view text, std::string& buffer);

// The same in normal form D.
std::string_view decomposed(std::string_view text, std::string& buffer);

}  // namespace reprise
