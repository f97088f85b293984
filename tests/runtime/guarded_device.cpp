// See guarded_device.h. mprotect denies access to the pages of the arena, except while the queue
// runs.
#include "tests/runtime/guarded_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lib/float_mode.h"

namespace reprise {
namespace {

struct Job {
  FloatMode mode;  // floating-point mode of the caller, in which the job runs
  std::function<Status()> run;
};

const Backend* cpu = nullptr;
Backend queued;
unsigned char* base = nullptr;
uint64_t arena_bytes = 0;
std::deque<Job> queue;
std::vector<unsigned char> spilled;
struct StartedCopy {
  uint32_t number;
  unsigned char *to, *from;
  uint64_t bytes;
};
std::deque<StartedCopy> copies;  // started copies that are not complete, oldest first

void protect(int protection) {
  if (::mprotect(base, arena_bytes, protection) != 0) throw std::runtime_error("mprotect");
}

// While an object of this class exists, the arena can be accessed. Used when kernels, copies and
// disks run.
struct Unguarded {
  Unguarded() { protect(PROT_READ | PROT_WRITE); }
  ~Unguarded() { protect(PROT_NONE); }
};

Status push(std::function<Status()> run) {
  queue.push_back({float_mode(), std::move(run)});
  return ok_status();
}

void bring_copies(size_t count) {
  for (; count > 0; --count) {
    std::memcpy(copies.front().to, copies.front().from, copies.front().bytes);
    copies.pop_front();
  }
}

Status start_copy(void* to, const void* from, uint64_t bytes, uint32_t number) {
  return push([=] {
    std::memset(to, 0xff, bytes);  // NaN until the copy is complete
    copies.push_back(
        {number, static_cast<unsigned char*>(to), static_cast<unsigned char*>(const_cast<void*>(from)), bytes});
    return ok_status();
  });
}

// Completes the pending copies in order, up to and including the last one with this number.
Status await_copy(const KernelContext&, uint32_t number) {
  return push([=] {
    size_t count = 0;
    for (size_t c = 0; c < copies.size(); ++c) count = copies[c].number == number ? c + 1 : count;
    bring_copies(count);
    return ok_status();
  });
}

Status run_queue(const KernelContext&) {
  const Unguarded unguarded;
  Status status = ok_status();
  for (const Job& job : queue) {
    const FloatModeScope scope(job.mode);
    if (status.ok()) status = job.run();
  }
  queue.clear();
  bring_copies(copies.size());
  return status;
}

// A queued call of a row. Contains copies of the lists to which the call points, because the lists
// may no longer exist when the call runs.
struct KeptCall {
  KernelContext context;
  RowCall call;
  std::array<const Tensor*, kMaxArguments> tensors;
  std::array<void*, kMaxArguments> pointers;

  Status run(Kernel kernel) const {
    RowCall own = call;
    own.tensors = tensors.data();
    own.pointers = pointers.data();
    return kernel(context, own);
  }
};

// Replaces a kernel of the CPU in the table: puts a call of that kernel into the queue.
template <uint32_t kernel, uint32_t storage>
Status queue_call(const KernelContext& context, const RowCall& call) {
  KeptCall kept = {context, call, {}, {}};
  for (uint32_t i = 0; i < kOps[kernel].arity(); ++i) {
    if (call.has(i)) kept.tensors[i] = call.tensors[i];
    kept.pointers[i] = call.pointers[i];
  }
  return push([kept] { return kept.run(cpu->kernels[kernel][storage]); });
}

template <uint32_t... kernels>
void queue_kernels(std::integer_sequence<uint32_t, kernels...>) {
  const Kernel all[kKernelCount][kStorages] = {{queue_call<kernels, 0>, queue_call<kernels, 1>}...};
  for (uint32_t k = 0; k < kKernelCount; ++k) {
    for (uint32_t s = 0; s < kStorages; ++s) queued.kernels[k][s] = cpu->kernels[k][s] == nullptr ? nullptr : all[k][s];
  }
}

constexpr HostAccess kQueuedHost = {
    .copy_in =
        [](const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes) {
          const unsigned char* first = static_cast<const unsigned char*>(from);
          return push([context, to, copy = std::vector<unsigned char>(first, first + bytes)] {
            return cpu->host.copy_in(context, to, copy.data(), copy.size());
          });
        },
    .copy_out =
        [](const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes) {
          if (bytes != 0) std::memset(to, 0xa5, bytes);
          return push([=] { return cpu->host.copy_out(context, to, from, bytes); });
        },
    .fill =
        [](const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes) {
          return push([=] { return cpu->host.fill(context, to, word, bytes); });
        },
    .copy =
        [](const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes) {
          return push([=] { return cpu->host.copy(context, to, from, bytes); });
        },
    .start_out = [](const KernelContext&, void* to, ArenaAddress from, uint64_t bytes,
                    uint32_t number) { return start_copy(to, from.for_kernels, bytes, number); },
    .start_in = [](const KernelContext&, ArenaAddress to, const void* from, uint64_t bytes,
                   uint32_t number) { return start_copy(to.for_kernels, from, bytes, number); },
    .await = await_copy,
    .synchronise = run_queue,
};

}  // namespace

GuardedDevice::GuardedDevice(uint64_t bytes, const Backend& cpu_backend) {
  if (cpu != nullptr) throw std::logic_error("one sealed device at a time");
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  arena_bytes = (bytes + page - 1) / page * page;
  void* memory = ::mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  base = static_cast<unsigned char*>(memory);
  cpu = &cpu_backend;
  queued = cpu_backend;
  queue_kernels(std::make_integer_sequence<uint32_t, kKernelCount>());
  queued.host = kQueuedHost;
}

GuardedDevice::~GuardedDevice() {
  (void)::munmap(base, arena_bytes);
  queue.clear();
  cpu = nullptr;
}

const Backend& GuardedDevice::backend() const { return queued; }

Arena GuardedDevice::arena() const { return {{base}, arena_bytes}; }

Disk GuardedDevice::disk(uint64_t bytes) {
  spilled.assign(bytes, 0);
  return {nullptr, bytes,
          [](void*, uint64_t offset, const void* from, uint64_t size) {
            const Unguarded unguarded;
            std::memcpy(spilled.data() + offset, from, size);
            return ok_status();
          },
          [](void*, uint64_t offset, void* to, uint64_t size) {
            const Unguarded unguarded;
            std::memcpy(to, spilled.data() + offset, size);
            return ok_status();
          },
          [](void*, uint64_t) { return ok_status(); }};
}

}  // namespace reprise
