// How a CPU kernel reports invalid data.
#pragma once

#include "lib/backend.h"

namespace reprise {

// Notes a fault in the step's scalars, if there are any, and sets `skip` so that no update follows.
// Keeps the first fault of the step. A kernel must pass its smallest faulty position, so that the
// report does not depend on the number of workers.
inline void note_fault(const KernelContext& context, DataFault code, uint64_t position) {
  if (context.scalars == nullptr || context.scalars->fault.code != DataFault::kNone) return;
  context.scalars->fault = {code, context.row, position};
  context.scalars->skip = 1;
}

}  // namespace reprise
