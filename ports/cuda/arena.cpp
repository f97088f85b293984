// See arena.h.
#include "ports/cuda/arena.h"

#include <stdio.h>

namespace reprise {
namespace {

unsigned char* pointer(uint64_t address) { return reinterpret_cast<unsigned char*>(static_cast<uintptr_t>(address)); }

// Reserve, create, map, open to the device: what was done is undone where a later part fails.
Status map_memory(const CudaDriver& driver, uint64_t address, CardArena& arena, const CudaMemoryKind& kind) {
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.create(&arena.handle, arena.mapped_bytes, &kind, 0)));
  Status status = driver_status(driver, driver.map(address, arena.mapped_bytes, 0, arena.handle, 0));
  if (status.ok()) {
    CudaMemoryAccess access;
    access.location = kind.location;
    status = driver_status(driver, driver.set_access(address, arena.mapped_bytes, &access, 1));
    if (status.ok()) return status;
    (void)driver.unmap(address, arena.mapped_bytes);
  }
  (void)driver.release(arena.handle);
  return status;
}

Status take_mapped(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena) {
  if (!card.has_virtual_memory) return {Code::kUnsupported, "the card has no virtual memory management", 0};
  CudaMemoryKind kind;
  kind.location.device = card.device;
  size_t piece = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.granularity(&piece, &kind, 1)));
  if (piece == 0) return {Code::kBackend, "the driver names no granularity of its memory", 0};
  arena.mapped_bytes = (bytes + piece - 1) / piece * piece;
  uint64_t address = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.reserve_addresses(&address, arena.mapped_bytes, 0, 0, 0)));
  const Status mapped = map_memory(driver, address, arena, kind);
  if (!mapped.ok()) (void)driver.free_addresses(address, arena.mapped_bytes);
  if (mapped.ok()) arena.arena = {{pointer(address)}, bytes};
  return mapped;
}

Status take_plain(const CudaDriver& driver, uint64_t bytes, CardArena& arena) {
  uint64_t address = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.allocate(&address, bytes)));
  arena.arena = {{pointer(address)}, bytes};
  return ok_status();
}

char refusal[320];  // a Status has no room for the figures

Status refuse_share(const HostShare& host, uint64_t bytes) {
  (void)snprintf(refusal, sizeof refusal, "the board shares one memory, and %s: plan with a smaller budget", host_share_text(host).text);
  return {Code::kOutOfMemory, refusal, bytes};
}

}  // namespace

Status take_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes, CardArena& arena) {
  arena = {};
  if (bytes == 0) return ok_status();
  size_t free_bytes = 0, total_bytes = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.memory(&free_bytes, &total_bytes)));
  if (bytes > free_bytes) {
    return {Code::kOutOfMemory,
            "the card has less memory free than the arena needs, see `reprise doctor`: end what else uses it, or plan with a smaller budget", bytes};
  }
  if (card.is_integrated && bytes > host.room_bytes()) return refuse_share(host, bytes);
  if (take_mapped(driver, card, bytes, arena).ok()) return ok_status();
  arena = {};
  if (take_plain(driver, bytes, arena).ok()) return ok_status();
  arena = {};
  return {Code::kOutOfMemory,
          card.is_integrated ? "the driver refused the arena: plan with a smaller budget, or reboot, because the board's memory may be in pieces"
                             : "the driver refused the arena: plan with a smaller budget",
          bytes};
}

void give_card_arena(const CudaDriver& driver, CardArena& arena) {
  const uint64_t address = reinterpret_cast<uintptr_t>(arena.arena.base.for_kernels);
  if (address != 0 && arena.mapped_bytes == 0) (void)driver.free(address);
  if (address != 0 && arena.mapped_bytes != 0) {
    (void)driver.unmap(address, arena.mapped_bytes);
    (void)driver.release(arena.handle);
    (void)driver.free_addresses(address, arena.mapped_bytes);
  }
  arena = {};
}

}  // namespace reprise
