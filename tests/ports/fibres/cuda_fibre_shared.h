// The shared memory of a block under the fibres: its bytes, and for each byte the last accesses and
// their times. Times alone decide whether accesses race, not the order in which the scheduler runs
// threads. So this file is separate from the scheduler.
//
// Time is a clock that ticks at every barrier of the block or of one of its warps. Two accesses are
// ordered if one thread makes both. They are also ordered if a barrier is between them, of the
// block or of a warp that contains both threads.
//
//  0            dynamic bytes          static arrays, in order of first access            99 KiB
//  | REPRISE_DYNAMIC_SHARED | REPRISE_SHARED ... | REPRISE_SHARED ... |
//
// Bytes that an asynchronous copy will write are in flight until the thread that issued the copy
// has waited for it. Then the bytes count as written by that thread at that time, so other threads
// need a later barrier.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace reprise::fibre {

enum class Fault : uint8_t {
  kNone,
  kRace,
  kUnwritten,
  kInFlight,
  kOutOfBounds,
  kMisaligned,
  kDivergence,
  kShuffle,
  kLaunch,
  kQueue,
  kForgotten,
};

constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kMaxThreads = 1024;                // threads of a block
constexpr uint32_t kMaxSharedBytes = 99 * 1024;       // bytes of a block on sm_86, sm_89 and sm_120; others have more
constexpr uint32_t kMaxParameterBytes = 4096;
constexpr uint32_t kMaxStaticSharedBytes = 48 * 1024;  // nvcc's limit of static shared memory

// The thread and time of an access, and the times of its thread's last barriers. Accesses of other
// threads are ordered before it only if they were made before these barriers.
struct Moment {
  uint32_t thread = 0;
  uint32_t clock = 0;          // the current time
  uint32_t block_barrier = 0;  // time of the last barrier of the block
  uint32_t warp_barrier = 0;   // time of the last barrier of the thread's warp
  bool whole_warp = false;     // true: all lanes of the warp access the bytes together
  uint32_t place = 0;          // place in the kernel's code (code_places.h); 0 if unknown
};

// The fault of an access, if any.
struct Finding {
  Fault fault = Fault::kNone;
  uint32_t offset = 0;      // offset of the byte in shared memory
  uint32_t other = 0;       // thread that accessed the byte earlier
  bool other_read = false;  // true: `other` read the byte; false: `other` wrote it
  bool others = false;      // true: further threads, besides `other`, have read the byte
  uint32_t place = 0;       // place of the earlier access in the code; 0 if places are not stored
};

class SharedMemory {
 public:
  static constexpr uint32_t kMaxTicks = 1u << 20;  // limit of a clock; its values are smaller

  // Begins a block: all bytes become unwritten. Returns the clock with which the block begins.
  uint32_t begin_block(uint32_t clock, uint32_t dynamic_bytes);
  uint32_t dynamic_bytes() const { return dynamic_bytes_; }
  // Starts or stops recording, for each byte, the place in the code that accessed it last.
  void keep_places(bool keep) { places_ = keep ? std::make_unique<Places[]>(kMaxSharedBytes) : nullptr; }

  // Allocates a static array of the running block, and sets `offset` to its offset. Returns false
  // if the block's static arrays would exceed kMaxStaticSharedBytes, or all its shared memory
  // kMaxSharedBytes.
  bool allocate(uint64_t bytes, uint32_t& offset);

  // Records and performs an access. The caller has checked that the bytes exist.
  Finding read(uint32_t offset, uint32_t bytes, const Moment& now, void* value) {
    const Finding finding = note<&SharedMemory::after_read>(offset, bytes, now);
    std::memcpy(value, bytes_.get() + offset, bytes);
    return finding;
  }
  Finding write(uint32_t offset, uint32_t bytes, const Moment& now, const void* value) {
    const Finding finding = note<&SharedMemory::after_write>(offset, bytes, now);
    std::memcpy(bytes_.get() + offset, value, bytes);
    return finding;
  }
  // Records the three stages of a copy. begin_copy(): the copy is issued. land_copy(): the bytes
  // arrive. end_copy(): the thread that issued the copy has waited for it.
  Finding begin_copy(uint32_t offset, uint32_t bytes, const Moment& now) {
    return note<&SharedMemory::after_issue>(offset, bytes, now);
  }
  void land_copy(uint32_t offset, uint32_t bytes, uint32_t valid_bytes, const void* source) {
    std::memset(bytes_.get() + offset, 0, bytes);
    if (valid_bytes != 0) std::memcpy(bytes_.get() + offset, source, valid_bytes);
  }
  void end_copy(uint32_t offset, uint32_t bytes, const Moment& now) {
    for (uint32_t i = 0; i < bytes; ++i) cells_[offset + i].written = written_by(now);
  }

 private:
  // The recorded accesses of one byte. Clock 0 means that no block has accessed the byte.
  //   written   clock << 11 | in flight << 10 | thread
  //   read      clock << 12 | by several warps << 11 | by several threads << 10 | thread
  struct Cell {
    uint32_t written = 0, read = 0;
    bool operator==(const Cell& other) const { return written == other.written && read == other.read; }
  };
  struct Places {
    uint32_t written = 0, read = 0;
  };
  static constexpr uint32_t kThread = kMaxThreads - 1, kInFlight = 1u << 10, kThreads = 1u << 10, kWarps = 1u << 11;

  static uint32_t written_by(const Moment& now) { return now.clock << 11 | now.thread; }
  static bool same_warp(uint32_t a, uint32_t b) { return (a & kThread) / kWarpLanes == (b & kThread) / kWarpLanes; }
  static bool in_order(uint32_t clock, uint32_t thread, const Moment& now) {
    return clock < now.block_barrier || (clock < now.warp_barrier && same_warp(thread, now.thread));
  }
  static bool same_thread(uint32_t thread, const Moment& now) {
    return (thread & kThread) == now.thread && !now.whole_warp;
  }
  static bool races_with_write(const Cell& cell, const Moment& now) {
    return !same_thread(cell.written, now) && !in_order(cell.written >> 11, cell.written, now);
  }
  static bool races_with_read(const Cell& cell, const Moment& now) {
    const uint32_t clock = cell.read >> 12;
    if (clock < now.block_barrier) return false;
    if ((cell.read & kWarps) != 0 || !same_warp(cell.read, now.thread)) return true;
    return clock >= now.warp_barrier && ((cell.read & kThreads) != 0 || !same_thread(cell.read, now));
  }

  Fault after_read(Cell& cell, const Moment& now) const {
    if (cell.written >> 11 < block_began_) return Fault::kUnwritten;
    if ((cell.written & kInFlight) != 0) return Fault::kInFlight;
    if (races_with_write(cell, now)) return Fault::kRace;
    uint32_t readers = now.whole_warp ? kThreads : 0;
    if (const uint32_t clock = cell.read >> 12; clock >= now.block_barrier) {
      readers |= cell.read & kWarps;
      if (!same_warp(cell.read, now.thread)) {
        readers |= kWarps;
      } else if (clock >= now.warp_barrier) {  // otherwise a barrier of the warp orders its earlier readers
        readers |= cell.read & kThreads;
        if (!same_thread(cell.read, now)) readers |= kThreads;
      }
    }
    cell.read = now.clock << 12 | readers | now.thread;
    return Fault::kNone;
  }
  Fault after_write(Cell& cell, const Moment& now) const {
    if (cell.written >> 11 >= block_began_ && (cell.written & kInFlight) != 0) return Fault::kInFlight;
    if (races_with_write(cell, now) || races_with_read(cell, now)) return Fault::kRace;
    cell.written = written_by(now);
    return Fault::kNone;
  }
  Fault after_issue(Cell& cell, const Moment& now) const {
    const Fault fault = after_write(cell, now);
    cell.written |= kInFlight;
    return fault;
  }

  // Records an access to each of its bytes. Neighbouring bytes nearly always have equal records;
  // such bytes are not checked again.
  template <Fault (SharedMemory::*kAfter)(Cell&, const Moment&) const>
  Finding note(uint32_t offset, uint32_t bytes, const Moment& now) {
    Cell before, after;
    for (uint32_t i = offset; i < offset + bytes; ++i) {
      if (i == offset || !(cells_[i] == before)) {
        before = after = cells_[i];
        const Fault fault = (this->*kAfter)(after, now);
        if (fault != Fault::kNone) return finding(fault, i, before, now);
      }
      cells_[i] = after;
    }
    if (places_ != nullptr) {
      for (uint32_t i = offset; i < offset + bytes; ++i)
        (kAfter == &SharedMemory::after_read ? places_[i].read : places_[i].written) = now.place;
    }
    return {};
  }

  Finding finding(Fault fault, uint32_t offset, const Cell& before, const Moment& now) const;

  std::unique_ptr<Places[]> places_;  // null: places are not stored
  std::unique_ptr<unsigned char[]> bytes_ = std::make_unique<unsigned char[]>(kMaxSharedBytes);
  std::unique_ptr<Cell[]> cells_ = std::make_unique<Cell[]>(kMaxSharedBytes);
  uint32_t block_began_ = 1, dynamic_bytes_ = 0, used_bytes_ = 0, static_bytes_ = 0;
};

// Returns the text of a finding, which the caller appends to a text like "thread 3 reads tile[5]".
std::string text_of(const Finding& finding);

// ---- banks ----

// Counts of warps' accesses and of their wavefronts. Shared memory has 32 banks of 4 bytes, each of
// which delivers one word per wavefront. An access needs one wavefront for every 128 bytes that its
// lanes address, in the order of the lanes. It needs further wavefronts if these bytes contain
// several words of one bank.
struct BankCount {
  uint64_t accesses = 0;    // accesses by warps
  uint64_t wavefronts = 0;  // wavefronts of all accesses
  uint64_t minimum = 0;       // wavefronts that all accesses would take without conflicts

  uint64_t conflicts() const { return wavefronts - minimum; }
};
struct BankCounts {
  BankCount matrices, copies, loads, stores;

  uint64_t conflicts() const {
    return matrices.conflicts() + copies.conflicts() + loads.conflicts() + stores.conflicts();
  }
};

struct WarpAddresses {
  uint32_t lanes = 0;  // bit mask of the lanes that take part
  uint32_t bytes = 0;  // bytes of one lane: a power of two from 1 to 16
  uint32_t offset[kWarpLanes] = {};
};
void count_banks(const WarpAddresses& addresses, BankCount& count);

}  // namespace reprise::fibre
