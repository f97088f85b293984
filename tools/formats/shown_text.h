// Text of a file or of a user as a terminal may show it.
// Here because every message, list and progress line that quotes such text needs the same two rules: nothing that a terminal would obey,
// and nothing longer than a person reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// Returns `text` with everything escaped that a terminal obeys or that hides other text: control characters (C0, DEL and C1), marks that
// change the direction of writing, line and paragraph separators, and characters without a width except joiners. A character becomes "\u001b", as JSON
// writes it; a byte that is not UTF-8 becomes "\x9b". `kept` lists ASCII control characters that stay as they are, for example "\n\t".
std::string escaped_text(std::string_view text, std::string_view kept = "");

// Returns escaped_text(text), cut to `longest` characters; "..." stands for the rest.
std::string shown_text(std::string_view text, size_t longest = 200);

// Returns `text` with each word of more than 200 printable ASCII characters shortened in its middle ("begin...end"): what no person writes, and
// what a file may hold as a name. Other characters end a word, because there are languages without spaces.
std::string shortened_words(std::string_view text);

// Returns `text` as one line of a message: escaped_text with its words shortened; of more than 1,200 bytes the middle is left out, so that the
// file at its begin and the advice at its end stay.
std::string shown_line(std::string_view text);

// Returns how many bytes at the end of `text` begin a character of UTF-8 and lack its rest; 0 if it ends with a whole one.
size_t unfinished_bytes(std::string_view text);

}  // namespace reprise
