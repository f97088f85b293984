// What a board gives to the library: workers, an arena and perhaps a disk. A port fills these tables (ports/template/README.md).
// Here because lib knows no operating system.
// It must not know what the workers compute.
#pragma once

#include "lib/float_mode.h"
#include "lib/status.h"

namespace reprise {

// Runs task(argument, i) once for every i in [0, tasks), on any worker in any order; returns when all are done.
// Not reentrant. A port with one core calls them in a loop.
struct Workers {
  void* state = nullptr;
  uint32_t count = 1;
  void (*run)(void* state, uint32_t tasks, void (*task)(void* argument, uint32_t index), void* argument) = nullptr;
};

// Runs a callable for every index in [0, tasks), in the caller's floating-point mode; on the calling thread where there is only one
// task or one worker.
template <typename F>
void parallel_for(const Workers& workers, uint32_t tasks, const F& body) {
  if (tasks <= 1 || workers.count <= 1 || workers.run == nullptr) {
    for (uint32_t i = 0; i < tasks; ++i) body(i);
    return;
  }
  struct Job {
    const F& body;
    FloatMode mode;
  } job{body, float_mode()};
  const auto run_task = [](void* argument, uint32_t index) {
    const Job& own = *static_cast<const Job*>(argument);
    const FloatModeScope scope(own.mode);
    own.body(index);
  };
  workers.run(workers.state, tasks, run_task, &job);
}

// A second level of memory that a plan may spill to: `bytes` bytes, addressed from 0. A transfer is started, goes on by itself
// while other rows run, and is waited for; neither of its ends may be touched meanwhile. Transfers of the same bytes keep their
// order. A port without one leaves it empty.
struct Disk {
  static constexpr uint64_t kEverything = ~uint64_t{0};
  void* state = nullptr;
  uint64_t bytes = 0;
  Status (*start_write)(void* state, uint64_t offset, const void* from, uint64_t bytes) = nullptr;
  Status (*start_read)(void* state, uint64_t offset, void* to, uint64_t bytes) = nullptr;
  // Returns when no transfer that was started at `offset` is under way any more (kEverything: none at all). kInputOutput with errno
  // as the detail where one has failed, whichever: every wait says so from then on, a wait for everything for the last time.
  Status (*wait)(void* state, uint64_t offset) = nullptr;
};

// A block of memory aligned to kAlignment.
struct Arena {
  unsigned char* base = nullptr;
  uint64_t bytes = 0;
};

}  // namespace reprise
