// Records the last accesses to each byte of global memory in a launch, and checks that a new access
// is ordered after them. With these records the fibres (cuda_fibre_access.h) and the PTX machine
// (ptx_machine.h) find races in any order of blocks and warps, even if no result changes.
//
// Time is a clock that ticks at barriers, at fences and when a block begins. Two accesses to one
// byte must be ordered if at least one is a write, unless both are atomic. The earlier access is
// ordered before the later access
//   within a block, if one thread makes both, if a barrier of the block is in between, or if both
//     threads are in one warp and a barrier of that warp is in between;
//   between threads, if the byte is handed over: the first thread touches the byte, passes (a
//     barrier and) a fence, and makes an atomic on some address; the second thread reads that
//     address by an atomic, passes a fence (and a barrier), and touches the byte.
// These are the release and acquire patterns of PTX's memory consistency model (PTX ISA, section
// 8). An atomic alone orders nothing, and without the second fence a thread may read old values
// from its L1 cache. An atomic that reads counts as having seen every earlier atomic on its
// address. Launches are ordered. Shuffles and votes between lanes of a warp order no memory.
//
// One rule here is stricter than PTX. Bytes that several blocks have read may not be written in the
// same launch, even if they are handed over.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/ports/fibres/cuda_fibre_device.h"

namespace reprise::fibre {

class GlobalOrder {
 public:
  enum class Access : uint8_t { kRead, kWrite, kAtomic };

  void begin_launch();
  void begin_block(const dim3& index, uint32_t threads);
  void meet_block();
  void meet_warp(uint32_t warp) { warp_barriers_[warp] = ++time_; }
  void fence(uint32_t thread);  // a device-wide fence

  // Records an access by a thread of the running block. `place` is the place of the access in the
  // kernel's code, 0 if unknown. Returns false if the access races with an earlier access. Then
  // race() describes the race, in words that a caller appends to the name of the byte.
  bool note(Access access, uint64_t address, uint32_t bytes, uint32_t thread, uint32_t place = 0);
  uint64_t race_address() const { return race_address_; }
  const std::string& race() const { return race_; }
  // Records that an atomic on `address` may hand over bytes to other threads. If `reads`, the
  // atomic returns the old value, so that its thread may also receive bytes.
  void hand_over(uint64_t address, uint32_t thread, bool reads);

 private:
  // The recorded accesses of one byte. Time 0 means: none in any launch.
  //   written   time << 11 | by an atomic << 10 | thread
  //   read      time << 13 | by several blocks << 12 | by several warps << 11 |
  //             by several threads << 10 | thread
  struct Cell {
    uint64_t written = 0, read = 0;
    bool operator==(const Cell&) const = default;
  };
  static constexpr uint64_t kThread = kMaxThreads - 1, kAtomic = 1u << 10;
  static constexpr uint64_t kThreads = 1u << 10, kWarps = 1u << 11, kBlocks = 1u << 12;
  static constexpr uint64_t kPageBytes = 1024;
  // Places in the code of a byte's last write and last read. They are stored only if callers pass
  // places.
  struct Places {
    uint32_t written = 0, read = 0;
  };
  struct Page {
    Cell cells[kPageBytes];
    std::unique_ptr<Places[]> places;
  };
  enum class Race : uint8_t { kNone, kWritten, kRead, kReadByBlocks };

  // A fence of a thread, and the accesses that are ordered before it: those of the block before the
  // block's and the warp's last barriers, and those of the thread before `time`.
  struct Release {
    uint64_t began = 0, block_barrier = 0, warp_barrier = 0, time = 0;
    uint32_t thread = 0;
    auto operator<=>(const Release&) const = default;
  };
  // A release that a thread of the running block has acquired, and the time at which it did.
  struct Acquired {
    Release release;
    uint64_t time = 0;
    uint32_t thread = 0;
  };
  // Two sets of releases of one thread. `seen`: releases that its atomics have read since its last
  // fence. `fenced`: its last fence, and the releases that are ordered before it; atomics of the
  // thread hand over these.
  struct Exchange {
    std::set<Release> seen, fenced;
  };

  Page& page(uint64_t number);
  bool within_block(uint64_t time, uint32_t thread, uint32_t now) const;
  bool in_order(uint64_t time, uint32_t thread, uint32_t now) const;
  Race after_read(Cell& cell, uint32_t thread) const;
  Race after_write(Cell& cell, uint32_t thread, bool atomic) const;
  std::string text_of(Race race, const Cell& before, const Places& places, Access access) const;
  void keep_places(Access access, uint64_t address, uint32_t bytes, uint32_t place);
  std::string thread_text(uint64_t time, uint64_t thread) const;

  uint64_t time_ = 1, launch_began_ = 1, block_began_ = 1, block_barrier_ = 1;
  std::vector<uint64_t> warp_barriers_;  // time of the last barrier of each warp of the running block
  struct Block {
    uint64_t began;
    dim3 index;
  };
  std::vector<Block> blocks_;                     // the blocks of this launch so far
  std::map<uint64_t, std::set<Release>> handed_;  // releases handed over by atomics; key: address of the atomics
  std::vector<Acquired> acquired_;                // releases that the running block has acquired
  std::map<uint32_t, Exchange> exchanges_;        // key: thread of the running block
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;  // records of accesses, by address / kPageBytes
  struct Met {
    uint64_t number = ~uint64_t{0};
    Page* page = nullptr;
  };
  Met met_[256];
  uint64_t race_address_ = 0;
  std::string race_;
};

}  // namespace reprise::fibre
