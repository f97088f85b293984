// The card that a program would run on, and what would stop it.
// Here so that the port and `reprise doctor` ask the driver alike.
#pragma once

#include "lib/host_share.h"
#include "ports/cuda/driver.h"
#include "ports/linux/linux_functions.h"

namespace reprise {

constexpr uint32_t kLeastArchitecture = 80;  // asynchronous copies and bf16 products came with it

struct Card {
  int device = 0;
  char name[128] = {};
  uint32_t architecture = 0;  // 87 for compute capability 8.7
  uint32_t multiprocessors = 0;
  bool is_integrated = false;  // its memory is the host's
  bool has_virtual_memory = false;
  uint32_t driver_version = 0;  // of CUDA that the driver knows, 13000 for 13.0
  void* context = nullptr;      // while it is open
  uint64_t free_bytes = 0, total_bytes = 0;  // when it was opened
};

// Opens the first card that the process may use (CUDA_VISIBLE_DEVICES decides which that is), and makes its context the calling thread's.
// kUnsupported with the reason where there is none, or one older than kLeastArchitecture: what is known of it stands in `card` then.
Status open_card(const CudaDriver& driver, Card& card);
void close_card(const CudaDriver& driver, Card& card);

// What an arena may take of a card that has so much free. Of an integrated one its host's share says less.
uint64_t card_room_bytes(uint64_t free_bytes);

// What the host of an integrated card keeps. `pinned_bytes` of what is taken are the process's own staging, which is counted as such.
HostShare card_host_share(const LinuxMemory& memory, uint64_t pinned_bytes);

}  // namespace reprise
