// Sizes as people read and write them, patterns for names, and lists of names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// Returns a number of bytes in a readable unit: "512 B", "1.50 MiB". It has three or four
// significant digits; units are powers of 1024.
std::string bytes_text(uint64_t bytes);

// Returns the number of bytes in a text: "512MiB", "1.5 GiB", "700KB", "123". KiB MiB GiB TiB are
// powers of 1024, KB MB GB TB are powers of 1000. One space may precede the unit, as bytes_text
// writes it. A fraction of a byte is dropped. Throws UserError that begins with `field` unless the
// result is from 1 to 2^63 - 1.
uint64_t parse_bytes(const std::string& text, const std::string& field = "bytes");

// True if the whole `name` matches `pattern` as in fnmatch(3) without flags: '*' matches any text,
// including dots, and '?' matches one character. [...] matches one character of a set, and '\'
// quotes the next character.
bool matches_pattern(const std::string& pattern, const std::string& name);
// True if the name, or the part of it after one of its dots, matches: "q_proj" and "0.*.q_proj"
// match "layers.0.self_attn.q_proj".
bool matches_end(const std::string& pattern, const std::string& name);

// Maximum characters of a word in some_of() if the words are sentences.
constexpr size_t kSentence = 600;

// Returns "a, b, c"; for more than eight words "a, b, ... h and 12 more", so that a line stays
// readable. Each word is cut to `longest` characters by shown_text: the default is enough for
// names; for sentences pass kSentence.
std::string some_of(const std::vector<std::string>& words, const std::string& between = ", ", size_t longest = 200);

}  // namespace reprise
