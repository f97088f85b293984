// The Linux port: every task runs once and is seen by the caller; arenas come whole or not at all.
// Here because a lost task or a lost wake-up shows only under load.
#include <gtest/gtest.h>
#include <unistd.h>

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
    std::vector<uint32_t> hits(1000);  // plain memory: a task seen twice, or not seen by the caller, shows
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
    usleep(2000);  // longer than a worker spins
    uint32_t sums[64] = {};
    pool.workers.run(
        pool.workers.state, 64,
        [](void* sum, uint32_t i) {
          if (i == 0) usleep(1000);  // longer than the caller spins
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
  EXPECT_EQ(Code::kUnsupported, linux_port().start_workers(linux_port().most_workers + 1, &second).code);
  const RunningPool again(0);
  EXPECT_GE(again.workers.count, 1u);
}

TEST(LinuxWorkers, PromisedStackIsThere) {
  RunningPool pool(4);
  const uint64_t bytes = pool.workers.stack_bytes;
  ASSERT_EQ(bytes, uint64_t{1} << 20);
  parallel_for(pool.workers, 64, [&](uint32_t i) {
    constexpr uint64_t kLeft = 64 << 10;  // for the frames around this one
    volatile unsigned char* stack = static_cast<volatile unsigned char*>(__builtin_alloca(bytes - kLeft));
    for (uint64_t at = 0; at < bytes - kLeft; at += 4096) stack[at] = static_cast<unsigned char>(i);
  });
  linux_port().stop_workers(&pool.workers);
  EXPECT_EQ(pool.workers.stack_bytes, 0u);
  linux_port().stop_workers(&pool.workers);  // an empty one is left alone
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

}  // namespace
}  // namespace reprise
