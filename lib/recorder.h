// A recorder records the rows of a program once and replays them with one call, as a CUDA graph
// does. A step has thousands of launches, each of which costs the host microseconds, but a plan's
// rows never change.
#pragma once

#include "lib/status.h"

namespace reprise {

struct KernelContext;

// The functions of a recorder; all null if the backend has none. Only kernels, and copies that the
// backend itself carries out, can be recorded.
struct Recorder {
  // Starts a recording; `end` ends it. Kernels that are called between them are recorded in their
  // order and do not run. `end` must be called after `begin`, even after an error. There is then no
  // recording, and `end` or the kernel returns the error.
  Status (*begin)(const KernelContext& context) = nullptr;
  Status (*end)(const KernelContext& context, void** recording) = nullptr;
  // Enqueues the recorded kernels. The bits of the results are those of the separate calls.
  // Allocates nothing.
  Status (*replay)(const KernelContext& context, void* recording) = nullptr;
  // Frees a recording.
  void (*release)(void* recording) = nullptr;
};

}  // namespace reprise
