// What a board gives to the library: workers and an arena. A port fills these tables (ports/template/README.md).
// Here because lib knows no operating system.
// It must not know what the workers compute.
#pragma once

#include "lib/status.h"

namespace reprise {

// Runs task(argument, i) once for every i in [0, tasks), on any worker in any order; returns when all are done.
// Not reentrant. A port with one core calls them in a loop.
struct Workers {
  void* state = nullptr;
  uint32_t count = 1;
  void (*run)(void* state, uint32_t tasks, void (*task)(void* argument, uint32_t index), void* argument) = nullptr;
};

// Runs a callable for every index in [0, tasks); on the calling thread where there is only one task or one worker.
template <typename F>
void parallel_for(const Workers& workers, uint32_t tasks, const F& body) {
  if (tasks <= 1 || workers.count <= 1 || workers.run == nullptr) {
    for (uint32_t i = 0; i < tasks; ++i) body(i);
    return;
  }
  workers.run(
      workers.state, tasks, [](void* argument, uint32_t index) { (*static_cast<const F*>(argument))(index); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// A block of memory aligned to kAlignment.
struct Arena {
  unsigned char* base = nullptr;
  uint64_t bytes = 0;
};

}  // namespace reprise
