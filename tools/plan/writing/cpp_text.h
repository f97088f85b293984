// Writes text of a recipe or a model as C++ source. plan.h is compiled and run, so every such text
// in it passes one of these two functions. Then no name and no line of a recipe can end the comment
// or the literal around it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// Returns string literals whose value is `text`, byte for byte. A new literal begins after each
// newline, and after about 8,000 bytes, because compilers limit the length of a literal. `between`
// separates the literals. Everything outside printable ASCII is escaped, and so are quotes,
// backslashes and question marks (trigraphs). Octal escapes have three digits, so that a following
// digit is not read as a part of the escape.
std::string cpp_literal(std::string_view text, std::string_view between = " ");

// Returns `text` for use in a comment: each byte that is not an ASCII letter, a digit, a space or
// one of _.,:;=()[]{}<>/+-#%&@^|~!$' becomes '_', and "..." replaces what follows `longest` bytes.
// So the result neither begins nor ends a comment, and has no backslash that would join two lines.
std::string cpp_comment(std::string_view text, size_t longest = 200);

}  // namespace reprise
