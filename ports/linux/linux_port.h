// The Linux port: an arena by mmap, workers by pthreads, a spill file, a clock, and the choice of
// the fastest kernels. linux_functions.h documents what each function does in addition to
// lib/port.h.
#pragma once

#include "lib/port.h"

namespace reprise {

// Returns the port's table, which has static storage.
const Port& linux_port();

}  // namespace reprise
