// How the host reaches the arena, which may be a device's memory that it cannot see: eight operations that every backend gives.
// Here so that weights, batches, scalars, reports and snapshots are the same code whatever the arena is made of.
#pragma once

#include "lib/port.h"

namespace reprise {

struct KernelContext;

// Operations and kernels of one context take effect in the order in which they were called, and are called from one thread at a
// time. Any of them but `synchronise` may only be queued: what goes wrong later is then said by the next `synchronise`.
struct HostAccess {
  // Done with `from` when it returns.
  Status (*copy_in)(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes) = nullptr;
  // `to` holds the bytes after the next `synchronise`.
  Status (*copy_out)(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes) = nullptr;
  // Writes `word` over and over; `bytes` is a multiple of its four.
  Status (*fill)(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes) = nullptr;
  // Within the arena, where neither range reaches into the other.
  Status (*copy)(const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes) = nullptr;
  // Copies between the arena and HostMemory that go on beside what is queued. What was called before the start is done before the copy begins;
  // what comes behind it does not wait, until `await`. They are done in the order of their starts.
  Status (*start_out)(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes, uint32_t number) = nullptr;
  Status (*start_in)(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes, uint32_t number) = nullptr;
  // What is called behind it comes after the copy that was started last with this number. The host itself waits for nothing.
  Status (*await)(const KernelContext& context, uint32_t number) = nullptr;
  // Waits for every operation, kernel and started copy so far; says what failed among them.
  Status (*synchronise)(const KernelContext& context) = nullptr;
};

}  // namespace reprise
