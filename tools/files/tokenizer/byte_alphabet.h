// The alphabet of byte-level vocabularies: each of the 256 bytes is written as one printable
// character (GPT-2's encoder). tokenizer.json and GGUF files both write their tokens in it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace reprise {

// The code point for each byte: the byte itself if it is printable in Latin-1, otherwise the next
// free code point from 256 on.
inline constexpr std::array<uint16_t, 256> kCharacterOfByte = [] {
  std::array<uint16_t, 256> characters{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}();

// Returns the character for a byte, in UTF-8.
std::string alphabet_character(uint8_t byte);

// Returns the bytes of the token with this name. If the name has a character outside the alphabet,
// returns the name's own bytes.
std::string bytes_of_name(const std::string& name);

}  // namespace reprise
