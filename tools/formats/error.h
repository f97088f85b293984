// The one exception that the tools throw at bad input.
// Main programs print its text as one line on stderr and exit with its status.
#pragma once

#include <stdexcept>
#include <string>

namespace reprise {

// `what()` is one line that names the file, the field and what would be right.
struct UserError : std::runtime_error {
  enum Status : int { kBadInput = 1, kUsage = 2, kDoesNotFit = 3 };  // or 128 and a signal
  // Stores shown_line(line) of tools/formats/shown_text.h, because a message often quotes a file.
  explicit UserError(const std::string& line, Status exit_status = kBadInput);
  Status status;
};

// Work that was ended by a limit of the program. Who passes over bad records does not pass over this one: the next record could take as long.
struct LimitError : UserError {
  using UserError::UserError;
};

}  // namespace reprise
