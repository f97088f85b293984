// The error of a read or write of the arena that failed, for whoever moves the state between files and the arena.
// Here because an arena may be a card's, which a copy may not reach.
#pragma once

#include <string>

#include "lib/status.h"
#include "tools/formats/error.h"

namespace reprise {

inline void require_reached(const Status& status) {
  if (!status.ok()) throw UserError(std::string("the arena cannot be reached: ") + status.message);
}

}  // namespace reprise
