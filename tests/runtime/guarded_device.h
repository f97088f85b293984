// A simulated device: the host cannot access its arena, and work waits in a queue until
// synchronise(). On a plain CPU, no test would detect a host that reads the arena directly, or that
// reads before it has waited.
#pragma once

#include "lib/backend.h"

namespace reprise {

// A device that runs the CPU's kernels and host operations from a queue. Only one may exist in a
// process.
//
// synchronise() unprotects the arena, runs the queue in order until an operation fails, protects
// the arena again, and returns the first failure. Until then, the target of copy_out() contains a
// fill pattern.
//
// A started copy behaves as late as the contract allows: when the queue reaches it, its target is
// filled with NaN, and the bytes are copied only when the copy is awaited.
class GuardedDevice {
 public:
  // Creates a device with an arena of `bytes` bytes, which runs the kernels of `cpu`. A test may
  // have replaced some of these kernels. `cpu` must outlive the device.
  explicit GuardedDevice(uint64_t bytes, const Backend& cpu);
  ~GuardedDevice();
  GuardedDevice(const GuardedDevice&) = delete;
  GuardedDevice& operator=(const GuardedDevice&) = delete;

  const Backend& backend() const;
  Arena arena() const;
  // Returns a disk in host memory, which may access the arena like the disk of a port.
  Disk disk(uint64_t bytes);
};

}  // namespace reprise
