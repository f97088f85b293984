// What a board gives to a program: an arena, workers, perhaps a disk, and a clock, all through one table, Port
// (ports/template/README.md). Here because lib knows no operating system.
#pragma once

#include "lib/float_mode.h"
#include "lib/status.h"

namespace reprise {

struct Backend;  // lib/backend.h

// Runs task(argument, i) once for every i in [0, tasks), on any worker in any order; returns when all are done.
// Not reentrant. A port with one core calls them in a loop.
struct Workers {
  void* state = nullptr;
  uint32_t count = 1;
  void (*run)(void* state, uint32_t tasks, void (*task)(void* argument, uint32_t index), void* argument) = nullptr;
  // Stack that a task may use on every worker, the calling thread among them. 0 promises nothing.
  uint64_t stack_bytes = 0;
};

// Runs a callable for every index in [0, tasks), in the caller's floating-point mode; on the calling thread where there is only one
// task or one worker.
template <typename F>
void parallel_for(const Workers& workers, uint32_t tasks, const F& body) {
  if (tasks <= 1 || workers.count <= 1 || workers.run == nullptr) {
    for (uint32_t i = 0; i < tasks; ++i) body(i);
    return;
  }
  struct Job {
    const F& body;
    FloatMode mode;
  } job{body, float_mode()};
  const auto run_task = [](void* argument, uint32_t index) {
    const Job& own = *static_cast<const Job*>(argument);
    const FloatModeScope scope(own.mode);
    own.body(index);
  };
  workers.run(workers.state, tasks, run_task, &job);
}

// A second level of memory that a plan may spill to (SpillLevel), or a file that it streams from: `bytes` bytes, addressed from 0. A transfer is started,
// goes on by itself while other rows run, and is waited for; neither of its ends may be touched meanwhile. Transfers end in the order of their
// starts. Their memory is the arena of the same port, as kernels see it. A port without one leaves it empty.
struct Disk {
  static constexpr uint64_t kEverything = ~uint64_t{0};
  void* state = nullptr;
  uint64_t bytes = 0;
  Status (*start_write)(void* state, uint64_t offset, const void* from, uint64_t bytes) = nullptr;
  Status (*start_read)(void* state, uint64_t offset, void* to, uint64_t bytes) = nullptr;
  // Returns when no transfer that was started at `offset` is under way any more (kEverything: none at all). kInputOutput with errno
  // as the detail where one has failed, whichever: every wait says so from then on, a wait for everything for the last time.
  Status (*wait)(void* state, uint64_t offset) = nullptr;
};

// The other second level: memory of the host beside a device's arena, which the device copies to and from by itself (host_access.h). The host may
// look at it when nothing is under way. Where the arena is the host's own memory it is more of the same.
struct HostMemory {
  unsigned char* base = nullptr;  // aligned to kAlignment
  uint64_t bytes = 0;
};

// Other processes that run the same plan beside this one, on micro-batches of their own: ranks [0, count), of which this one is `rank`. What is
// started goes on while rows run, and is waited for; nobody may touch its bytes meanwhile. All ranks start the same things, of the same
// sizes, in the same order. Addresses are the arena's as kernels see it, or the host's. A port without peers leaves it empty: one process, rank 0.
//
// Every function answers kPeer where a rank has ended, has not come within the time that open_peers was given, or the network has failed: the
// detail is the rank that is missed, or kNoRank where nobody knows which. From then on every call says so, at once.
struct Peers {
  static constexpr uint64_t kNoRank = ~uint64_t{0};
  void* state = nullptr;
  uint32_t rank = 0, count = 1;
  // data[bytes]: of rank `root`, and afterwards of all.
  Status (*start_broadcast)(void* state, uint32_t root, void* data, uint64_t bytes) = nullptr;
  // all[count][bytes]: own[bytes] of each rank, in their order.
  Status (*start_gather)(void* state, const void* own, void* all, uint64_t bytes) = nullptr;
  // Returns when nothing that was started into `data` is under way any more; null: nothing at all. A process without it is alone: it evaluates and
  // answers, with weights from their file, and shares nothing.
  Status (*wait)(void* state, const void* data) = nullptr;
  // Called between rows, where what is under way moves on in calls alone; it waits for nothing, and what fails is said by the next call. Null where
  // it moves on by itself.
  void (*advance)(void* state) = nullptr;
};

// Where something lies in an arena, which may be a device's memory. Kernels get it as a pointer; the host neither reads nor writes
// there but by the backend's HostAccess (host_access.h).
struct ArenaAddress {
  unsigned char* for_kernels = nullptr;

  constexpr ArenaAddress operator+(uint64_t bytes) const { return {for_kernels + bytes}; }
};

// Where a port takes the numbers from by which its kernels go through their work (lib/cpu/cpu_blocking.h): from its file alone; from it, or where
// it has none from a measurement; from a measurement whatever the file says.
enum class TuningMode : uint8_t { kLook, kUse, kMeasure };

struct TunedNumber {
  const char* name;
  uint32_t value;
};
struct Tuning {
  bool taken = false;           // numbers that were measured, now or before; else those that were derived stand
  TunedNumber numbers[12] = {};  // that stand now
  uint32_t count = 0;
  char file[320] = {};          // where they are kept; empty where no place is known
  char problem[160] = {};       // why a file was passed over, or could not be written; empty where nothing was wrong
};

// A block of memory aligned to kAlignment: the host's, or the device's that the backend runs on.
struct Arena {
  ArenaAddress base;
  uint64_t bytes = 0;
  uint64_t reserved_bytes = 0;  // addresses for it, of which `bytes` have memory; 0: it keeps its size
};

// A board with its one kind of processor, as one table. What is taken from it is given back through it; giving back an empty one does
// nothing, and clears any other.
struct Port {
  const char* name;
  // The first to be called, and the last: chooses the fastest kernels for this machine of those that a plan's `backend` names, and prepares
  // the libraries or the device that they run on. What the table's `machine` points to is the port's own; opened twice, it is the same.
  // kUnsupported, with the reason, where this board has no such backend, or this machine cannot run it.
  Status (*open_backend)(const char* name, Backend* backend);
  void (*close_backend)(Backend* backend);
  // kOutOfMemory, with the bytes asked for, where the board has not so much.
  Status (*acquire_arena)(uint64_t bytes, Arena* arena);
  void (*release_arena)(Arena* arena);
  // An arena that can change its size: so many addresses, without memory yet. kUnsupported, with the reason, where this machine cannot, and null on a
  // port whose arenas keep their size.
  Status (*reserve_arena)(uint64_t bytes, Arena* arena);
  // Takes memory for the arena up to `bytes`, or gives back to the system what lies behind. Its contents up to there stay, and so does its
  // address. Memory may have to be given back in the pieces in which it was taken: an arena that shall shrink to a size has grown to that size
  // before. kOutOfMemory, with the bytes asked for, where the board has not so much, and kUnsupported where they are more than the reserved
  // addresses: then the arena is as it was.
  Status (*resize_arena)(uint64_t bytes, Arena* arena);
  // `count` workers, from 1 to most_workers, the calling thread being the first of them; 0 asks for one per processor.
  Status (*start_workers)(uint32_t count, Workers* workers);
  void (*stop_workers)(Workers* workers);
  uint32_t most_workers;
  // For the open CPU backend and the workers that will run it: the numbers that are fastest on this machine, which change no bit. A measurement takes
  // 0.3 s at most, and memory that it gives back. Whatever goes wrong, the numbers that were derived stand, and the answer says what it was.
  // Without an open backend nothing happens. Null on a port that has no place for a file.
  Tuning (*tune_backend)(const Workers& workers, TuningMode mode);
  // A disk of that many bytes; `path` says where, in the port's own words. Both are null on a port without one.
  Status (*open_disk)(const char* path, uint64_t bytes, Disk* disk);
  void (*close_disk)(Disk* disk);
  // The file of a plan's streamed weights, as a disk of `bytes` bytes that is only read, past any cache where the port can; close_disk closes it.
  // A transfer fails where the file is no longer the one that was opened. Null on a port without one.
  Status (*open_weights)(const char* path, uint64_t bytes, Disk* weights);
  // Memory of the host for what a plan spills. kOutOfMemory where the machine has not so much; kUnsupported, with the reason, where the device has no
  // memory of its own beside the host's. Both are null on a port without it.
  Status (*acquire_host)(uint64_t bytes, HostMemory* memory);
  void (*release_host)(HostMemory* memory);
  // The other ranks of a plan for that many processes, which have been started together; `timeout_seconds` without a word from one of them is a
  // fault. kUnsupported, with the reason, where there are not so many. After a fault close_peers ends the others too, within seconds. Both are null
  // on a port without them.
  Status (*open_peers)(uint32_t ranks, double timeout_seconds, Peers* peers);
  void (*close_peers)(Peers* peers);
  // Of a clock that never goes back.
  double (*seconds)();
  // What the device takes beside the arena, in words for a person, written into text[bytes]; null where the arena is the process's own.
  void (*describe_device)(char* text, uint64_t bytes);
};

}  // namespace reprise
