// Explains a Status to the user.
#pragma once

#include <string>

#include "lib/plan.h"
#include "lib/status.h"

namespace reprise {

// Returns the message with its number explained. Names the row that failed if it is known and
// `plan` is given.
std::string message_of(const Status& status, const Plan* plan = nullptr);

// Throws UserError: `who`, then the message.
[[noreturn]] void fail(const std::string& who, const Status& status, const Plan* plan = nullptr);

}  // namespace reprise
