// Implements arena.h with the driver's virtual memory, and with plain or pinned memory as
// fallbacks.
#include "ports/cuda/arena.h"

#include <stdio.h>

namespace reprise {
namespace {

unsigned char* pointer(uint64_t address) { return reinterpret_cast<unsigned char*>(static_cast<uintptr_t>(address)); }

uint64_t address_of(const CardArena& arena) { return reinterpret_cast<uintptr_t>(arena.arena.base.for_kernels); }

CudaMemoryKind kind_of(const Card& card) {
  CudaMemoryKind kind;
  kind.location.device = card.device;
  return kind;
}

// Creates physical memory, maps it and gives the device access. If one of these calls fails, the
// calls before it are undone.
Status map_piece(const CudaDriver& driver, const Card& card, uint64_t address, CardArena::Piece& piece) {
  const CudaMemoryKind kind = kind_of(card);
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.create(&piece.handle, piece.bytes, &kind, 0)));
  Status status = driver_status(driver, driver.map(address, piece.bytes, 0, piece.handle, 0));
  if (status.ok()) {
    CudaMemoryAccess access;
    access.location = kind.location;
    status = driver_status(driver, driver.set_access(address, piece.bytes, &access, 1));
    if (status.ok()) return status;
    (void)driver.unmap(address, piece.bytes);
  }
  (void)driver.release(piece.handle);
  return status;
}

Status reserve_addresses(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena) {
  if (!card.has_virtual_memory)
    return {Code::kUnsupported, "the card has no virtual memory management, so its arena keeps its size", 0};
  const CudaMemoryKind kind = kind_of(card);
  size_t granularity = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.granularity(&granularity, &kind, 1)));
  if (granularity == 0) return {Code::kBackend, "the driver names no granularity of its memory", 0};
  const uint64_t rounded = (bytes + granularity - 1) / granularity * granularity;
  uint64_t address = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.reserve_addresses(&address, rounded, 0, 0, 0)));
  arena.arena = {{pointer(address)}, 0, bytes};
  arena.address_bytes = rounded;
  arena.granularity = granularity;
  return ok_status();
}

// Changes the size of the arena to `bytes`. Maps one more piece after the last one if the mapped
// bytes do not suffice.
Status grow(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena) {
  const uint64_t end = (bytes + arena.granularity - 1) / arena.granularity * arena.granularity;
  if (end > arena.mapped_bytes) {
    if (arena.piece_count == CardArena::kMaxPieces || end > arena.address_bytes) {
      return {Code::kUnsupported, "the arena cannot grow so far, or so often", bytes};
    }
    CardArena::Piece piece = {0, arena.mapped_bytes, end - arena.mapped_bytes};
    REPRISE_RETURN_IF_ERROR(map_piece(driver, card, address_of(arena) + piece.begin, piece));
    arena.pieces[arena.piece_count++] = piece;
    arena.mapped_bytes = end;
  }
  arena.arena.bytes = bytes;
  return ok_status();
}

// Unmaps every piece that begins at or after the new end of the arena, and sets the arena's size.
void shrink(const CudaDriver& driver, uint64_t bytes, CardArena& arena) {
  while (arena.piece_count > 0 && arena.pieces[arena.piece_count - 1].begin >= bytes) {
    const CardArena::Piece& piece = arena.pieces[--arena.piece_count];
    (void)driver.unmap(address_of(arena) + piece.begin, piece.bytes);
    (void)driver.release(piece.handle);
    arena.mapped_bytes = piece.begin;
  }
  arena.arena.bytes = bytes;
}

Status take_mapped(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena) {
  REPRISE_RETURN_IF_ERROR(reserve_addresses(driver, card, bytes, arena));
  const Status grown = grow(driver, card, bytes, arena);
  arena.arena.reserved_bytes = 0;
  if (!grown.ok()) give_card_arena(driver, arena);
  return grown;
}

Status take_plain(const CudaDriver& driver, uint64_t bytes, CardArena& arena) {
  uint64_t address = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.allocate(&address, bytes)));
  arena.arena = {{pointer(address)}, bytes};
  return ok_status();
}

// Acquires pinned memory of the host. With unified addressing, which every 64-bit board has, the
// card reads it at the host's address (CUDA driver API, "Unified Addressing").
Status take_pinned(const CudaDriver& driver, uint64_t bytes, CardArena& arena) {
  void* memory = nullptr;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.allocate_pinned(&memory, bytes)));
  arena.arena = {{static_cast<unsigned char*>(memory)}, bytes};
  arena.is_pinned = true;
  return ok_status();
}

char refusal[320];  // static: a Status cannot store a formatted text

unsigned long long mebibytes_up(uint64_t bytes) { return (bytes >> 20) + ((bytes & 0xfffff) != 0); }

// Checks memory that the board shares with its system. The system can free the pages of cached
// files for a program. The driver does not count these pages as free, and would refuse arenas that
// fit. So only the system's number is used.
Status require_share(const HostShare& host, uint64_t more, uint64_t bytes) {
  if (more <= host.space_bytes()) return ok_status();
  (void)snprintf(
      refusal, sizeof refusal,
      "the arena takes %llu MiB of the one memory that the board shares, %llu are left: %s; plan with a smaller budget",
      mebibytes_up(more), static_cast<unsigned long long>(host.space_bytes() >> 20), host_share_text(host).text);
  return {Code::kOutOfMemory, refusal, bytes};
}

// Checks that the card has `more` free bytes for an arena of `bytes` bytes, in addition to the
// headroom.
Status require_space(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t more, uint64_t bytes) {
  if (card.is_integrated) return require_share(host, more, bytes);
  size_t free_bytes = 0, total_bytes = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.memory(&free_bytes, &total_bytes)));
  if (more <= card_space_bytes(free_bytes)) return ok_status();
  (void)snprintf(refusal, sizeof refusal,
                 "the card has less room than the arena needs: %llu MiB of the %llu that it takes, see `reprise "
                 "doctor`: end what else uses it, or plan with a smaller budget",
                 static_cast<unsigned long long>(card_space_bytes(free_bytes) >> 20), mebibytes_up(more));
  return {Code::kOutOfMemory, refusal, bytes};
}

Status driver_refused(const Card& card, uint64_t bytes) {
  return {Code::kOutOfMemory,
          card.is_integrated ? "the driver refused the arena: plan with a smaller budget, or reboot, because the "
                               "board's memory may be in pieces"
                             : "the driver refused the arena: plan with a smaller budget",
          bytes};
}

}  // namespace

Status take_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes,
                       CardArena& arena) {
  arena = {};
  if (bytes == 0) return ok_status();
  REPRISE_RETURN_IF_ERROR(require_space(driver, card, host, bytes, bytes));
  if (take_mapped(driver, card, bytes, arena).ok()) return ok_status();
  arena = {};
  if (take_plain(driver, bytes, arena).ok()) return ok_status();
  arena = {};
  if (card.is_integrated && take_pinned(driver, bytes, arena).ok()) return ok_status();
  arena = {};
  return driver_refused(card, bytes);
}

Status reserve_card_arena(const CudaDriver& driver, const Card& card, uint64_t bytes, CardArena& arena) {
  arena = {};
  const Status reserved = reserve_addresses(driver, card, bytes, arena);
  return reserved.ok() || reserved.code == Code::kUnsupported
             ? reserved
             : Status{Code::kUnsupported, "the driver maps no memory, so the arena keeps its size", 0};
}

Status resize_card_arena(const CudaDriver& driver, const Card& card, const HostShare& host, uint64_t bytes,
                         CardArena& arena) {
  if (arena.arena.reserved_bytes == 0) return {Code::kUnsupported, "the arena was taken whole and keeps its size", 0};
  if (bytes <= arena.arena.bytes) {
    shrink(driver, bytes, arena);
    return ok_status();
  }
  REPRISE_RETURN_IF_ERROR(require_space(driver, card, host, bytes - arena.arena.bytes, bytes));
  const Status grown = grow(driver, card, bytes, arena);
  return grown.ok() || grown.code == Code::kUnsupported ? grown : driver_refused(card, bytes);
}

void give_card_arena(const CudaDriver& driver, CardArena& arena) {
  const uint64_t address = address_of(arena);
  if (arena.is_pinned) {
    (void)driver.free_pinned(arena.arena.base.for_kernels);
  } else if (address != 0 && arena.address_bytes == 0) {
    (void)driver.free(address);
  }
  if (address != 0 && arena.address_bytes != 0) {
    shrink(driver, 0, arena);
    (void)driver.free_addresses(address, arena.address_bytes);
  }
  arena = {};
}

}  // namespace reprise
