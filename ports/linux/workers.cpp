// The thread pool of Workers. Threads sleep between calls, and take tasks from one atomic counter
// during a call. The pool is static, so that a call needs neither heap nor locks.
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "lib/assert.h"
#include "ports/linux/linux_functions.h"

namespace reprise {
namespace {

using Task = void (*)(void* argument, uint32_t index);

// Number of iterations before a thread sleeps. They take some tens of microseconds, as long as the
// gap between two kernels of a step.
constexpr uint32_t kSpins = 2000;

// The state of the pool. `claim` is [call number | tasks left]. A worker first reads `claim`, then
// the task of the call, and then takes a task by exchanging both values of `claim` at once. If the
// exchange succeeds, the call was not over, so the worker has read the task of this call. A call
// does not wait for workers that sleep through it.
struct Pool {
  std::atomic<uint64_t> claim{0};
  std::atomic<uint32_t> done{0};  // completed tasks of the call; also the futex on which the caller sleeps
  std::atomic<uint32_t> caller_sleeps{0};
  std::atomic<uint32_t> call{0};  // the futex on which workers sleep
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> stop{0};

  std::atomic<Task> task{nullptr};
  std::atomic<void*> argument{nullptr};
  std::atomic<uint32_t> tasks{0};

  pthread_t threads[kMaxWorkers];
  uint32_t started = 0;  // number of threads other than the caller's
  bool exists = false;
};
Pool pool;

void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  (void)syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word) {
  (void)syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr uint32_t call_of(uint64_t claim) { return static_cast<uint32_t>(claim >> 32); }
constexpr uint32_t left_of(uint64_t claim) { return static_cast<uint32_t>(claim); }

// Takes and runs tasks of call `number` until none is left.
void work(uint32_t number) {
  uint64_t claim = pool.claim.load(std::memory_order_acquire);
  while (call_of(claim) == number && left_of(claim) > 0) {
    const Task task = pool.task.load(std::memory_order_relaxed);
    void* const argument = pool.argument.load(std::memory_order_relaxed);
    const uint32_t tasks = pool.tasks.load(std::memory_order_relaxed);
    if (!pool.claim.compare_exchange_weak(claim, claim - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    task(argument, tasks - left_of(claim));
    if (pool.done.fetch_add(1, std::memory_order_seq_cst) + 1 == tasks &&
        pool.caller_sleeps.load(std::memory_order_seq_cst) != 0) {
      wake(pool.done);
    }
    claim = pool.claim.load(std::memory_order_acquire);
  }
}

// Waits for a call after call `seen`, and returns its number.
uint32_t await_call(uint32_t seen) {
  for (uint32_t spin = 0; spin < kSpins; ++spin) {
    const uint32_t call = pool.call.load(std::memory_order_acquire);
    if (call != seen) return call;
    relax();
  }
  pool.sleepers.fetch_add(1, std::memory_order_seq_cst);
  uint32_t call;
  while ((call = pool.call.load(std::memory_order_seq_cst)) == seen) sleep_while(pool.call, seen);
  pool.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return call;
}

void* worker_main(void* first_call) {
  uint32_t seen = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first_call));
  for (;;) {
    seen = await_call(seen);
    if (pool.stop.load(std::memory_order_acquire) != 0) return nullptr;
    work(seen);
  }
}

void announce_call(uint32_t number) {
  pool.call.store(number, std::memory_order_seq_cst);
  if (pool.sleepers.load(std::memory_order_seq_cst) != 0) wake(pool.call);
}

void await_done(uint32_t tasks) {
  for (uint32_t spin = 0; spin < kSpins; ++spin) {
    if (pool.done.load(std::memory_order_acquire) == tasks) return;
    relax();
  }
  pool.caller_sleeps.store(1, std::memory_order_seq_cst);
  for (uint32_t done; (done = pool.done.load(std::memory_order_seq_cst)) != tasks;) sleep_while(pool.done, done);
  pool.caller_sleeps.store(0, std::memory_order_relaxed);
}

void run(void*, uint32_t tasks, Task task, void* argument) {
  if (tasks == 0) return;
  REPRISE_ASSERT(pool.done.load(std::memory_order_acquire) == pool.tasks.load(std::memory_order_relaxed),
                 "the workers' last call has ended");
  const uint32_t number = pool.call.load(std::memory_order_relaxed) + 1;
  pool.done.store(0, std::memory_order_relaxed);
  pool.task.store(task, std::memory_order_relaxed);
  pool.argument.store(argument, std::memory_order_relaxed);
  pool.tasks.store(tasks, std::memory_order_relaxed);
  pool.claim.store(uint64_t{number} << 32 | tasks, std::memory_order_release);
  announce_call(number);
  work(number);
  await_done(tasks);
}

uint32_t usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1 : static_cast<uint32_t>(count);
}

int start_thread(pthread_t* thread, uint32_t seen) {
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error != 0) return error;
  error = pthread_attr_setstacksize(&attributes, kWorkerStackBytes);
  if (error == 0) error = pthread_create(thread, &attributes, worker_main, reinterpret_cast<void*>(uintptr_t{seen}));
  (void)pthread_attr_destroy(&attributes);
  return error;
}

void stop_threads() {
  pool.stop.store(1, std::memory_order_release);
  announce_call(pool.call.load(std::memory_order_relaxed) + 1);
  for (; pool.started > 0; --pool.started) (void)pthread_join(pool.threads[pool.started - 1], nullptr);
  pool.exists = false;
}

}  // namespace

Status linux_start_workers(uint32_t count, Workers* workers) {
  *workers = {};
  if (pool.exists) return {Code::kUnsupported, "the process already has its workers: stop them first", 0};
  if (count == 0) {
    const uint32_t processors = usable_processors();
    count = processors < kMaxWorkers ? processors : kMaxWorkers;
  }
  if (count > kMaxWorkers) return {Code::kUnsupported, "at most kMaxWorkers workers", kMaxWorkers};
  pool.exists = true;
  pool.stop.store(0, std::memory_order_relaxed);
  while (pool.started + 1 < count) {
    const int error = start_thread(&pool.threads[pool.started], pool.call.load(std::memory_order_relaxed));
    if (error != 0) {
      stop_threads();
      return {Code::kBackend, "a worker thread could not be started", static_cast<uint64_t>(error)};
    }
    ++pool.started;
  }
  *workers = {nullptr, count, run, kWorkerStackBytes};
  return ok_status();
}

void linux_stop_workers(Workers* workers) {
  if (workers->run != nullptr) stop_threads();
  *workers = {};
}

}  // namespace reprise
