// How a CPU kernel says that data are wrong.
#pragma once

#include "lib/backend.h"

namespace reprise {

// The first fault of a step stays; a kernel notes that of its smallest position, whatever the number of workers. No update follows.
inline void note_fault(const KernelContext& context, DataFault code, uint64_t position) {
  if (context.scalars == nullptr || context.scalars->fault.code != DataFault::kNone) return;
  context.scalars->fault = {code, context.row, position};
  context.scalars->skip = 1;
}

}  // namespace reprise
