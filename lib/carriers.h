// Who carries out the rows that go on while others run: for each Carrier of kernel_info.h a start and a wait, made of what the port gives.
// Here so that bind, dispatch and the end of a step go through one table. The second level of memory has two entries, a disk and memory of the
// host, which carry the same rows: the plan says which (SpillLevel).
#pragma once

#include "lib/trainer.h"

namespace reprise {

// What a row of a carrier names: a RowCall of any types, with the row's references. An argument that lies in no memory has a null pointer.
struct CarrierFunctions {
  // Before anything is written: whether the port has what the plan's rows of this carrier will ask for.
  Status (*check)(const Plan& plan, const Resources& given);
  // Of a row that is a start. Nothing waits here: the ends may not be touched until the same row's wait. What kernels have queued for them is
  // the carrier's to wait for.
  Status (*start)(const Trainer& trainer, const RowCall& call, const Ref* refs);
  Status (*wait)(const Trainer& trainer, const RowCall& call, const Ref* refs);
  // Returns when nothing of this carrier is under way, whatever has failed.
  void (*settle)(const Trainer& trainer);
  // Whether the host has a part in the plan's rows of this carrier: a recording of the backend's cannot hold them then.
  bool (*needs_host)(const Plan& plan);
};

// Of an asynchronous kernel's carrier in that plan.
const CarrierFunctions& carrier_functions(const Plan& plan, Carrier carrier);

// What several of them answer, or must do, together.
Status check_carriers(const Plan& plan, const Resources& given);
void settle_carriers(const Trainer& trainer);
bool carriers_need_host(const Plan& plan);

}  // namespace reprise
