// See worker_stacks.h.
#include "tools/run/training/worker_stacks.h"

#include <alloca.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace reprise {
namespace {

constexpr uint64_t kCanary = 0x5EEDFACE0DDBA115;
constexpr uint64_t kMargin = 64 << 10;  // bytes of a worker's stack for the frames below those of a task

bool sanitizers_lay_out_stacks() {
#ifdef __SANITIZE_ADDRESS__
  return true;
#else
  return false;
#endif
}

}  // namespace

struct WorkerStacks::Meeting {
  uint64_t bytes;
  uint32_t count;
  std::atomic<uint32_t> arrived;
  std::vector<Painted>* painted;
  std::vector<std::thread::id> threads;
};

// Paints the stack below the caller's frame. alloca returns the memory that a task's own frames
// will occupy later.
__attribute__((noinline)) void WorkerStacks::paint_own(Meeting& meeting, uint32_t place) {
  const uint64_t words = meeting.bytes / sizeof(uint64_t);
  volatile uint64_t* low = static_cast<volatile uint64_t*>(alloca(words * sizeof(uint64_t)));
  for (uint64_t w = 0; w < words; ++w) low[w] = kCanary;
  (*meeting.painted)[place] = {low, words};
  meeting.threads[place] = std::this_thread::get_id();
  const auto start = std::chrono::steady_clock::now();
  for (meeting.arrived.fetch_add(1); meeting.arrived.load() < meeting.count; std::this_thread::yield()) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(10)) return;
  }
}

void WorkerStacks::paint(const Workers& workers, uint64_t bytes) {
  painted_.clear();
  if (sanitizers_lay_out_stacks() || workers.stack_bytes < 2 * kMargin) return;
  std::vector<Painted> painted(workers.count);
  Meeting meeting = {std::min(bytes, workers.stack_bytes - kMargin),
                     workers.count,
                     {},
                     &painted,
                     std::vector<std::thread::id>(workers.count)};
  parallel_for(workers, workers.count, [&meeting](uint32_t place) { paint_own(meeting, place); });
  for (uint32_t w = 0; w < workers.count; ++w) {
    if (meeting.threads[w] == std::this_thread::get_id())
      std::swap(painted[0], painted[w]), std::swap(meeting.threads[0], meeting.threads[w]);
  }
  std::sort(meeting.threads.begin(), meeting.threads.end());
  const bool each_came = std::adjacent_find(meeting.threads.begin(), meeting.threads.end()) == meeting.threads.end();
  if (each_came) painted_ = std::move(painted);
}

std::vector<uint64_t> WorkerStacks::used() const {
  std::vector<uint64_t> used;
  for (const Painted& own : painted_) {
    uint64_t whole = 0;
    while (whole < own.words && own.low[whole] == kCanary) ++whole;
    used.push_back((own.words - whole) * sizeof(uint64_t));
  }
  return used;
}

}  // namespace reprise
