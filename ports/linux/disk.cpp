// A spill file behind Disk: one thread takes transfers from a fixed queue and does them with pwrite and pread, in order.
// Here because lib knows neither files nor threads; nothing here takes heap once the file is open.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "ports/linux/linux_functions.h"

namespace reprise {
namespace {

struct Request {
  uint64_t offset = 0, bytes = 0;
  unsigned char* memory = nullptr;
  bool writes = false;
};

constexpr uint32_t kQueue = 64;  // a start that finds it full waits for room

struct Spill {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
  Request queue[kQueue];
  uint32_t first = 0, count = 0;  // queue[first] is under way
  int error = 0;  // errno of the first transfer that failed since all was waited for
  int file = -1;
  bool stops = false;
  bool exists = false;
  DiskAccess access;  // empty where the arena is the process's own memory
  pthread_t thread;
};
Spill spill;

// 0 or errno. A file that ends early is an error of the device: it was as long as the plan asks when it was opened.
int transfer_bytes(int file, const Request& request) {
  for (uint64_t done = 0; done < request.bytes;) {
    const size_t rest = request.bytes - done;
    const off_t at = static_cast<off_t>(request.offset + done);
    const ssize_t moved = request.writes ? pwrite(file, request.memory + done, rest, at) : pread(file, request.memory + done, rest, at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EIO;
    done += static_cast<uint64_t>(moved);
  }
  return 0;
}

int transfer(int file, const Request& request, const DiskAccess& access) {
  if (access.piece == nullptr) return transfer_bytes(file, request);
  for (uint64_t done = 0; done < request.bytes;) {
    const uint64_t rest = request.bytes - done, bytes = rest < access.piece_bytes ? rest : access.piece_bytes;
    if (const int error = request.writes ? access.fetch(access.piece, request.memory + done, bytes) : 0; error != 0) return error;
    if (const int error = transfer_bytes(file, {request.offset + done, bytes, access.piece, request.writes}); error != 0) return error;
    if (const int error = request.writes ? 0 : access.store(request.memory + done, access.piece, bytes); error != 0) return error;
    done += bytes;
  }
  return 0;
}

void* spill_main(void*) {
  pthread_mutex_lock(&spill.lock);
  for (;;) {
    while (spill.count == 0 && !spill.stops) pthread_cond_wait(&spill.changed, &spill.lock);
    if (spill.count == 0) break;
    const Request request = spill.queue[spill.first];
    pthread_mutex_unlock(&spill.lock);
    const int error = transfer(spill.file, request, spill.access);
    pthread_mutex_lock(&spill.lock);
    if (spill.error == 0) spill.error = error;
    spill.first = (spill.first + 1) % kQueue;
    --spill.count;
    pthread_cond_broadcast(&spill.changed);
  }
  pthread_mutex_unlock(&spill.lock);
  return nullptr;
}

Status start(const Request& request) {
  pthread_mutex_lock(&spill.lock);
  while (spill.count == kQueue) pthread_cond_wait(&spill.changed, &spill.lock);
  spill.queue[(spill.first + spill.count) % kQueue] = request;
  ++spill.count;
  pthread_cond_broadcast(&spill.changed);
  pthread_mutex_unlock(&spill.lock);
  return ok_status();
}

Status start_write(void*, uint64_t offset, const void* from, uint64_t bytes) {
  return start({offset, bytes, static_cast<unsigned char*>(const_cast<void*>(from)), true});
}
Status start_read(void*, uint64_t offset, void* to, uint64_t bytes) {
  return start({offset, bytes, static_cast<unsigned char*>(to), false});
}

bool under_way(uint64_t offset) {
  for (uint32_t i = 0; i < spill.count; ++i) {
    if (offset == Disk::kEverything || spill.queue[(spill.first + i) % kQueue].offset == offset) return true;
  }
  return false;
}

Status wait(void*, uint64_t offset) {
  pthread_mutex_lock(&spill.lock);
  while (under_way(offset)) pthread_cond_wait(&spill.changed, &spill.lock);
  const int error = spill.error;
  if (offset == Disk::kEverything) spill.error = 0;
  pthread_mutex_unlock(&spill.lock);
  if (error == 0) return ok_status();
  return {Code::kInputOutput, "the spill file could not be written or read back", static_cast<uint64_t>(error)};
}

Status close_with(const char* message, int error) {
  if (spill.file >= 0) (void)close(spill.file);
  spill.file = -1;
  return {Code::kInputOutput, message, static_cast<uint64_t>(error)};
}

// The blocks of the whole file; a file system that cannot reserve gets zeros written instead, by the C library.
int reserve(int file, uint64_t bytes) {
  int error;
  do error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  while (error == EINTR);
  return error;
}

}  // namespace

Status linux_open_disk(const char* path, uint64_t bytes, Disk* disk) { return linux_open_disk_of_device({}, path, bytes, disk); }

Status linux_open_disk_of_device(const DiskAccess& access, const char* path, uint64_t bytes, Disk* disk) {
  *disk = {};
  if (spill.exists) return {Code::kUnsupported, "the process already has its spill file: close it first", 0};
  spill.file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (spill.file < 0) return close_with("the spill file cannot be made: it must be a new file in a folder that can be written", errno);
  (void)unlink(path);
  const int error = bytes == 0 ? 0 : reserve(spill.file, bytes);
  if (error != 0) return close_with("the spill file does not fit where it is", error);
  spill.first = spill.count = 0;
  spill.error = 0;
  spill.stops = false;
  spill.access = access;
  if (const int refused = pthread_create(&spill.thread, nullptr, spill_main, nullptr); refused != 0) {
    return close_with("the thread of the spill file could not be started", refused);
  }
  spill.exists = true;
  *disk = {nullptr, bytes, start_write, start_read, wait};
  return ok_status();
}

void linux_close_disk(Disk* disk) {
  if (disk->wait == nullptr) return;
  *disk = {};
  pthread_mutex_lock(&spill.lock);
  spill.stops = true;
  pthread_cond_broadcast(&spill.changed);
  pthread_mutex_unlock(&spill.lock);
  (void)pthread_join(spill.thread, nullptr);
  (void)close(spill.file);
  spill.file = -1;
  spill.exists = false;
}

}  // namespace reprise
