// The CUDA port's table, and the card that the process has opened.
#include "ports/cuda/cuda_port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_rules.h"
#include "ports/cuda/arena.h"
#include "ports/cuda/card.h"
#include "ports/linux/linux_functions.h"
#include "ports/linux/linux_port.h"

namespace reprise {
namespace {

constexpr unsigned kNonBlocking = 1, kWithoutTime = 2;  // CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// The files to and from which the card's bytes are copied. Each file has a stream and a buffer of
// its own.
enum FileOf : uint32_t { kSpillFile, kWeightsFile, kFileCount };
struct CardFile {
  void* stream = nullptr;
  void* piece = nullptr;  // pinned memory of kPieceBytes bytes
  void* state = nullptr;  // Disk::state of the file
};

// All CUDA objects of the process.
struct OpenCard {
  CudaDriver driver = {};
  Card card;
  CudaMachine machine;
  CudaStaging staging;
  CudaCopies copies;
  HostMemory host_memory;
  CardArena arena;
  CardFile files[kFileCount];
};
OpenCard open;

bool is_open() { return open.card.context != nullptr; }

Status driver_says(int error) { return driver_status(open.driver, error); }

// Opens a stream of minimum priority, so that all other work of the process on the card comes
// first. Between processes the driver divides the card's time.
Status open_stream(void** stream) {
  int minimum = 0, greatest = 0;
  REPRISE_RETURN_IF_ERROR(driver_says(open.driver.stream_priorities(&minimum, &greatest)));
  return driver_says(open.driver.create_stream(stream, kNonBlocking, minimum));
}

Status open_queue() {
  REPRISE_RETURN_IF_ERROR(open_stream(&open.machine.queue));
  void* memory = nullptr;
  REPRISE_RETURN_IF_ERROR(driver_says(open.driver.allocate_pinned(&memory, CudaStaging::kBytes)));
  open.staging.base = static_cast<unsigned char*>(memory);
  for (void*& event : open.staging.copied)
    REPRISE_RETURN_IF_ERROR(driver_says(open.driver.create_event(&event, kWithoutTime)));
  open.machine.staging = &open.staging;
  return ok_status();
}

Status open_everything(const CudaTable& table) {
  REPRISE_RETURN_IF_ERROR(load_cuda_driver(open.driver));
  REPRISE_RETURN_IF_ERROR(open_card(open.driver, open.card));
  choose_cuda_machine(open.machine, table.size, table.math);
  if (open.machine.runtime_version / 1000 > open.card.driver_version / 1000) {
    return {Code::kUnsupported,
            "the driver must know the CUDA that this program was compiled with: update the driver, or compile with an "
            "older toolkit",
            open.machine.runtime_version / 1000};
  }
  if (open.machine.architecture == 0) {
    return {Code::kUnsupported,
            "this program holds no code for the card's architecture: compile it with CUDA_ARCHITECTURES=NN of the card",
            open.card.architecture};
  }
  return open_queue();
}

Status open_copies() {
  REPRISE_RETURN_IF_ERROR(open_stream(&open.copies.queue));
  REPRISE_RETURN_IF_ERROR(driver_says(open.driver.create_event(&open.copies.asked, kWithoutTime)));
  for (void*& event : open.copies.copied)
    REPRISE_RETURN_IF_ERROR(driver_says(open.driver.create_event(&event, kWithoutTime)));
  open.machine.copies = &open.copies;
  return ok_status();
}

void close_copies() {
  open.machine.copies = nullptr;
  if (open.copies.queue != nullptr) (void)open.driver.destroy_stream(open.copies.queue);
  if (open.copies.asked != nullptr) (void)open.driver.destroy_event(open.copies.asked);
  for (void* event : open.copies.copied) {
    if (event != nullptr) (void)open.driver.destroy_event(event);
  }
  open.copies = {};
}

// Closes everything. After a failure of the card these calls may fail, too; their errors are
// ignored.
void close_everything() {
  if (open.machine.queue != nullptr) (void)open.driver.destroy_stream(open.machine.queue);
  for (void* event : open.staging.copied) {
    if (event != nullptr) (void)open.driver.destroy_event(event);
  }
  if (open.staging.base != nullptr) (void)open.driver.free_pinned(open.staging.base);
  close_card(open.driver, open.card);
  open = {};
}

Status open_backend(const char* name, Backend* backend) {
  *backend = {};
  const CudaTable* wanted = nullptr;
  for (const CudaTable& table : kCudaTables) {
    if (strcmp(name, table.rules->name) == 0) wanted = &table;
  }
  if (wanted == nullptr)
    return {Code::kUnsupported,
            "a card has the backends \"cuda\" and \"cuda-large\" alone, each with \"+tf32\" or \"+bf16x3\" or neither",
            0};
  if (is_open() && (open.machine.size != wanted->size || open.machine.math != wanted->math)) {
    return {Code::kUnsupported, "the process has opened the card for a plan of another size or math: close it first",
            0};
  }
  if (!is_open()) {
    if (const Status status = open_everything(*wanted); !status.ok()) {
      close_everything();
      return status;
    }
  }
  *backend = cuda_backend(open.machine);
  return ok_status();
}

void close_backend(Backend* backend) {
  if (backend->rules != nullptr) close_everything();
  *backend = {};
}

// ---- memory ----

uint64_t pinned_bytes() {
  uint64_t bytes = CudaStaging::kBytes;
  for (const CardFile& file : open.files) bytes += file.piece != nullptr ? kPieceBytes : 0;
  return bytes + open.host_memory.bytes;
}

Status acquire_arena(uint64_t bytes, Arena* arena) {
  *arena = {};
  if (open.arena.arena.base.for_kernels != nullptr)
    return {Code::kUnsupported, "the process already has its arena on the card: release it first", bytes};
  REPRISE_RETURN_IF_ERROR(
      take_card_arena(open.driver, open.card, card_host_share(linux_memory(), pinned_bytes()), bytes, open.arena));
  *arena = open.arena.arena;
  return ok_status();
}

Status reserve_arena(uint64_t bytes, Arena* arena) {
  *arena = {};
  if (open.arena.arena.base.for_kernels != nullptr)
    return {Code::kUnsupported, "the process already has its arena on the card: release it first", bytes};
  REPRISE_RETURN_IF_ERROR(reserve_card_arena(open.driver, open.card, bytes, open.arena));
  *arena = open.arena.arena;
  return ok_status();
}

Status resize_arena(uint64_t bytes, Arena* arena) {
  REPRISE_RETURN_IF_ERROR(
      resize_card_arena(open.driver, open.card, card_host_share(linux_memory(), pinned_bytes()), bytes, open.arena));
  *arena = open.arena.arena;
  return ok_status();
}

void release_arena(Arena* arena) {
  if (arena->base.for_kernels != nullptr) give_card_arena(open.driver, open.arena);
  *arena = {};
}

char host_refusal[240];  // static: a Status cannot store a formatted text

Status acquire_host(uint64_t bytes, HostMemory* memory) {
  *memory = {};
  if (open.host_memory.base != nullptr)
    return {Code::kUnsupported, "the process already has its memory of the host: release it first", bytes};
  if (open.card.is_integrated) {
    return {Code::kUnsupported,
            "the card's memory is the host's own, so that nothing is saved by keeping values there: leave \"host\" "
            "out, or take \"disk\"",
            0};
  }
  const uint64_t available = linux_memory().available_bytes;
  void* pinned = nullptr;
  if (bytes > available || open.driver.allocate_pinned(&pinned, bytes) != 0) {
    (void)snprintf(host_refusal, sizeof host_refusal,
                   "the plan wants %llu MiB of pinned memory of the host, which has %llu MiB available: plan with less "
                   "of \"host\", or with a larger budget",
                   static_cast<unsigned long long>((bytes >> 20) + ((bytes & 0xfffff) != 0)),
                   static_cast<unsigned long long>(available >> 20));
    return {Code::kOutOfMemory, host_refusal, bytes};
  }
  open.host_memory = {static_cast<unsigned char*>(pinned), bytes};
  if (const Status status = open_copies(); !status.ok()) {
    close_copies();
    (void)open.driver.free_pinned(pinned);
    open.host_memory = {};
    return status;
  }
  *memory = open.host_memory;
  return ok_status();
}

void release_host(HostMemory* memory) {
  if (memory->base != nullptr) {
    close_copies();
    (void)open.driver.free_pinned(memory->base);
    open.host_memory = {};
  }
  *memory = {};
}

// ---- files: the thread of each file copies the card's bytes in pieces, through pinned memory ----

int errno_of(int driver_error) { return driver_error == 0 ? 0 : EIO; }

int settle_transfer(int queued, void* stream) {
  return errno_of(queued != 0 ? queued : open.driver.synchronise_stream(stream));
}

template <FileOf file>
int fetch_from_card(void* piece, const void* from, uint64_t bytes) {
  void* const stream = open.files[file].stream;
  if (const int error = open.driver.set_context(open.card.context); error != 0) return errno_of(error);
  return settle_transfer(open.driver.copy_to_host(piece, reinterpret_cast<uintptr_t>(from), bytes, stream), stream);
}

template <FileOf file>
int store_on_card(void* to, const void* piece, uint64_t bytes) {
  void* const stream = open.files[file].stream;
  if (const int error = open.driver.set_context(open.card.context); error != 0) return errno_of(error);
  return settle_transfer(open.driver.copy_to_card(reinterpret_cast<uintptr_t>(to), piece, bytes, stream), stream);
}

void close_file(FileOf file, Disk* disk) {
  linux_close_disk(disk);
  CardFile& of = open.files[file];
  if (of.stream != nullptr) (void)open.driver.destroy_stream(of.stream);
  if (of.piece != nullptr) (void)open.driver.free_pinned(of.piece);
  of = {};
}

template <FileOf file>
Status open_file(const char* path, uint64_t bytes, Disk* disk) {
  *disk = {};
  CardFile& of = open.files[file];
  if (of.stream != nullptr) return {Code::kUnsupported, "the process already has this file open: close it first", 0};
  Status status = open_stream(&of.stream);
  if (status.ok()) status = driver_says(open.driver.allocate_pinned(&of.piece, kPieceBytes));
  const DiskAccess access = {static_cast<unsigned char*>(of.piece), kPieceBytes, fetch_from_card<file>,
                             store_on_card<file>};
  const auto open_it = file == kWeightsFile ? linux_open_weights_of_device : linux_open_disk_of_device;
  if (status.ok()) status = open_it(access, path, bytes, disk);
  if (status.ok()) of.state = disk->state;
  if (!status.ok()) close_file(file, disk);
  return status;
}

void close_disk(Disk* disk) {
  if (disk->wait == nullptr) return;
  close_file(open.files[kWeightsFile].state == disk->state ? kWeightsFile : kSpillFile, disk);
}

// ---- the device's description ----

double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void describe_device(char* text, uint64_t bytes) {
  size_t free_bytes = 0, total_bytes = 0;
  text[0] = 0;
  if (!is_open() || open.driver.memory(&free_bytes, &total_bytes) != 0) return;
  const uint64_t arena = open.arena.mapped_bytes != 0 ? open.arena.mapped_bytes : open.arena.arena.bytes;
  const uint64_t taken = total_bytes - free_bytes, beside = taken > arena ? taken - arena : 0;
  const uint64_t before = total_bytes - open.card.free_bytes, since = beside > before ? beside - before : 0;
  (void)snprintf(text, bytes,
                 "%s (sm_%u, driver of CUDA %u.%u): arena %.1f MiB %s; beside it %.1f MiB of the card's %.1f are taken "
                 "by CUDA here and by "
                 "others, %.1f of them since this program began; pinned on the host %.1f MiB",
                 open.card.name, open.card.architecture, open.card.driver_version / 1000,
                 open.card.driver_version % 1000 / 10, mebibytes(arena),
                 open.arena.mapped_bytes != 0 ? "mapped"
                 : open.arena.is_pinned       ? "pinned on the host, which is slower: reboot the board for whole memory"
                                              : "allocated",
                 mebibytes(beside), mebibytes(total_bytes), mebibytes(since), mebibytes(pinned_bytes()));
}

double seconds() { return linux_port().seconds(); }

constexpr Port kCudaPort = {
    .name = "cuda",
    .open_backend = open_backend,
    .close_backend = close_backend,
    .acquire_arena = acquire_arena,
    .release_arena = release_arena,
    .reserve_arena = reserve_arena,
    .resize_arena = resize_arena,
    .start_workers = linux_start_workers,
    .stop_workers = linux_stop_workers,
    .max_workers = kMaxWorkers,
    .tune_backend = nullptr,
    .open_disk = open_file<kSpillFile>,
    .close_disk = close_disk,
    .open_weights = open_file<kWeightsFile>,
    .acquire_host = acquire_host,
    .release_host = release_host,
    .open_peers = nullptr,
    .close_peers = nullptr,
    .seconds = seconds,
    .describe_device = describe_device,
};

}  // namespace

const Port& cuda_port() { return kCudaPort; }

}  // namespace reprise
