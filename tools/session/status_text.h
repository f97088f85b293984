// What a Status means to a person.
#pragma once

#include <string>

#include "lib/plan.h"
#include "lib/status.h"

namespace reprise {

// The message with what its number means, and the row that failed where it is known, and `plan` given.
std::string message_of(const Status& status, const Plan* plan = nullptr);

// Throws UserError with `who` and the message.
[[noreturn]] void fail(const std::string& who, const Status& status, const Plan* plan = nullptr);

}  // namespace reprise
