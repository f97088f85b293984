// Text of a recipe or a model as C++ source.
// Here because plan.h is compiled and run: every text that enters it passes one of these two functions, so that no name and no line of a
// recipe can end the comment or the literal around it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// Returns a string literal whose value is `text`, byte for byte. A new one begins behind each newline and where one becomes long, because
// compilers limit the length of one; `between` separates them. Everything outside printable ASCII is escaped, and so are quotes,
// backslashes and question marks (trigraphs). Octal escapes have three digits, so that a digit behind one is not a part of it.
std::string cpp_literal(std::string_view text, std::string_view between = " ");

// Returns `text` as a comment may hold it: each byte that is not an ASCII letter, a digit, a space or one of _.,:;=()[]{}<>/+-#%&@^|~!$'
// becomes '_', and "..." stands for what follows `longest` bytes. So it ends no comment, begins none, and joins no lines.
std::string cpp_comment(std::string_view text, size_t longest = 200);

}  // namespace reprise
