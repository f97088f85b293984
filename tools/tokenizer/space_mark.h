// SentencePiece's alphabet of characters: a space is the character U+2581, and a byte of a character that is no token is a token <0xNN>.
// Here because files of both formats spell their tokens so, and texts are brought into it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

inline constexpr std::string_view kSpaceMark = "\u2581";

// The text with the mark in place of each space, and one before it where that is due. `buffer` holds it.
std::string_view marked_spaces(std::string_view text, SpaceBefore before, TextPlace place, std::string& buffer);

// The bytes that a token stands for: its name with spaces in place of marks, or of <0xNN> one byte.
std::string bytes_of_marked(const FileToken& token);

// "<0x0A>" of 10, and back.
std::string name_of_byte(uint8_t byte);
std::optional<uint8_t> byte_of_name(std::string_view name);

}  // namespace reprise
