// Turns an exception into words for a person.
// Here because the libraries' own texts name their functions, and neither the file nor what would be right.
#pragma once

#include <exception>
#include <string>

namespace reprise {

// Returns one line: UserError's own, what the system says of a path, that memory does not suffice, or that the program has a fault.
std::string words_of(const std::exception& error);

}  // namespace reprise
