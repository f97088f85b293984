// The files of Disk: the spill file and the file of streamed weights. Each file has a thread, which
// executes the transfers of a queue of fixed size in order, with pwrite and pread. Nothing uses the
// heap once a file is open.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

#include "ports/linux/linux_functions.h"

namespace reprise {
namespace {

struct Request {
  uint64_t offset = 0, bytes = 0;
  unsigned char* memory = nullptr;
  bool writes = false;
};

constexpr uint32_t kQueue = 1024;        // a start waits while the queue is full
constexpr uint64_t kDirectBlock = 4096;  // the alignment of direct reads: a multiple of every device's block

struct TransferFile {
  const char* failure;  // the message of an error
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  Request queue[kQueue] = {};
  uint32_t first = 0, count = 0;  // queue[first] is in progress if count is not 0
  int error = 0;                  // errno of the first failed transfer since the last wait for all
  int file = -1;
  int direct = -1;  // the same file, opened to read past the page cache; -1: not available
  bool stops = false;
  bool exists = false;
  DiskAccess access = {};  // empty if the arena is the process's own memory
  // Path of a file whose content must not change while it is open; "" for a file that no other
  // process can reach.
  char path[PATH_MAX] = "";
  struct stat opened = {};  // the file's properties when it was opened
  pthread_t thread = {};
};
TransferFile spill{.failure = "the spill file could not be written or read back"};
TransferFile weights{.failure =
                         "the file of streamed weights could not be read, or is no longer the file that was opened: "
                         "leave it alone while "
                         "a program reads it; the next start makes it anew"};

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

// Returns 0 if the path still names the file that was opened, and the file is unchanged; else
// errno.
int require_unchanged(const TransferFile& of) {
  if (of.path[0] == 0) return 0;
  struct stat now = {};
  if (stat(of.path, &now) != 0) return errno;
  return is_same_file(now, of.opened) ? 0 : ESTALE;
}

// Executes a transfer between the file and memory of the process. Returns 0 or errno. Returns EIO
// if the file ends early, because it was long enough when it was opened.
int transfer_bytes(const TransferFile& of, const Request& request) {
  const bool aligned =
      (reinterpret_cast<uintptr_t>(request.memory) | request.offset | request.bytes) % kDirectBlock == 0;
  const bool past_cache = of.direct >= 0 && aligned && !request.writes;
  const int file = past_cache ? of.direct : of.file;
  for (uint64_t done = 0; done < request.bytes;) {
    const size_t rest = request.bytes - done;
    const off_t at = static_cast<off_t>(request.offset + done);
    const ssize_t moved =
        request.writes ? pwrite(file, request.memory + done, rest, at) : pread(file, request.memory + done, rest, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EIO;
    done += static_cast<uint64_t>(moved);
  }
  // Bytes that are read only once per pass should not displace other data from the cache.
  if (of.path[0] != 0 && !past_cache) {
    (void)posix_fadvise(file, static_cast<off_t>(request.offset), static_cast<off_t>(request.bytes),
                        POSIX_FADV_DONTNEED);
  }
  return 0;
}

int transfer_all(const TransferFile& of, const Request& request) {
  const DiskAccess& access = of.access;
  if (access.piece == nullptr) return transfer_bytes(of, request);
  for (uint64_t done = 0; done < request.bytes;) {
    const uint64_t rest = request.bytes - done, bytes = rest < access.piece_bytes ? rest : access.piece_bytes;
    if (const int error = request.writes ? access.fetch(access.piece, request.memory + done, bytes) : 0; error != 0)
      return error;
    if (const int error = transfer_bytes(of, {request.offset + done, bytes, access.piece, request.writes}); error != 0)
      return error;
    if (const int error = request.writes ? 0 : access.store(request.memory + done, access.piece, bytes); error != 0)
      return error;
    done += bytes;
  }
  return 0;
}

// Executes a transfer, then checks that the file is unchanged. So the bytes that were read are
// bytes of the file that was opened.
int transfer(const TransferFile& of, const Request& request) {
  const int error = transfer_all(of, request), changed = require_unchanged(of);
  return changed != 0 ? changed : error;
}

void* transfer_main(void* argument) {
  TransferFile& of = *static_cast<TransferFile*>(argument);
  pthread_mutex_lock(&of.lock);
  for (;;) {
    while (of.count == 0 && !of.stops) pthread_cond_wait(&of.changed, &of.lock);
    if (of.count == 0) break;
    const Request request = of.queue[of.first];
    pthread_mutex_unlock(&of.lock);
    const int error = transfer(of, request);
    pthread_mutex_lock(&of.lock);
    if (of.error == 0) of.error = error;
    of.first = (of.first + 1) % kQueue;
    --of.count;
    pthread_cond_broadcast(&of.changed);
  }
  pthread_mutex_unlock(&of.lock);
  return nullptr;
}

Status start(void* state, const Request& request) {
  TransferFile& of = *static_cast<TransferFile*>(state);
  pthread_mutex_lock(&of.lock);
  while (of.count == kQueue) pthread_cond_wait(&of.changed, &of.lock);
  of.queue[(of.first + of.count) % kQueue] = request;
  ++of.count;
  pthread_cond_broadcast(&of.changed);
  pthread_mutex_unlock(&of.lock);
  return ok_status();
}

Status start_write(void* state, uint64_t offset, const void* from, uint64_t bytes) {
  return start(state, {offset, bytes, static_cast<unsigned char*>(const_cast<void*>(from)), true});
}
Status start_read(void* state, uint64_t offset, void* to, uint64_t bytes) {
  return start(state, {offset, bytes, static_cast<unsigned char*>(to), false});
}

bool under_way(const TransferFile& of, uint64_t offset) {
  for (uint32_t i = 0; i < of.count; ++i) {
    if (offset == Disk::kEverything || of.queue[(of.first + i) % kQueue].offset == offset) return true;
  }
  return false;
}

Status wait(void* state, uint64_t offset) {
  TransferFile& of = *static_cast<TransferFile*>(state);
  pthread_mutex_lock(&of.lock);
  while (under_way(of, offset)) pthread_cond_wait(&of.changed, &of.lock);
  const int error = of.error;
  if (offset == Disk::kEverything) of.error = 0;
  pthread_mutex_unlock(&of.lock);
  if (error == 0) return ok_status();
  return {Code::kInputOutput, of.failure, static_cast<uint64_t>(error)};
}

Status close_with(TransferFile& of, const char* message, int error) {
  for (int* file : {&of.file, &of.direct}) {
    if (*file >= 0) (void)close(*file);
    *file = -1;
  }
  return {Code::kInputOutput, message, static_cast<uint64_t>(error)};
}

// Reserves the blocks of the whole file. On a file system that cannot reserve, the C library
// writes zeros instead.
int reserve(int file, uint64_t bytes) {
  int error;
  do error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  while (error == EINTR);
  return error;
}

Status begin(TransferFile& of, const DiskAccess& access, uint64_t bytes, Disk* disk) {
  of.first = of.count = 0;
  of.error = 0;
  of.stops = false;
  of.access = access;
  if (const int refused = pthread_create(&of.thread, nullptr, transfer_main, &of); refused != 0) {
    return close_with(of, "the thread of the file could not be started", refused);
  }
  of.exists = true;
  *disk = {&of, bytes, start_write, start_read, wait};
  return ok_status();
}

}  // namespace

Status linux_open_disk(const char* path, uint64_t bytes, Disk* disk) {
  return linux_open_disk_of_device({}, path, bytes, disk);
}

Status linux_open_disk_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk) {
  *disk = {};
  if (spill.exists) return {Code::kUnsupported, "the process already has its spill file: close it first", 0};
  spill.file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (spill.file < 0)
    return close_with(spill, "the spill file cannot be made: it must be a new file in a folder that can be written",
                      errno);
  (void)unlink(path);
  const int error = bytes == 0 ? 0 : reserve(spill.file, bytes);
  if (error != 0) return close_with(spill, "the spill file does not fit where it is", error);
  return begin(spill, access, bytes, disk);
}

Status linux_open_weights(const char* path, uint64_t bytes, Disk* disk) {
  return linux_open_weights_of_device({}, path, bytes, disk);
}

Status linux_open_weights_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk) {
  *disk = {};
  if (weights.exists) return {Code::kUnsupported, "the process already has its file of weights: close it first", 0};
  const size_t length = strlen(path);
  if (length == 0 || length >= sizeof weights.path)
    return {Code::kInputOutput, "the file of weights has no path that can be named", ENAMETOOLONG};
  memcpy(weights.path, path, length + 1);
  weights.file = open(path, O_RDONLY | O_CLOEXEC);
  if (weights.file < 0 || fstat(weights.file, &weights.opened) != 0)
    return close_with(weights, "the file of weights cannot be opened", errno);
  if (static_cast<uint64_t>(weights.opened.st_size) < bytes)
    return close_with(weights, "the file of weights is shorter than the plan's", EIO);
  (void)posix_fadvise(weights.file, 0, 0, POSIX_FADV_RANDOM);    // no read-ahead
  weights.direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);  // not available on every file system
  Status status = begin(weights, access, bytes, disk);
  disk->start_write = nullptr;
  return status;
}

void linux_close_disk(Disk* disk) {
  if (disk->wait == nullptr) return;
  TransferFile& of = *static_cast<TransferFile*>(disk->state);
  *disk = {};
  pthread_mutex_lock(&of.lock);
  of.stops = true;
  pthread_cond_broadcast(&of.changed);
  pthread_mutex_unlock(&of.lock);
  (void)pthread_join(of.thread, nullptr);
  (void)close_with(of, "", 0);
  of.exists = false;
}

}  // namespace reprise
