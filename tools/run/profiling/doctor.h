// Reports what this machine offers for training. It changes nothing.
#pragma once

#include <cstdint>
#include <string>

#include "lib/host_share.h"
#include "lib/port.h"

namespace reprise {

// Returns the processor's name; "unknown" if the system does not report it.
std::string processor_name();
uint32_t usable_processors();  // number of processors that this process may use

// An NVIDIA card. The main program fills it, because only the main program may use a port.
struct CardReport {
  std::string problem;  // the reason why programs for "cuda" cannot run; "" if they can
  std::string name;     // "" if there is no card, or if it cannot be queried
  // Architecture 87 is sm_87; driver_version 13000 is CUDA 13.0
  uint32_t architecture = 0, multiprocessors = 0, driver_version = 0;
  bool is_integrated = false;
  uint64_t free_bytes = 0, total_bytes = 0;
  uint64_t space_bytes = 0;  // bytes for an arena, if the card can be used
  HostShare host;            // set if the card is integrated and can be used
};
using LookAtCard = CardReport (*)();

// Prints processor, kernel set, number of processors, memory, the card and problems. Returns the
// exit status.
int print_doctor(const Port& port, const CardReport& card, bool json);

}  // namespace reprise
