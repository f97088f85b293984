// The host's access to the arena, which may be a device's memory that the host cannot address:
// eight operations that every backend provides. Code for weights, batches, scalars, reports and
// snapshots uses them for every kind of arena.
#pragma once

#include "lib/port.h"

namespace reprise {

struct KernelContext;

// The operations of a backend. Operations and kernels of one context take effect in the order of
// their calls, which come from one thread at a time. An operation other than `synchronise` may only
// be enqueued; the next `synchronise` then returns its error. Sizes are in bytes.
struct HostAccess {
  // Copies `from`, memory of the host, to the arena. The caller may reuse `from` when the call
  // returns.
  Status (*copy_in)(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes) = nullptr;
  // Copies from the arena to `to`, memory of the host. `to` has the bytes after the next
  // `synchronise`.
  Status (*copy_out)(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes) = nullptr;
  // Fills the arena with the 4-byte `word`; `bytes` is a multiple of 4.
  Status (*fill)(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes) = nullptr;
  // Copies within the arena; the two ranges must not overlap.
  Status (*copy)(const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes) = nullptr;
  // Starts a copy from the arena to HostMemory; start_in copies from HostMemory to the arena. The
  // copy begins after every operation called before it, and continues while queued work runs. Later
  // operations do not wait for the copy until `await` is called. Copies end in the order of their
  // starts. `number` identifies the copy for `await`.
  Status (*start_out)(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes,
                      uint32_t number) = nullptr;
  Status (*start_in)(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes,
                     uint32_t number) = nullptr;
  // Makes later operations and kernels wait for the latest copy that was started with `number`.
  // Does not block the host.
  Status (*await)(const KernelContext& context, uint32_t number) = nullptr;
  // Waits for all operations, kernels and started copies; returns the first error among them.
  Status (*synchronise)(const KernelContext& context) = nullptr;
};

}  // namespace reprise
