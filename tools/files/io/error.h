// The exception that the tools throw for bad input. Main programs print its text as one line on
// stderr and exit with its status.
#pragma once

#include <stdexcept>
#include <string>

namespace reprise {

// An error for the user. what() is one line that names the file, the field and what would be
// correct.
struct UserError : std::runtime_error {
  enum Status : int { kBadInput = 1, kUsage = 2, kDoesNotFit = 3 };  // status may also be 128 plus a signal's number
  // Stores shown_line(line) (tools/files/io/shown_text.h), because a message often quotes text of a
  // file.
  explicit UserError(const std::string& line, Status exit_status = kBadInput);
  Status status;
};

// An error of work that reached a limit of the program, for example of time. Readers that skip bad
// records do not skip this error, because the next record could take as long.
struct LimitError : UserError {
  using UserError::UserError;
};

}  // namespace reprise
