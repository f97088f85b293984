// Quotes words of commands that a user may copy into a shell.
#pragma once

#include <string>

namespace reprise {

// Returns `word` in a form that a shell reads as this word: in single quotes if it has characters
// that a shell interprets.
std::string shell_word(const std::string& word);

}  // namespace reprise
