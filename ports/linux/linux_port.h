// The Linux port: an arena by mmap, workers by pthreads, a spill file, a clock, and the choice of the fastest kernels.
// Here because only a port knows its operating system; what each function promises beyond lib/port.h stands in linux_functions.h.
#pragma once

#include "lib/port.h"

namespace reprise {

const Port& linux_port();

}  // namespace reprise
