// Converts an exception to a message for the user. The texts of libraries name their own functions,
// but not the file and what would be correct.
#pragma once

#include <exception>
#include <string>

namespace reprise {

// Returns one line for the user. It is the text of a UserError, or the reason of the system or of
// the JSON library. For other exceptions it says that memory is short, or that the program has an
// error.
std::string words_of(const std::exception& error);

}  // namespace reprise
