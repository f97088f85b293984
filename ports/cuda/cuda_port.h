// The CUDA port: one NVIDIA card, whose arena is the card's memory; workers, files and the clock are the Linux port's.
// A program that links it needs CUDA's kernels (cuda/), which nvcc compiles. It runs on machines without a card or a driver, as far as
// open_backend, which says what is missing.
#pragma once

#include "lib/port.h"

namespace reprise {

const Port& cuda_port();

}  // namespace reprise
