// Implements the functions that code compiled with -fsanitize=thread calls, and judges accesses to
// the tensors. While a kernel runs, the functions run on a fibre's stack. They must not throw,
// because compilers assume so.
#include "tests/ports/fibres/cuda_fibre_access.h"

#include <cstring>

#include "tests/ports/fibres/code_places.h"
#include "tests/ports/ptx/ptx_launches.h"

namespace reprise::fibre {
namespace {

// The range of addresses in which accesses are judged: the tensors, and kGuard bytes before and
// after them. CasePlan::kGuard is larger, so the range contains no other memory.
constexpr uint64_t kGuard = 2048;
struct Watched {
  uint64_t begin = 0, bytes = 0;  // 0 bytes: nothing is watched
};
Watched watched;

using Access = GlobalOrder::Access;

inline void touch(Access access, const void* at, uint64_t bytes, uint64_t alignment, const void* code) {
  const auto address = reinterpret_cast<uint64_t>(at);
  if (address - watched.begin >= watched.bytes) [[likely]]
    return;
  Device::instance().judge()->note(access, address, bytes, alignment, place_of(code));
}

std::string name_of(const void* kernel) {
  for (const ptx::FunctionName& each : ptx::names_of(kernel)) return each.name;
  return "a kernel";
}

}  // namespace

void AccessJudge::begin_launch(const void* kernel, const test::MemoryRanges& ranges) {
  kernel_ = kernel;
  order_.begin_launch();
  if (!ranges.empty()) watched = {ranges.begin() - kGuard, ranges.end() + 2 * kGuard - ranges.begin()};
}

void AccessJudge::end_launch() { watched = {}; }

void AccessJudge::note(Access access, uint64_t address, uint64_t bytes, uint64_t alignment, uint32_t place) {
  ++judged_;
  const Device& device = Device::instance();
  const bool writes = access != Access::kRead;
  if (!device.ranges().allow(address, bytes, writes))
    return report(Fault::kOutOfBounds, place, device.ranges().fault(address, bytes, writes));
  if (address % alignment != 0)
    return report(Fault::kMisaligned, place,
                  device.ranges().place(address) + ", not aligned to " + std::to_string(alignment));
  if (order_.note(access, address, static_cast<uint32_t>(bytes), device.thread(), place)) return;
  report(Fault::kRace, place, device.ranges().place(order_.race_address()) + order_.race());
}

// Records a read of the copy's source. Called when the copy is issued and when its thread waits for
// it, because the copy may read at any time in between.
void AccessJudge::note_copy(const Copy& copy) {
  if (copy.valid_bytes != 0)
    note(Access::kRead, reinterpret_cast<uint64_t>(copy.source), copy.valid_bytes, 1, copy.place);
}

void AccessJudge::note_atomic(uint64_t address, uint32_t bytes, uint32_t place) {
  note(Access::kAtomic, address, bytes, bytes, place);
  order_.hand_over(address, Device::instance().thread(), true);
}

void AccessJudge::report(Fault fault, uint32_t place, const std::string& what) const {
  Device& device = Device::instance();
  device.report(fault, "thread " + std::to_string(device.thread()) + " of " + name_of(kernel_) + code_text(place) +
                           ": " + what);
}

}  // namespace reprise::fibre

// ---- called by compiled code, with the names of the thread sanitizer's run time ----

using reprise::fibre::touch;
using enum reprise::fibre::GlobalOrder::Access;

#define REPRISE_ACCESSES(bytes)                                                                            \
  void __tsan_read##bytes(void* at) { touch(kRead, at, bytes, bytes, __builtin_return_address(0)); }       \
  void __tsan_write##bytes(void* at) { touch(kWrite, at, bytes, bytes, __builtin_return_address(0)); }     \
  void __tsan_unaligned_read##bytes(void* at) { touch(kRead, at, bytes, 1, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##bytes(void* at) { touch(kWrite, at, bytes, 1, __builtin_return_address(0)); }

extern "C" {

REPRISE_ACCESSES(1)
REPRISE_ACCESSES(2)
REPRISE_ACCESSES(4)
REPRISE_ACCESSES(8)
REPRISE_ACCESSES(16)
void __tsan_read_range(void* at, unsigned long bytes) { touch(kRead, at, bytes, 1, __builtin_return_address(0)); }
void __tsan_write_range(void* at, unsigned long bytes) { touch(kWrite, at, bytes, 1, __builtin_return_address(0)); }

// Replaces memcpy in kernels, which compilers call to copy structures of 16 bytes and more.
// watched_memset() replaces memset, which they call to clear local structures.
void* watched_memcpy(void* to, const void* from, unsigned long bytes) {
  touch(kRead, from, bytes, 1, __builtin_return_address(0));
  touch(kWrite, to, bytes, 1, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* watched_memmove(void* to, const void* from, unsigned long bytes) {
  touch(kRead, from, bytes, 1, __builtin_return_address(0));
  touch(kWrite, to, bytes, 1, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* watched_memset(void* to, int byte, unsigned long bytes) {
  touch(kWrite, to, bytes, 1, __builtin_return_address(0));
  return std::memset(to, byte, bytes);
}

// Host code in the same objects calls these functions, for guards of static variables and for
// virtual tables; kernels do not. So they record nothing.
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
char __tsan_atomic8_load(const volatile char* at, int) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

}  // extern "C"
