// Unicode functions for tokenizers: where a character ends, whether it is a letter, a number or
// white space, and the normal forms C and D. Only this module and BERT's rules call ICU. Classes
// are those of Unicode 16, as in current tokenizers. ICU 72 of Debian 12 has only Unicode 15.0; a
// short table adds the rest.
#pragma once

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

// The classes \p{L}, \p{N} and \s of regular expressions, and a class for all other characters.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// A decoded character: its code point, its length in UTF-8, its class.
struct Character {
  uint32_t code;
  uint32_t bytes;
  CharacterClass kind;
};

// Returns the class of a code point.
CharacterClass class_of_code(uint32_t code);

inline constexpr std::array<CharacterClass, 128> kAsciiClasses = [] {
  std::array<CharacterClass, 128> classes{};
  for (unsigned char c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 'a' + 'A'] = CharacterClass::kLetter;
  for (unsigned char c = '0'; c <= '9'; ++c) classes[c] = CharacterClass::kNumber;
  for (const unsigned char c : {9, 10, 11, 12, 13, 32}) classes[c] = CharacterClass::kSpace;
  return classes;
}();

// Returns the character that begins at text[at]. The text must be UTF-8.
inline Character character_at(std::string_view text, size_t at) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t first = bytes[at];
  if (first < 0x80) return {first, 1, kAsciiClasses[first]};
  size_t end = at;
  uint32_t code;
  U8_NEXT_UNSAFE(bytes, end, code);
  return {code, static_cast<uint32_t>(end - at), class_of_code(code)};
}

// Returns where the character before text[at] begins. Requires at > 0.
inline size_t character_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (text[at] & 0xC0) == 0x80);
  return at;
}

// True if \w of a regular expression matches the character.
bool is_word_character(uint32_t code);

// Returns the offset of the first byte that is not UTF-8; npos if the whole text is UTF-8.
size_t first_byte_not_utf8(std::string_view text);

// Returns the text in normal form C: the text itself, or a view of `buffer`. It must be UTF-8 of
// less than 2 GiB. Characters that are newer than Unicode 9 are unchanged, and no mark moves past
// them. The reason is that Hugging Face's tokenizers normalise with a library
// (unicode-normalization-alignments) that has the tables of Unicode 9.
std::string_view composed(std::string_view text, std::string& buffer);

// Returns the text in normal form D, with the same rules as composed().
std::string_view decomposed(std::string_view text, std::string& buffer);

}  // namespace reprise
