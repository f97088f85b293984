// The functions that a board provides: an arena, workers, a clock and optionally a disk, in one
// table, Port (ports/template/README.md). lib contains no code for an operating system.
#pragma once

#include "lib/float_mode.h"
#include "lib/status.h"

namespace reprise {

struct Backend;  // lib/backend.h

// Worker threads. run() calls task(argument, i) once for every i in [0, tasks), on any worker and
// in any order, and returns when all calls have returned. It is not reentrant. A port with one core
// calls the tasks in a loop.
struct Workers {
  void* state = nullptr;  // An object of the port's own, passed to run().
  uint32_t count = 1;     // Number of workers, including the calling thread.
  // Null: the calling thread runs all tasks.
  void (*run)(void* state, uint32_t tasks, void (*task)(void* argument, uint32_t index), void* argument) = nullptr;
  // Stack bytes that a task may use on every worker, including the calling thread; 0: the port
  // promises nothing.
  uint64_t stack_bytes = 0;
};

// Calls body(i) for every i in [0, tasks) in the caller's floating-point mode, and returns when all
// calls have returned. Runs on the calling thread if there is one task or one worker.
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

// A second level of memory to which a plan spills (SpillLevel), or a file from which it streams.
// Offsets count from 0. A transfer is started, continues while rows run, and is waited for. Until
// its wait returns, no code may touch the destination or write the source. Transfers end in the
// order of their starts. A port without a disk leaves this struct empty.
struct Disk {
  static constexpr uint64_t kEverything = ~uint64_t{0};  // The offset with which wait() waits for all transfers.
  void* state = nullptr;                                 // An object of the port's own, passed to every function.
  uint64_t bytes = 0;                                    // Bytes of the disk or file.
  // Starts to copy `bytes` bytes from memory to `offset`; start_read copies from `offset` to
  // memory. The memory is in an arena of the same port, and its address is the one that kernels
  // use.
  Status (*start_write)(void* state, uint64_t offset, const void* from, uint64_t bytes) = nullptr;
  Status (*start_read)(void* state, uint64_t offset, void* to, uint64_t bytes) = nullptr;
  // Returns when no transfer that was started at `offset` is in progress; with kEverything, when no
  // transfer at all is in progress. After a failed transfer every wait returns kInputOutput, with
  // errno as the detail. The first wait for kEverything returns this error too and then clears it.
  Status (*wait)(void* state, uint64_t offset) = nullptr;
};

// Memory of the host as a second level. A device copies to and from it by itself (host_access.h).
// The host may access it only while no copy is in progress. If the arena is also the host's memory,
// this is a second block of the same memory.
struct HostMemory {
  unsigned char* base = nullptr;  // Aligned to kAlignment; null: there is none.
  uint64_t bytes = 0;
};

// The other processes that run the same plan, each on its own micro-batches: ranks [0, count), of
// which this process is `rank`. A transfer is started, continues while rows run, and is waited for.
// Until its wait returns, no code may touch its bytes. All ranks start the same transfers, with the
// same sizes, in the same order.
// The functions accept arena addresses for kernels and addresses of the host. A port without peers
// leaves this struct empty: the process is rank 0 of 1.
//
// Every function returns kPeer in three cases: a rank has ended, a rank has sent nothing within the
// timeout of open_peers, or the network has failed. The detail is the missing rank, or kNoRank if
// it is unknown. Every later call then fails immediately.
struct Peers {
  static constexpr uint64_t kNoRank = ~uint64_t{0};  // The detail of an error without a known rank.
  void* state = nullptr;                             // An object of the port's own, passed to every function.
  uint32_t rank = 0, count = 1;
  // Starts a broadcast of data[bytes] from rank `root` to all ranks.
  Status (*start_broadcast)(void* state, uint32_t root, void* data, uint64_t bytes) = nullptr;
  // Starts an all-gather: all[count][bytes] gets own[bytes] of every rank, in the order of the
  // ranks.
  Status (*start_gather)(void* state, const void* own, void* all, uint64_t bytes) = nullptr;
  // Returns when no transfer into `data` is in progress; if `data` is null, when no transfer at all
  // is in progress. If `wait` itself is null, the process is alone: it evaluates and generates,
  // reads streamed weights from their file, and shares nothing.
  Status (*wait)(void* state, const void* data) = nullptr;
  // Advances the transfers; called between rows. It does not block. The next call of another
  // function returns its error. Null: transfers advance without calls.
  void (*advance)(void* state) = nullptr;
};

// An address in an arena, which may be a device's memory. Kernels use it as a pointer. The host
// reads and writes there only through the backend's HostAccess (host_access.h).
struct ArenaAddress {
  unsigned char* for_kernels = nullptr;  // Valid for kernels only.

  // Returns the address `bytes` bytes higher.
  constexpr ArenaAddress operator+(uint64_t bytes) const { return {for_kernels + bytes}; }
};

// The source of the numbers by which kernels divide their work (lib/cpu/cpu_blocking.h). kLook: the
// port's file only. kUse: the file, or a measurement if the file has no numbers. kMeasure: a
// measurement in any case.
enum class TuningMode : uint8_t { kLook, kUse, kMeasure };

// One number of a tuning, by its name.
struct TunedNumber {
  const char* name;  // Static storage.
  uint32_t value;
};
// The result of Port::tune_backend.
struct Tuning {
  bool taken = false;            // The numbers were measured, now or earlier; false: the backend derived them.
  TunedNumber numbers[12] = {};  // The numbers in use.
  uint32_t count = 0;            // The number of entries in `numbers`.
  char file[320] = {};           // Path of the file that stores the numbers; empty if no place is known.
  char problem[160] = {};        // Why a file was ignored or could not be written; empty: no problem.
};

// A block of memory, aligned to kAlignment: memory of the host, or of the device that runs the
// backend.
struct Arena {
  ArenaAddress base;            // Address of the first byte.
  uint64_t bytes = 0;           // Bytes from `base` on that have memory.
  uint64_t reserved_bytes = 0;  // Bytes of addresses, of which the first `bytes` have memory; 0: fixed size.
};

// A board with one kind of processor, as a table of functions. Memory, workers, disks and peers
// must be released by the table that provided them. A function that releases one of them empties
// its struct, and does nothing if the struct is already empty.
struct Port {
  const char* name;  // The port's name.
  // Opens the backend that a plan names (Plan::backend). Must be called first, and close_backend
  // last. Chooses the fastest kernels for this machine and prepares the libraries or the device
  // that run them. The port owns the object that Backend::machine points to; a second open returns
  // the same object. Returns kUnsupported, with the reason, if the board or the machine cannot run
  // that backend.
  Status (*open_backend)(const char* name, Backend* backend);
  void (*close_backend)(Backend* backend);
  // Acquires an arena. Returns kOutOfMemory, with the bytes as the detail, if the board does not
  // have them.
  Status (*acquire_arena)(uint64_t bytes, Arena* arena);
  void (*release_arena)(Arena* arena);
  // Reserves addresses for an arena of at most `bytes` bytes, without memory. Returns kUnsupported,
  // with the reason, if this machine cannot reserve addresses. The function is null on a port whose
  // arenas have a fixed size.
  Status (*reserve_arena)(uint64_t bytes, Arena* arena);
  // Acquires memory of a reserved arena up to `bytes`, or gives the memory past `bytes` back to the
  // system. The address and the content up to `bytes` stay. A port may give memory back only in the
  // chunks in which it was acquired. So an arena that must shrink to a size must have grown to that
  // size before. Returns kOutOfMemory, with the bytes as the detail, if the board does not have
  // them, and kUnsupported if they exceed the reserved addresses. On an error the arena is
  // unchanged.
  Status (*resize_arena)(uint64_t bytes, Arena* arena);
  // Starts `count` workers, 1 to max_workers; the calling thread is the first of them. If `count`
  // is 0, starts one worker for each processor.
  Status (*start_workers)(uint32_t count, Workers* workers);
  void (*stop_workers)(Workers* workers);
  // The maximum `count` of start_workers.
  uint32_t max_workers;
  // Finds the numbers by which the kernels of the open CPU backend divide their work fastest with
  // these workers. The numbers change no bit of a result. A measurement takes at most 0.3 s, and
  // uses memory that it gives back. On any error the derived numbers stay, and `problem` has the
  // reason. Does nothing if no backend is open. The function is null on a port without a place for
  // a file.
  Tuning (*tune_backend)(const Workers& workers, TuningMode mode);
  // Opens a disk of `bytes` bytes; `path` is in a format of the port's own. This function and
  // close_disk are null on a port without disks.
  Status (*open_disk)(const char* path, uint64_t bytes, Disk* disk);
  void (*close_disk)(Disk* disk);
  // Opens the file of a plan's streamed weights as a read-only disk of `bytes` bytes. Transfers
  // bypass caches if the port can. A transfer fails if the file is no longer the one that was
  // opened. close_disk closes it. The function is null on a port that cannot stream.
  Status (*open_weights)(const char* path, uint64_t bytes, Disk* weights);
  // Acquires memory of the host for spilled blocks. Returns kOutOfMemory if the machine does not
  // have it, and kUnsupported, with the reason, if the device shares the host's memory. This
  // function and release_host are null on a port without such memory.
  Status (*acquire_host)(uint64_t bytes, HostMemory* memory);
  void (*release_host)(HostMemory* memory);
  // Connects to the other ranks of a plan: `ranks` processes that were started together. If no
  // message from a rank comes within `timeout_seconds`, calls return kPeer. Returns kUnsupported,
  // with the reason, if the number of processes is not `ranks`. After a fault close_peers also ends
  // the other processes, within seconds. This function and close_peers are null on a port without
  // peers.
  Status (*open_peers)(uint32_t ranks, double timeout_seconds, Peers* peers);
  void (*close_peers)(Peers* peers);
  // Returns seconds of a monotonic clock.
  double (*seconds)();
  // Writes a description of the device, and of its memory use outside the arena, to text[bytes].
  // The function is null if the arena is the process's own memory.
  void (*describe_device)(char* text, uint64_t bytes);
};

}  // namespace reprise
