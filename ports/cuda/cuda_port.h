// The CUDA port: one NVIDIA card, with the arena in the card's memory. Workers, files and the clock
// are the Linux port's.
// A program that links this port also needs CUDA's kernels (cuda/), which nvcc compiles. The
// program starts even on a machine without a card or a driver; open_backend then returns what is
// missing.
#pragma once

#include "lib/port.h"

namespace reprise {

// Returns the port's table, which has static storage.
const Port& cuda_port();

}  // namespace reprise
