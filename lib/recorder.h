// A program's rows, recorded once and then replayed with one call: what a CUDA graph is.
// Here because a step has thousands of launches, each of which costs the host microseconds; and the rows of a plan never change.
#pragma once

#include "lib/status.h"

namespace reprise {

struct KernelContext;

// All null where a backend has nothing like it. What a row does beyond kernels, a transfer, cannot be recorded.
struct Recorder {
  // Kernels that are called between the two are kept, in their order, instead of run. `end` must follow `begin` whatever came in between;
  // where something failed there is no recording, and `end` or the kernel has said so.
  Status (*begin)(const KernelContext& context) = nullptr;
  Status (*end)(const KernelContext& context, void** recording) = nullptr;
  // Queued, with the bits of the calls themselves. It allocates nothing.
  Status (*replay)(const KernelContext& context, void* recording) = nullptr;
  void (*release)(void* recording) = nullptr;
};

}  // namespace reprise
