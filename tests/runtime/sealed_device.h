// A device in miniature: its arena is memory that the host cannot touch, and what it is told waits until somebody synchronises.
// Here because on a CPU alone nothing would notice a host that reads the arena, or that reads before it has waited.
#pragma once

#include "lib/backend.h"

namespace reprise {

// The CPU's kernels and host operations, queued: `synchronise` unprotects the arena, does all in order until one fails, protects the
// arena again and answers the first failure. `copy_out` spoils its target until then. A copy that is started spoils
// its target when its turn comes, and brings the bytes when it is awaited: as late as it may. One device at a time in a process.
class SealedDevice {
 public:
  // `cpu`: whose kernels run; a test may have changed some. It must outlive the device.
  explicit SealedDevice(uint64_t bytes, const Backend& cpu);
  ~SealedDevice();
  SealedDevice(const SealedDevice&) = delete;
  SealedDevice& operator=(const SealedDevice&) = delete;

  const Backend& backend() const;
  Arena arena() const;
  Disk disk(uint64_t bytes);  // in host memory; it reads and writes the arena as the port's would
};

}  // namespace reprise
