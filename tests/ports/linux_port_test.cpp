// Tests the Linux port. Every task must run once, and the caller must see its result. An arena must
// be allocated completely or not at all. Many tasks run, because a lost task or a lost wake-up
// appears only under load.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "lib/tensor.h"
#include "ports/linux/linux_port.h"

namespace reprise {
namespace {

struct RunningPool {
  Workers workers;
  explicit RunningPool(uint32_t count) { EXPECT_TRUE(linux_port().start_workers(count, &workers).ok()); }
  ~RunningPool() { linux_port().stop_workers(&workers); }
};

TEST(LinuxWorkers, EveryTaskRunsOnce) {
  for (uint32_t count : {1u, 2u, 3u, 8u}) {
    const RunningPool pool(count);
    ASSERT_EQ(count, pool.workers.count);
    // `hits` is not atomic. So it gets a wrong number if a task runs twice, or if the caller does
    // not see a task's write.
    std::vector<uint32_t> hits(1000);
    for (uint32_t call = 0; call < 3000; ++call) {
      const uint32_t tasks = call * 7919 % 40;
      parallel_for(pool.workers, tasks, [&](uint32_t i) { hits[i] += i + 1; });
      for (uint32_t i = 0; i < 40; ++i) {
        ASSERT_EQ(i < tasks ? i + 1 : 0, hits[i]) << "workers " << count << " call " << call << " task " << i;
        hits[i] = 0;
      }
    }
  }
}

TEST(LinuxWorkers, WakesAfterSleep) {
  const RunningPool pool(3);
  for (int call = 0; call < 20; ++call) {
    usleep(2000);  // workers have then stopped spinning and sleep
    uint32_t sums[64] = {};
    pool.workers.run(
        pool.workers.state, 64,
        [](void* sum, uint32_t i) {
          if (i == 0) usleep(1000);  // the caller has then stopped spinning and sleeps
          static_cast<uint32_t*>(sum)[i] = i;
        },
        sums);
    for (uint32_t i = 0; i < 64; ++i) ASSERT_EQ(i, sums[i]);
  }
}

TEST(LinuxWorkers, OnePoolInAProcess) {
  Workers second;
  {
    const RunningPool pool(2);
    EXPECT_EQ(Code::kUnsupported, linux_port().start_workers(2, &second).code);
  }
  EXPECT_EQ(Code::kUnsupported, linux_port().start_workers(linux_port().max_workers + 1, &second).code);
  const RunningPool again(0);
  EXPECT_GE(again.workers.count, 1u);
}

TEST(LinuxWorkers, PromisedStackIsThere) {
  RunningPool pool(4);
  const uint64_t bytes = pool.workers.stack_bytes;
  ASSERT_EQ(bytes, uint64_t{1} << 20);
  parallel_for(pool.workers, 64, [&](uint32_t i) {
    constexpr uint64_t kLeft = 64 << 10;  // bytes for the frames above and below this function's
    volatile unsigned char* stack = static_cast<volatile unsigned char*>(__builtin_alloca(bytes - kLeft));
    for (uint64_t at = 0; at < bytes - kLeft; at += 4096) stack[at] = static_cast<unsigned char>(i);
  });
  linux_port().stop_workers(&pool.workers);
  EXPECT_EQ(pool.workers.stack_bytes, 0u);
  linux_port().stop_workers(&pool.workers);  // stopping an empty pool does nothing
}

TEST(LinuxClock, NeverGoesBack) {
  double before = linux_port().seconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = linux_port().seconds();
    ASSERT_GE(now, before);
    before = now;
  }
  usleep(2000);
  EXPECT_GE(linux_port().seconds() - before, 0.002);
}

TEST(LinuxArena, ComesWholeAlignedAndZeroed) {
  Arena arena;
  ASSERT_TRUE(linux_port().acquire_arena(5'000'003, &arena).ok());
  EXPECT_EQ(5'000'003u, arena.bytes);
  EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(arena.base.for_kernels) % kAlignment);
  for (uint64_t i = 0; i < arena.bytes; i += 997) ASSERT_EQ(0, arena.base.for_kernels[i]);
  linux_port().release_arena(&arena);
  EXPECT_EQ(nullptr, arena.base.for_kernels);
  linux_port().release_arena(&arena);
}

TEST(LinuxArena, RefusesWhatTheMachineHasNot) {
  Arena arena;
  const uint64_t bytes = uint64_t{1} << 50;
  const Status status = linux_port().acquire_arena(bytes, &arena);
  EXPECT_EQ(Code::kOutOfMemory, status.code);
  EXPECT_EQ(bytes, status.detail);
  EXPECT_EQ(nullptr, arena.base.for_kernels);
}

// Returns how many bytes of the range are resident in physical memory.
uint64_t resident_bytes(const unsigned char* from, uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<unsigned char*>(from), bytes, pages.data()), 0);
  uint64_t resident = 0;
  for (const unsigned char each : pages) resident += each & 1;
  return resident * page;
}

uint64_t process_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("Rss:", 0) == 0) return std::stoull(line.substr(4)) * 1024;
  }
  ADD_FAILURE() << "no Rss";
  return 0;
}

TEST(LinuxArena, GivesMemoryBackAndTakesItAgain) {
  constexpr uint64_t kMiB = 1 << 20, kLarge = 64 * kMiB + 12345, kSmall = 20 * kMiB + 777;
  Arena arena;
  ASSERT_TRUE(linux_port().reserve_arena(kLarge, &arena).ok());
  EXPECT_EQ(arena.bytes, 0u);
  EXPECT_EQ(arena.reserved_bytes, kLarge);
  unsigned char* const base = arena.base.for_kernels;
  EXPECT_EQ(resident_bytes(base, kLarge), 0u) << "addresses alone";
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(linux_port().resize_arena(kLarge, &arena).ok());
    EXPECT_EQ(arena.base.for_kernels, base);
    const uint64_t fresh = turn == 0 ? 0 : kSmall + 4096;
    EXPECT_EQ(std::count(base + fresh, base + kLarge, 0), static_cast<std::ptrdiff_t>(kLarge - fresh))
        << "what comes is zeroed";
    for (uint64_t at = 0; at < kLarge; ++at) base[at] = static_cast<unsigned char>(at % 251);
    const uint64_t before = process_bytes();
    EXPECT_GE(resident_bytes(base, kLarge), kLarge);
    ASSERT_TRUE(linux_port().resize_arena(kSmall, &arena).ok());
    EXPECT_EQ(arena.bytes, kSmall);
    EXPECT_LE(resident_bytes(base, kLarge), kSmall + 4096);
    EXPECT_LE(process_bytes() + (kLarge - kSmall) - 2 * kMiB, before) << "the system has them again";
    uint64_t same = 0;
    for (uint64_t at = 0; at < kSmall; ++at) same += base[at] == at % 251;
    EXPECT_EQ(same, kSmall) << "what stays is as it was";
  }
  EXPECT_DEATH(base[kSmall + 8192] = 1, "") << "what was given back cannot be touched";
  linux_port().release_arena(&arena);
  EXPECT_EQ(arena.reserved_bytes, 0u);
  EXPECT_EQ(mincore(base, 4096, std::vector<unsigned char>(1).data()), -1) << "the addresses are free again";
}

TEST(LinuxArena, GrowsIntoItsOwnAddressesAlone) {
  Arena arena;
  ASSERT_TRUE(linux_port().reserve_arena(8192, &arena).ok());
  ASSERT_TRUE(linux_port().resize_arena(4096, &arena).ok());
  EXPECT_EQ(linux_port().resize_arena(8193, &arena).code, Code::kUnsupported);
  EXPECT_EQ(arena.bytes, 4096u);
  linux_port().release_arena(&arena);
  ASSERT_TRUE(linux_port().acquire_arena(4096, &arena).ok());
  EXPECT_EQ(linux_port().resize_arena(8192, &arena).code, Code::kUnsupported)
      << "one that was taken whole keeps its size";
  linux_port().release_arena(&arena);
}

TEST(LinuxArena, StaysAsItWasWhereItCannotGrow) {
  Arena arena;
  const uint64_t maximum = uint64_t{1} << 45;  // fits the address space, but not the physical memory
  ASSERT_TRUE(linux_port().reserve_arena(maximum, &arena).ok());
  ASSERT_TRUE(linux_port().resize_arena(8192, &arena).ok());
  arena.base.for_kernels[8191] = 7;
  const Status status = linux_port().resize_arena(maximum, &arena);
  EXPECT_EQ(status.code, Code::kOutOfMemory);
  EXPECT_EQ(status.detail, maximum);
  EXPECT_EQ(arena.bytes, 8192u);
  EXPECT_EQ(arena.base.for_kernels[8191], 7);
  linux_port().release_arena(&arena);
}

}  // namespace
}  // namespace reprise
