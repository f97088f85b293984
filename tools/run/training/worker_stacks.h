// Measures how much stack each worker uses. A canary is painted below the frame in which a task
// begins. A plan proves how much stack its kernels need (Plan::worker_stack_bytes); this measures
// the real use.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/port.h"

namespace reprise {

// The painted stacks of all workers.
class WorkerStacks {
 public:
  // Writes a canary to `bytes` of every worker's stack, or fewer if the stack is smaller. All
  // workers must run one task at the same time, so that each paints its own stack. Nothing is
  // measured if they do not all arrive within ten seconds, because a port may run its tasks in a
  // loop. Nothing is measured either if a sanitizer arranges the stacks.
  void paint(const Workers& workers, uint64_t bytes);

  // Returns how many bytes each worker has used since paint(); the calling thread is the first. If
  // the whole canary was overwritten, this is the number of painted bytes. Call it between tasks.
  std::vector<uint64_t> used() const;

 private:
  struct Painted {
    const volatile uint64_t* low = nullptr;
    uint64_t words = 0;
  };
  struct Meeting;
  static void paint_own(Meeting& meeting, uint32_t place);

  std::vector<Painted> painted_;
};

}  // namespace reprise
