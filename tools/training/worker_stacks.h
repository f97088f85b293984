// How much of its stack each worker uses, found by a canary painted below the place where a task begins.
// Here because a plan proves what kernels may take of a stack (Plan::worker_stack_bytes), and a measurement stands beside every promise.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/port.h"

namespace reprise {

class WorkerStacks {
 public:
  // Paints `bytes` of every worker's stack, less where they promise less. The workers meet in one task, so that each paints its own; where
  // they do not all come within ten seconds (a port may call its tasks in a loop), or where the sanitizers lay out the stacks, there is nothing to measure.
  void paint(const Workers& workers, uint64_t bytes);

  // Bytes used since, the calling thread's first; all that was painted where no canary is left. Between tasks.
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
