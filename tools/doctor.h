// What this machine offers to a training.
// Here so that a person can look before training. It changes nothing.
#pragma once

#include <cstdint>
#include <string>

#include "lib/host_share.h"
#include "lib/port.h"

namespace reprise {

std::string processor_name();
uint32_t usable_processors();  // by this process

// An NVIDIA card. The main program looks for it, because only it may ask a port.
struct CardReport {
  std::string problem;  // what would stop a program for "cuda"; "" where nothing would
  std::string name;     // "" where there is none, or it cannot be asked
  uint32_t architecture = 0, multiprocessors = 0, driver_version = 0;  // 87 is sm_87; 13000 is CUDA 13.0
  bool is_integrated = false;
  uint64_t free_bytes = 0, total_bytes = 0;
  uint64_t room_bytes = 0;  // for an arena, of one that can be used
  HostShare host;  // of an integrated one that can be used
};
using LookAtCard = CardReport (*)();

// Prints processor features, kernel set, cores, memory, the card and what is missing; answers the exit status.
int print_doctor(const Port& port, const CardReport& card, bool json);

}  // namespace reprise
