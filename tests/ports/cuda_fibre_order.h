// Who touched each byte of global memory last while a launch runs, and whether anything orders him before who touches it now.
// Here so that the fibres (cuda_fibre_access.h) and the PTX machine (ptx_machine.h) find races in any order in which they run blocks and
// warps, and need no result that has changed.
//
// Time is a clock that ticks at barriers, at fences and where a block begins. Of two accesses to one byte, one of them a write and not
// both atomic, the earlier is in order before the later
//   within a block, if they are of one thread, if a barrier of the block lies in between, or if they are of one warp that has met;
//   between threads, if it is handed over: the one touches the byte, (a barrier,) a fence, an atomic on some address; the other reads
//   that address by an atomic, a fence, (a barrier,) and touches the byte.
// Those are the release and the acquire pattern of PTX's memory consistency model (PTX ISA, section 8): an atomic alone orders nothing,
// and without the second fence a thread may see what its first cache has kept. An atomic that reads has seen every atomic on that address
// before it. Launches are in order. What lanes of a warp exchange by shuffles and votes orders no memory.
//
// One rule is stricter: bytes that several blocks have read may not be written in the same launch, handed over or not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/ports/cuda_fibre_device.h"

namespace reprise::fibre {

class GlobalOrder {
 public:
  enum class Access : uint8_t { kRead, kWrite, kAtomic };

  void begin_launch();
  void begin_block(const dim3& index, uint32_t threads);
  void meet_block();
  void meet_warp(uint32_t warp) { warp_barriers_[warp] = ++time_; }
  void fence(uint32_t thread);  // for the whole device

  // By a thread of the block that runs, at a place of the kernel's code where the caller knows one, else 0. False: it races with an earlier
  // one, as race() says in words that follow the name of a byte.
  bool note(Access access, uint64_t address, uint32_t bytes, uint32_t thread, uint32_t place = 0);
  uint64_t race_address() const { return race_address_; }
  const std::string& race() const { return race_; }
  // An atomic's part in handing over; `reads`: it gives back what was there.
  void hand_over(uint64_t address, uint32_t thread, bool reads);

 private:
  // What is known of a byte. Time 0 is before every launch.
  //   written   time << 11 | by an atomic << 10 | thread
  //   read      time << 13 | by several blocks << 12 | by several warps << 11 | by several threads << 10 | thread
  struct Cell {
    uint64_t written = 0, read = 0;
    bool operator==(const Cell&) const = default;
  };
  static constexpr uint64_t kThread = kMaxThreads - 1, kAtomic = 1u << 10;
  static constexpr uint64_t kThreads = 1u << 10, kWarps = 1u << 11, kBlocks = 1u << 12;
  static constexpr uint64_t kPageBytes = 1024;
  // Where in the code a byte was touched last; kept where callers give places.
  struct Places {
    uint32_t written = 0, read = 0;
  };
  struct Page {
    Cell cells[kPageBytes];
    std::unique_ptr<Places[]> places;
  };
  enum class Race : uint8_t { kNone, kWritten, kRead, kReadByBlocks };

  // All that lies before a thread's fence: from its block's begin what the barriers had ordered before it, and what it did itself.
  struct Release {
    uint64_t began = 0, block_barrier = 0, warp_barrier = 0, time = 0;
    uint32_t thread = 0;
    auto operator<=>(const Release&) const = default;
  };
  // What a thread of the block that runs has been handed, and when.
  struct Acquired {
    Release release;
    uint64_t time = 0;
    uint32_t thread = 0;
  };
  struct Exchange {
    std::set<Release> seen, fenced;  // by atomics since the last fence; what the last fence had behind it
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
  std::vector<uint64_t> warp_barriers_;
  struct Block {
    uint64_t began;
    dim3 index;
  };
  std::vector<Block> blocks_;                     // of this launch
  std::map<uint64_t, std::set<Release>> handed_;  // by the address of an atomic
  std::vector<Acquired> acquired_;                // by the block that runs
  std::map<uint32_t, Exchange> exchanges_;        // of its threads
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  struct Met {
    uint64_t number = ~uint64_t{0};
    Page* page = nullptr;
  };
  Met met_[256];
  uint64_t race_address_ = 0;
  std::string race_;
};

}  // namespace reprise::fibre
