// Reports a failed read or write of the arena, which may be the memory of a card.
#pragma once

#include <string>

#include "lib/status.h"
#include "tools/files/io/error.h"

namespace reprise {

// Throws UserError unless the status is ok.
inline void require_reached(const Status& status) {
  if (!status.ok()) throw UserError(std::string("the arena cannot be reached: ") + status.message);
}

}  // namespace reprise
