// What this machine offers to a training.
// Here so that a person can look before training.
// It must not change anything.
#pragma once

#include <cstdint>
#include <string>

#include "lib/port.h"

namespace reprise {

std::string processor_name();
uint32_t usable_processors();  // by this process

// Prints processor features, kernel set, cores, memory and what is missing; answers the exit status.
int print_doctor(const Port& port, bool json);

}  // namespace reprise
