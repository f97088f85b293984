// SentencePiece's alphabet. A space is written as U+2581. If a character has no token, each of its
// bytes is written as a token <0xNN>. Files in both formats, tokenizer.json and GGUF, write their
// tokens in this alphabet, and texts are converted to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

inline constexpr std::string_view kSpaceMark = "\u2581";

// Returns the text with the mark in place of each space. A mark is put in front if `before` and
// `place` require it. The result is stored in `buffer`.
std::string_view marked_spaces(std::string_view text, SpaceBefore before, TextPlace place, std::string& buffer);

// Returns the bytes of a token. They are its name with spaces in place of marks, one byte for
// <0xNN>, or the unchanged name of a control token.
std::string bytes_of_marked(const FileToken& token);

// Returns the name of a byte's token, "<0x0A>" for 10; byte_of_name() is the inverse.
std::string name_of_byte(uint8_t byte);
std::optional<uint8_t> byte_of_name(std::string_view name);

}  // namespace reprise
