// The alphabet in which byte-level vocabularies are written: each of the 256 bytes is one printable character (GPT-2's encoder).
// Here because files of both formats spell their tokens in it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace reprise {

// The code point of each byte: itself where it is printable in Latin-1, else the next one from 256 on.
inline constexpr std::array<uint16_t, 256> kCharacterOfByte = [] {
  std::array<uint16_t, 256> characters{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}();

// The character of a byte, in UTF-8.
std::string alphabet_character(uint8_t byte);

// The bytes that a token stands for. A name with a character outside the alphabet stands for itself.
std::string bytes_of_name(const std::string& name);

}  // namespace reprise
