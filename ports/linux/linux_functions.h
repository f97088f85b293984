// The functions of the Linux port's table, each in a file of its own. Only linux_port.cpp and the
// ports that are built on it use this header; other code uses the table.
#pragma once

#include "lib/backend.h"
#include "lib/cpu/cpu_machine.h"

namespace reprise {

// Acquires memory of the process: zeroed, aligned to the page, with huge pages requested. Pages are
// allocated when they are first written.
// Returns kOutOfMemory, with the bytes as the detail, if MemAvailable of /proc/meminfo is less, or
// if mmap refuses. Without this check the system could grant the memory and kill the program later,
// at an arbitrary row.
Status linux_acquire_arena(uint64_t bytes, Arena* arena);
// Releases the memory and the addresses of an arena, and empties it.
void linux_release_arena(Arena* arena);
// Reserves addresses without memory. linux_resize_arena() acquires whole pages and gives them back.
// Pages that were given back cannot be accessed; they are zeroed when they are acquired again.
Status linux_reserve_arena(uint64_t bytes, Arena* arena);
Status linux_resize_arena(uint64_t bytes, Arena* arena);
// Acquires memory as linux_acquire_arena() does, for the blocks that a plan spills to the host.
Status linux_acquire_host(uint64_t bytes, HostMemory* memory);
// Releases the memory and empties the struct.
void linux_release_host(HostMemory* memory);
// MemTotal and MemAvailable of /proc/meminfo, in bytes; ~0 for a number that the kernel does not
// report.
struct LinuxMemory {
  uint64_t total_bytes, available_bytes;
};
// Reads /proc/meminfo.
LinuxMemory linux_memory();

// Starts the only pool of workers of the process; returns kUnsupported if it exists already. run()
// uses neither heap nor locks, and must be called from one thread at a time.
// Each worker's stack has kWorkerStackBytes bytes, which are mapped when the pool starts. The
// calling thread must have at least as large a stack; a process's main thread has it (8 MiB unless
// `ulimit -s` is less).
Status linux_start_workers(uint32_t count, Workers* workers);
// Stops the pool and joins its threads.
void linux_stop_workers(Workers* workers);
constexpr uint32_t kMaxWorkers = 64;  // The maximum number of workers, the calling thread included.
constexpr uint64_t kWorkerStackBytes = uint64_t{1} << 20;

// Creates a file of `bytes` bytes for a plan that spills. Reserves its blocks, so that a full disk
// is reported now and not during a step. Unlinks the file, so that nothing remains however the
// process ends.
// Returns kInputOutput, with errno as the detail, if one of these steps fails. An existing file at
// `path` is not touched. A process has one such file, and one thread transfers its bytes. Starts
// and waits use no heap. Writes that fit in the kernel's page cache do not wait for the disk.
Status linux_open_disk(const char* path, uint64_t bytes, Disk* disk);
// Completes the queued transfers, ends the thread and closes the file. Call it after the last step.
void linux_close_disk(Disk* disk);

// The access to the memory of an arena on a device. Bytes are copied between arena and file in
// pieces, through memory of the host. The disk's thread calls both functions, which return 0 or
// errno.
struct DiskAccess {
  unsigned char* piece = nullptr;  // Buffer in memory of the host; null: the arena is the process's own memory.
  uint64_t piece_bytes = 0;
  // Copies from the device to `piece`; `store` copies from `piece` to the device.
  int (*fetch)(void* piece, const void* from, uint64_t bytes) = nullptr;
  int (*store)(void* to, const void* piece, uint64_t bytes) = nullptr;
};
// Opens a disk as linux_open_disk() does, for an arena that `access` reaches.
Status linux_open_disk_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk);

// Opens, for reading, the file of a plan's streamed weights, which must have at least `bytes`
// bytes. Reads bypass the page cache if the file system can, and if offset, address and length are
// multiples of 4096 bytes. After other reads the kernel is told to drop the pages.
// A read fails if the path no longer names the file that was opened. A changed size or modification
// time counts as another file. The detail is errno; it is ESTALE for another file. A process has
// one such file; linux_close_disk() closes it.
Status linux_open_weights(const char* path, uint64_t bytes, Disk* disk);
// Opens the file as linux_open_weights() does, for an arena that `access` reaches.
Status linux_open_weights_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk);

// Opens "cpu" or "cpu-small" and chooses the fastest kernels. Sets BLIS_ARCH_TYPE from the CPUID
// features, unless it is already set. Otherwise BLIS 0.9.0 would use its generic kernels on
// processors that are newer than itself.
Status linux_open_backend(const char* name, Backend* backend);
// Empties `backend`.
void linux_close_backend(Backend* backend);
// Returns the machine to which the backend's table points; a process has one.
CpuMachine& linux_cpu_machine();

// Tunes the open backend as Port::tune_backend does. The file is
// $XDG_CACHE_HOME/reprise/tuning-HASH.txt, or ~/.cache/reprise/tuning-HASH.txt if that variable is
// not set. HASH is the hash of the file's first lines: processor, caches, kernel set, number of
// workers, kTuningVersion. The file is written under another name and then renamed.
Tuning linux_tune_backend(const Workers& workers, TuningMode mode);

}  // namespace reprise
