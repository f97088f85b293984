// Text that means the same everywhere: sizes as people read and write them, patterns over names, and lists of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// "512 B", "1.50 MiB": three or four significant digits, powers of 1024.
std::string bytes_text(uint64_t bytes);

// "512MiB", "1.5 GiB", "700KB", "123": KiB MiB GiB TiB are powers of 1024, KB MB GB TB of 1000; one space may stand
// before the unit, as bytes_text writes it; a fraction of a byte is dropped. From 1 to 2^63 - 1. Throws UserError whose
// line starts with `field`.
uint64_t parse_bytes(const std::string& text, const std::string& field = "bytes");

// True where the whole `name` matches `pattern`, in which '*' stands for any text, dots too, and '?' for any one
// character.
bool matches_pattern(const std::string& pattern, const std::string& name);
// The same of the name or of one of its ends behind a dot: "q_proj" and "0.*.q_proj" match "layers.0.self_attn.q_proj".
bool matches_end(const std::string& pattern, const std::string& name);

// The longest of a sentence in a list of some_of.
constexpr size_t kSentence = 600;

// "a, b, c"; of more than eight "a, b, ... h and 12 more", so that a line stays one that is read; each word as shown_text shows it, at most
// `longest` characters: a name has no more, a sentence may (kSentence).
std::string some_of(const std::vector<std::string>& words, const std::string& between = ", ", size_t longest = 200);

}  // namespace reprise
