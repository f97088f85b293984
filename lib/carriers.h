// Carriers carry out the asynchronous rows, which continue while other rows run. Each Carrier of
// kernel_info.h has a function that starts a row and a function that waits for it, which use the
// port's functions. bind(), dispatch() and the end of a step call the functions of the carriers
// through one table. The table has two entries for the second level: a disk and host memory.
// Plan::spill_level selects one of them.
#pragma once

#include "lib/trainer.h"

namespace reprise {

// The functions of one carrier. `call` and `refs` describe the row: its arguments' addresses, and
// its references. An argument that is not in the arena has a null pointer.
struct CarrierFunctions {
  // Checks that `given` has all that the plan's rows of this carrier need. bind() calls it before
  // it writes anything.
  Status (*check)(const Plan& plan, const Resources& given);
  // Starts the transfer of a start row and returns without waiting for its end. The start itself
  // waits for queued kernels that use the source or the destination. Until the row's wait, no row
  // may touch the destination or write the source.
  Status (*start)(const Trainer& trainer, const RowCall& call, const Ref* refs);
  // Waits until the row's transfer has completed, or makes later kernels wait for it. Returns the
  // transfer's error.
  Status (*wait)(const Trainer& trainer, const RowCall& call, const Ref* refs);
  // Waits until no transfer of this carrier is in progress, also after an error.
  void (*settle)(const Trainer& trainer);
  // True if the host takes part in the plan's rows of this carrier. A backend's recording
  // cannot contain such rows.
  bool (*needs_host)(const Plan& plan);
};

// Returns the functions that carry out the rows of `carrier` in `plan`.
const CarrierFunctions& carrier_functions(const Plan& plan, Carrier carrier);

// Calls check() of every carrier; returns the first error.
Status check_carriers(const Plan& plan, const Resources& given);
// Calls settle() of every carrier.
void settle_carriers(const Trainer& trainer);
// True if needs_host() of any carrier is true.
bool carriers_need_host(const Plan& plan);

}  // namespace reprise
