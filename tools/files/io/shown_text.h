// Makes text from a file or a user safe to show in a terminal. Messages, lists and progress lines
// quote such text. The shown text must not contain characters that a terminal interprets, or be
// longer than a person reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// Returns `text` with all characters escaped that a terminal interprets or that hide other text.
// These are control characters (C0, DEL and C1), marks that change the direction of writing, line
// and paragraph separators, and characters without a width except joiners. A character becomes
// "\u001b", as in JSON; a byte that is not UTF-8 becomes "\x9b". `kept` lists ASCII control
// characters that are not escaped, for example "\n\t".
std::string escaped_text(std::string_view text, std::string_view kept = "");

// Returns escaped_text(text), cut to `longest` characters; "..." replaces the rest.
std::string shown_text(std::string_view text, size_t longest = 200);

// Returns `text` with each word of more than 200 printable ASCII characters shortened in its middle
// ("begin...end"). People do not write such words, but a file may contain one as a name. Other
// characters end a word, because some languages have no spaces.
std::string shortened_words(std::string_view text);

// Returns `text` as one line of a message: the result of escaped_text with long words shortened. If
// it has more than 1,200 bytes, its middle is left out, so that the file at the beginning and the
// advice at the end remain.
std::string shown_line(std::string_view text);

// Returns how many bytes at the end of `text` are the beginning of an incomplete UTF-8 character.
// Returns 0 if the last character is complete, or if the end is not UTF-8.
size_t unfinished_bytes(std::string_view text);

}  // namespace reprise
