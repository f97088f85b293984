// The functions of the Linux port's table, each in a file of its own.
// Here so that linux_port.cpp can name them; everybody else goes through the table.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/cpu_machine.h"

namespace reprise {

// Memory of the process, zeroed, aligned to the page, with huge pages asked for. kOutOfMemory with the bytes asked for
// when the machine has not that much available (MemAvailable of /proc/meminfo) or mmap refuses: overcommitted memory
// would kill the program later, at a row that no plan names. Pages are taken when first written.
Status linux_acquire_arena(uint64_t bytes, Arena* arena);
void linux_release_arena(Arena* arena);
// Addresses that hold nothing and count as no memory; what resize takes and gives back is rounded up to the page. What was given back cannot be
// touched, and comes back zeroed.
Status linux_reserve_arena(uint64_t bytes, Arena* arena);
Status linux_resize_arena(uint64_t bytes, Arena* arena);
// More memory of the same, for what a plan spills to the host.
Status linux_acquire_host(uint64_t bytes, HostMemory* memory);
void linux_release_host(HostMemory* memory);
// MemTotal and MemAvailable of /proc/meminfo; the largest number there is where the kernel does not say.
struct LinuxMemory {
  uint64_t total_bytes, available_bytes;
};
LinuxMemory linux_memory();

// There is one pool in a process: a second start is kUnsupported. run() takes no heap and no lock: it must be called from one
// thread at a time. A worker's stack has kWorkerStackBytes, taken by mmap when the pool starts; the calling thread must have as
// much, which a process's main thread has (8 MiB unless `ulimit -s` says otherwise).
Status linux_start_workers(uint32_t count, Workers* workers);
void linux_stop_workers(Workers* workers);
constexpr uint32_t kMaxWorkers = 64;
constexpr uint64_t kWorkerStackBytes = uint64_t{1} << 20;

// Makes a file of that many bytes for a plan's disk_bytes, reserves its blocks (a full disk is said now, not in the middle of a
// step) and takes its name away, so that nothing is left behind however the process ends. kInputOutput with errno as the detail
// where that fails; nothing that exists under `path` is touched. There is one in a process. One thread does the transfers; starting
// and waiting take no heap. The kernel's page cache lies between: what fits there is not waited for.
Status linux_open_disk(const char* path, uint64_t bytes, Disk* disk);
// After the last step: what is still queued is done first.
void linux_close_disk(Disk* disk);

// The same where the arena is a device's memory: its bytes go to the file and back in pieces, through memory of the host. Both functions
// are called by the disk's thread, and answer 0 or errno.
struct DiskAccess {
  unsigned char* piece = nullptr;  // of the host
  uint64_t piece_bytes = 0;
  int (*fetch)(void* piece, const void* from, uint64_t bytes) = nullptr;
  int (*store)(void* to, const void* piece, uint64_t bytes) = nullptr;
};
Status linux_open_disk_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk);

// The file of a plan's streamed weights, of at least `bytes` bytes. Reads go past the page cache where the file system can and offset, memory and
// length are multiples of 4096 bytes; elsewhere the cache is asked to forget what was read. A read fails, with errno as the detail, where the path
// names another file, or one of another size or time of change, than when it was opened (ESTALE). There is one in a process; linux_close_disk
// closes it.
Status linux_open_weights(const char* path, uint64_t bytes, Disk* disk);
Status linux_open_weights_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk);

// Tells BLIS its architecture by CPUID feature, unless BLIS_ARCH_TYPE is set (BLIS 0.9.0 knows no processor younger than itself
// and would take its generic kernels), then chooses what is fastest.
Status linux_open_backend(const char* name, Backend* backend);  // "cpu" or "cpu-small"
void linux_close_backend(Backend* backend);
CpuMachine& linux_cpu_machine();  // what the backend's table points to

// The file is $XDG_CACHE_HOME/reprise/tuning-HASH.txt, without that variable ~/.cache/reprise/...: the hash is of the processor, its caches, the
// kernel set, the number of workers and kTuningVersion, which its first lines say in words. It takes its place whole, or not at all.
Tuning linux_tune_backend(const Workers& workers, TuningMode mode);

}  // namespace reprise
