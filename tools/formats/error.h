// The one exception that the tools throw at bad input.
// Main programs print its text as one line on stderr and exit with its status.
#pragma once

#include <stdexcept>
#include <string>

namespace reprise {

// `what()` is one line that names the file, the field and what would be right.
struct UserError : std::runtime_error {
  enum Status { kBadInput = 1, kUsage = 2, kDoesNotFit = 3 };
  explicit UserError(const std::string& line, Status exit_status = kBadInput) : std::runtime_error(line), status(exit_status) {}
  Status status;
};

}  // namespace reprise
