// Maps bytes to characters and back (see byte_alphabet.h). Each character has one or two bytes in
// UTF-8.
#include "tools/files/tokenizer/byte_alphabet.h"

namespace reprise {
namespace {

constexpr uint16_t kPastAlphabet = 256 + 68;  // 68 of the 256 bytes are not printable
constexpr int16_t kNone = -1;

constexpr std::array<int16_t, kPastAlphabet> kByteOfCharacter = [] {
  std::array<int16_t, kPastAlphabet> bytes{};
  bytes.fill(kNone);
  for (int16_t byte = 0; byte < 256; ++byte) bytes[kCharacterOfByte[static_cast<size_t>(byte)]] = byte;
  return bytes;
}();

}  // namespace

std::string alphabet_character(uint8_t byte) {
  const uint16_t code = kCharacterOfByte[byte];
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

std::string bytes_of_name(const std::string& name) {
  std::string bytes;
  for (size_t at = 0; at < name.size(); ++at) {
    unsigned code = static_cast<uint8_t>(name[at]);
    if (code >= 0x80) {
      const bool two = (code & 0xE0) == 0xC0 && at + 1 < name.size() && (name[at + 1] & 0xC0) == 0x80;
      if (!two) return name;
      code = (code & 0x1F) << 6 | (static_cast<uint8_t>(name[++at]) & 0x3F);
    }
    if (code >= kPastAlphabet || kByteOfCharacter[code] == kNone) return name;
    bytes.push_back(static_cast<char>(kByteOfCharacter[code]));
  }
  return bytes;
}

}  // namespace reprise
