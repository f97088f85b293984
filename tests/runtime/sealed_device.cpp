// The device of sealed_device.h: mprotect keeps the arena's pages shut but while the queue runs.
#include "tests/runtime/sealed_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>
#include <vector>

#include "lib/float_mode.h"

namespace reprise {
namespace {

struct Job {
  FloatMode mode;  // of the caller, as a device would have its own
  std::function<Status()> run;
};

const Backend* cpu = nullptr;
Backend queued;
ActivationKernels<Bf16> queued_bf16;
unsigned char* base = nullptr;
uint64_t arena_bytes = 0;
std::deque<Job> queue;
std::vector<unsigned char> spilled;

void protect(int protection) {
  if (::mprotect(base, arena_bytes, protection) != 0) throw std::runtime_error("mprotect");
}

// Kernels and disks may look in while this lives.
struct Unsealed {
  Unsealed() { protect(PROT_READ | PROT_WRITE); }
  ~Unsealed() { protect(PROT_NONE); }
};

Status push(std::function<Status()> run) {
  queue.push_back({float_mode(), std::move(run)});
  return ok_status();
}

Status run_queue(const KernelContext&) {
  const Unsealed unsealed;
  Status status = ok_status();
  for (const Job& job : queue) {
    const FloatModeScope scope(job.mode);
    if (status.ok()) status = job.run();
  }
  queue.clear();
  return status;
}

template <typename Table>
const Table& cpu_table() {
  if constexpr (std::is_same_v<Table, ActivationKernels<Bf16>>) {
    return *cpu->bf16;
  } else {
    return *cpu;
  }
}

template <auto kernel>
struct Queued;
template <typename Table, typename Args, Status (*Table::*kernel)(const KernelContext&, const Args&)>
struct Queued<kernel> {
  static Status call(const KernelContext& context, const Args& args) {
    return push([context, args] { return (cpu_table<Table>().*kernel)(context, args); });
  }
};

template <auto... kernels, typename Table>
void queue_kernels(Table& table) {
  ((table.*kernels = Queued<kernels>::call), ...);
}

template <typename Stored>
void queue_activations(ActivationKernels<Stored>& table) {
  using K = ActivationKernels<Stored>;
  const auto all = [&table]<auto... kernels>() {
    static_assert(sizeof...(kernels) * sizeof(void (*)()) == sizeof(K), "a kernel is missing from this list");
    queue_kernels<kernels...>(table);
  };
  all.template operator()<&K::conv_forward, &K::conv_backward_data, &K::conv_backward_weight, &K::batch_norm_statistics,
                          &K::batch_norm_forward, &K::batch_norm_inference, &K::batch_norm_backward, &K::norm_add_relu_forward,
                          &K::relu_forward, &K::relu_backward, &K::add_forward, &K::copy_forward, &K::max_pool_forward,
                          &K::max_pool_backward, &K::global_pool_forward, &K::global_pool_backward, &K::linear_forward,
                          &K::linear_backward_data, &K::linear_backward_weight, &K::linear_backward_bias, &K::layer_norm_forward,
                          &K::layer_norm_backward, &K::gelu_forward, &K::gelu_backward, &K::embedding_forward, &K::embedding_backward,
                          &K::attention_forward, &K::attention_backward, &K::dropout, &K::loss_head_backward, &K::loss_head_evaluate,
                          &K::move>();
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
          std::memset(to, 0xa5, bytes);
          return push([=] { return cpu->host.copy_out(context, to, from, bytes); });
        },
    .fill =
        [](const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes) {
          return push([=] { return cpu->host.fill(context, to, word, bytes); });
        },
    .synchronise = run_queue,
};

}  // namespace

SealedDevice::SealedDevice(uint64_t bytes, const Backend& cpu_backend) {
  if (cpu != nullptr) throw std::logic_error("one sealed device at a time");
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  arena_bytes = (bytes + page - 1) / page * page;
  void* memory = ::mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  base = static_cast<unsigned char*>(memory);
  cpu = &cpu_backend;
  queued = cpu_backend;
  queue_activations<float>(queued);
  queue_kernels<&Backend::batch_norm_running, &Backend::grad_norm_reduce, &Backend::grad_norm_finish, &Backend::sgd_update,
                &Backend::adamw_update>(queued);
  queue_activations<Bf16>(queued_bf16);
  queued.bf16 = &queued_bf16;
  queued.host = kQueuedHost;
}

SealedDevice::~SealedDevice() {
  (void)::munmap(base, arena_bytes);
  queue.clear();
  cpu = nullptr;
}

const Backend& SealedDevice::backend() const { return queued; }

Arena SealedDevice::arena() const { return {{base}, arena_bytes}; }

Disk SealedDevice::disk(uint64_t bytes) {
  spilled.assign(bytes, 0);
  return {nullptr, bytes,
          [](void*, uint64_t offset, const void* from, uint64_t size) {
            const Unsealed unsealed;
            std::memcpy(spilled.data() + offset, from, size);
            return ok_status();
          },
          [](void*, uint64_t offset, void* to, uint64_t size) {
            const Unsealed unsealed;
            std::memcpy(to, spilled.data() + offset, size);
            return ok_status();
          },
          [](void*, uint64_t) { return ok_status(); }};
}

}  // namespace reprise
