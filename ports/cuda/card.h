// The card on which a program would run, or the reason why it cannot run there. The port and
// `reprise doctor` share these functions.
#pragma once

#include "lib/host_share.h"
#include "ports/cuda/driver.h"
#include "ports/linux/linux_functions.h"

namespace reprise {

// The minimum architecture. It is the first with asynchronous copies and bf16 products.
constexpr uint32_t kMinArchitecture = 80;

// One card, and what the driver reports of it.
struct Card {
  int device = 0;  // The driver's number of the device.
  char name[128] = {};
  uint32_t architecture = 0;  // For example 87 for compute capability 8.7.
  uint32_t multiprocessors = 0;              // Number of streaming multiprocessors.
  bool is_integrated = false;                // The card uses the host's memory.
  bool has_virtual_memory = false;           // The card can map memory at reserved addresses.
  uint32_t driver_version = 0;               // CUDA version of the driver: 13000 for 13.0.
  void* context = nullptr;                   // Context of the open card; null: closed.
  uint64_t free_bytes = 0, total_bytes = 0;  // Bytes of the card's memory when it was opened.
};

// Opens the first card that the process may use; CUDA_VISIBLE_DEVICES can hide cards. Makes the
// card's context current for the calling thread. Returns kUnsupported, with the reason, if there is
// no card, or if it is older than kMinArchitecture. If it is too old, `card` has the facts that the
// driver reported.
Status open_card(const CudaDriver& driver, Card& card);
// Releases the card's context; does nothing for a closed card.
void close_card(const CudaDriver& driver, Card& card);

// Returns the bytes that an arena may use if the card has `free_bytes` free bytes. On an integrated
// card the host's share (lib/host_share.h) is the limit instead.
uint64_t card_space_bytes(uint64_t free_bytes);

// Returns how the memory of an integrated card is divided between host and arena. `pinned_bytes`
// are the bytes of the process's own staging buffers, which do not count as the system's.
HostShare card_host_share(const LinuxMemory& memory, uint64_t pinned_bytes);

}  // namespace reprise
