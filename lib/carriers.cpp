// The table of carriers (carriers.h).
#include "lib/carriers.h"

#include "lib/assert.h"
#include "lib/program_run.h"

namespace reprise {

namespace {

// ---- the second level: transfers of blocks; within the arena the start itself makes the copy ----

// True if the argument is not in the arena.
bool is_away(const Trainer& trainer, const Ref* refs, uint32_t argument) {
  return !lies_in_arena(*trainer.plan, refs[argument]);
}
bool stays_in_memory(const Trainer& trainer, const Ref* refs) {
  return !is_away(trainer, refs, TransferStart::kY) && !is_away(trainer, refs, TransferStart::kX);
}
// Returns the argument of a transfer that is not in the arena: a spilled block or an offloaded
// tensor.
uint32_t block_of(const Trainer& trainer, const Ref* refs) {
  return is_away(trainer, refs, TransferStart::kY) ? TransferStart::kY : TransferStart::kX;
}

Status copy_within(const Trainer& trainer, const RowCall& call) {
  using A = TransferStart;
  return trainer.backend->host.copy(trainer.context, {call.u8(A::kY)}, {call.u8(A::kX)}, call[A::kY].used_bytes());
}

// ---- on disk ----

Status check_disk(const Plan& plan, const Resources& given) {
  if (!spills_to(plan, SpillLevel::kDisk)) return ok_status();
  if (given.disk.start_write == nullptr) {
    return {Code::kUnsupported, "the plan keeps values on disk: bind needs a Disk of the plan's spill_bytes",
            plan.spill_bytes};
  }
  if (plan.spill_bytes > given.disk.bytes)
    return {Code::kUnsupported, "the disk must hold the plan's spill_bytes", plan.spill_bytes};
  return ok_status();
}

Status start_on_disk(const Trainer& trainer, const RowCall& call, const Ref* refs) {
  using A = TransferStart;
  if (stays_in_memory(trainer, refs)) return copy_within(trainer, call);
  // The disk does not wait for the backend's queue, so wait here for the rows before this one.
  REPRISE_RETURN_IF_ERROR(trainer.backend->host.synchronise(trainer.context));
  const Disk& disk = trainer.disk;
  const uint64_t bytes = call[A::kY].used_bytes();
  REPRISE_ASSERT(call[block_of(trainer, refs)].offset + bytes <= disk.bytes, "a block that is copied is on the disk");
  if (is_away(trainer, refs, A::kY)) return disk.start_write(disk.state, call[A::kY].offset, call.u8(A::kX), bytes);
  return disk.start_read(disk.state, call[A::kX].offset, call.u8(A::kY), bytes);
}

Status wait_on_disk(const Trainer& trainer, const RowCall& call, const Ref* refs) {
  if (stays_in_memory(trainer, refs)) return ok_status();
  return trainer.disk.wait(trainer.disk.state, call[block_of(trainer, refs)].offset);
}

void settle_disk(const Trainer& trainer) {
  if (trainer.disk.wait != nullptr) (void)trainer.disk.wait(trainer.disk.state, Disk::kEverything);
}

bool needs_disk(const Plan& plan) { return spills_to(plan, SpillLevel::kDisk); }

// ---- in host memory: the backend copies in its queue's order, and can record the copies ----

Status check_host_memory(const Plan& plan, const Resources& given) {
  if (!spills_to(plan, SpillLevel::kHost)) return ok_status();
  const HostMemory& memory = given.host_memory;
  if (memory.base == nullptr || memory.bytes < plan.spill_bytes) {
    return {Code::kUnsupported,
            "the plan keeps values in memory of the host: bind needs HostMemory of the plan's spill_bytes",
            plan.spill_bytes};
  }
  if (reinterpret_cast<uintptr_t>(memory.base) % kAlignment != 0)
    return {Code::kUnsupported, "memory of the host must be aligned to 256 bytes", 0};
  return ok_status();
}

// Starts a transfer and identifies it by a number: the index of its block, or of its tensor in
// State. If two transfers have the same number, a wait for that number waits for the later
// transfer, which ends last.
Status start_in_host(const Trainer& trainer, const RowCall& call, const Ref* refs) {
  using A = TransferStart;
  if (stays_in_memory(trainer, refs)) return copy_within(trainer, call);
  const HostAccess& access = trainer.backend->host;
  const uint32_t block = block_of(trainer, refs), number = ref_index(refs[block]);
  unsigned char* const memory = trainer.host_memory.base + call[block].offset;
  const uint64_t bytes = call[A::kY].used_bytes();
  REPRISE_ASSERT(call[block].offset + bytes <= trainer.host_memory.bytes,
                 "a block that is copied is in the memory of the host");
  if (block == A::kY) return access.start_out(trainer.context, memory, {call.u8(A::kX)}, bytes, number);
  return access.start_in(trainer.context, {call.u8(A::kY)}, memory, bytes, number);
}

Status wait_in_host(const Trainer& trainer, const RowCall&, const Ref* refs) {
  if (stays_in_memory(trainer, refs)) return ok_status();
  return trainer.backend->host.await(trainer.context, ref_index(refs[block_of(trainer, refs)]));
}

void settle_host(const Trainer&) {}  // settle() has synchronised the backend, which completes the copies

bool needs_no_host(const Plan&) { return false; }

// ---- the file of weights: streamed parameters are read into slots ----

Status check_weights(const Plan& plan, const Resources& given) {
  if (plan.streamed_bytes == 0) return ok_status();
  if (given.weights.start_read == nullptr || given.weights.bytes < plan.streamed_bytes) {
    return {Code::kUnsupported, "the plan streams weights: bind needs their file, a Disk of the plan's streamed_bytes",
            plan.streamed_bytes};
  }
  return ok_status();
}

constexpr uint32_t kTokensAtOnce = 256;

// Calls visit(first, tokens, count) for the tokens of a gather, at most kTokensAtOnce at a time.
template <typename Visit>
Status for_each_token(const Trainer& trainer, const RowCall& call, const Visit& visit) {
  int32_t tokens[kTokensAtOnce];
  const uint64_t all = call[GatherStart::kTokens].elements();
  for (uint64_t first = 0; first < all; first += kTokensAtOnce) {
    const uint64_t count = smaller_of(kTokensAtOnce, all - first);
    REPRISE_RETURN_IF_ERROR(
        trainer.read(tokens, {call.u8(GatherStart::kTokens) + first * sizeof(int32_t)}, count * sizeof(int32_t)));
    REPRISE_RETURN_IF_ERROR(visit(first, tokens, count));
  }
  return ok_status();
}

bool is_in(const Tensor& table, int32_t token) { return token >= 0 && static_cast<uint32_t>(token) < table.shape[0]; }
uint64_t row_offset(const Tensor& table, int32_t token) {
  return table.offset + stored_bytes(table.dtype, static_cast<uint64_t>(token) * table.shape[1]);
}

Status start_gather(const Trainer& trainer, const RowCall& call) {
  using A = GatherStart;
  const Tensor& table = call[A::kTable];
  const uint64_t row_bytes = stored_bytes(table.dtype, table.shape[1]);
  return for_each_token(trainer, call, [&](uint64_t first, const int32_t* tokens, uint64_t count) -> Status {
    int32_t places[kTokensAtOnce];
    for (uint64_t i = 0; i < count; ++i) {
      places[i] = is_in(table, tokens[i]) ? static_cast<int32_t>(first + i) : -1;
      if (places[i] < 0) continue;
      REPRISE_RETURN_IF_ERROR(trainer.weights.start_read(trainer.weights.state, row_offset(table, tokens[i]),
                                                         call.u8(A::kRows) + (first + i) * row_bytes, row_bytes));
    }
    return trainer.write({call.u8(A::kPlaces) + first * sizeof(int32_t)}, places, count * sizeof(int32_t));
  });
}

// Waits for the last read of the gather. Transfers of the file end in the order of their starts, so
// the gather's other reads have then ended, too.
Status wait_for_gather(const Trainer& trainer, const RowCall& call) {
  const Tensor& table = call[GatherWait::kTable];
  uint64_t last = 0;
  bool any = false;
  REPRISE_RETURN_IF_ERROR(for_each_token(trainer, call, [&](uint64_t, const int32_t* tokens, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      if (!is_in(table, tokens[i])) continue;
      last = row_offset(table, tokens[i]);
      any = true;
    }
    return ok_status();
  }));
  return any ? trainer.weights.wait(trainer.weights.state, last) : ok_status();
}

// Starts to read the parameter together with its padding, which the file also contains. With the
// padding the read may consist of complete device blocks, and can then bypass the page cache.
Status start_load(const Trainer& trainer, const RowCall& call, const Ref*) {
  using A = LoadStart;
  // Kernels may still read the old content of the slot, so wait for them.
  REPRISE_RETURN_IF_ERROR(trainer.backend->host.synchronise(trainer.context));
  if (call.op == Op::kGather) return start_gather(trainer, call);
  return trainer.weights.start_read(trainer.weights.state, call[A::kFrom].offset, call.u8(A::kW),
                                    smaller_of(call.bytes(A::kW), call.bytes(A::kFrom)));
}

Status wait_for_load(const Trainer& trainer, const RowCall& call, const Ref*) {
  if (call.op == Op::kGather) return wait_for_gather(trainer, call);
  return trainer.weights.wait(trainer.weights.state, call[LoadWait::kFrom].offset);
}

void settle_weights(const Trainer& trainer) {
  if (trainer.weights.wait != nullptr) (void)trainer.weights.wait(trainer.weights.state, Disk::kEverything);
}

bool needs_weights(const Plan& plan) { return plan.streamed_bytes > 0; }

// ---- streamed parameters in the ranks' shards: each rank sends its slice to all ----

// True if the row reads the file of weights, not the ranks' shards. Gathers read the file, because
// each rank has its own tokens. In a process without peers all rows read the file.
bool is_for_the_file(const Trainer& trainer, const RowCall& call) {
  return call.op == Op::kGather || trainer.peers.wait == nullptr;
}

// Calls visit(rank, first, bytes) for each slice that contains used bytes of the parameter, which
// are those before its padding. `first` is the offset of the slice in the parameter, and `bytes` is
// the number of used bytes in the slice.
template <typename Visit>
Status for_each_slice(const Trainer& trainer, const RowCall& call, const Visit& visit) {
  const uint64_t slice = call[LoadStart::kFrom].bytes / trainer.plan->ranks, wanted = call[LoadStart::kW].used_bytes();
  REPRISE_ASSERT(slice > 0 && slice * trainer.plan->ranks == call[LoadStart::kFrom].bytes,
                 "a streamed parameter has a slice of equal size in each rank");
  for (uint32_t rank = 0; rank * slice < wanted; ++rank) {
    REPRISE_RETURN_IF_ERROR(visit(rank, rank * slice, smaller_of(slice, wanted - rank * slice)));
  }
  return ok_status();
}

Status start_slices(const Trainer& trainer, const RowCall& call, const Ref* refs) {
  if (is_for_the_file(trainer, call)) return start_load(trainer, call, refs);
  using A = LoadStart;
  const HostAccess& access = trainer.backend->host;
  const ArenaAddress own = shard_of(trainer) + call[A::kFrom].offset / trainer.plan->ranks;
  // Kernels may still read the old content of the slot, so wait for them.
  REPRISE_RETURN_IF_ERROR(access.synchronise(trainer.context));
  return for_each_slice(trainer, call, [&](uint32_t rank, uint64_t first, uint64_t bytes) -> Status {
    unsigned char* const to = call.u8(A::kW) + first;
    if (rank == trainer.peers.rank) {
      REPRISE_RETURN_IF_ERROR(access.copy(trainer.context, {to}, own, bytes));
      REPRISE_RETURN_IF_ERROR(access.synchronise(trainer.context));
    }
    return trainer.peers.start_broadcast(trainer.peers.state, rank, to, bytes);
  });
}

Status wait_for_slices(const Trainer& trainer, const RowCall& call, const Ref* refs) {
  if (is_for_the_file(trainer, call)) return wait_for_load(trainer, call, refs);
  return for_each_slice(trainer, call, [&](uint32_t, uint64_t first, uint64_t) {
    return trainer.peers.wait(trainer.peers.state, call.u8(LoadWait::kW) + first);
  });
}

// ---- broadcasts between the ranks: x of rank `root` is copied to y of every rank ----

Status check_peers(const Plan& plan, const Resources& given) {
  if (plan.ranks == given.peers.count && (plan.ranks == 1 || given.peers.start_broadcast != nullptr))
    return ok_status();
  return {Code::kUnsupported, "the plan is for so many ranks: bind needs Peers of as many", plan.ranks};
}

Status start_share(const Trainer& trainer, const RowCall& call, const Ref*) {
  using A = ShareStart;
  const HostAccess& access = trainer.backend->host;
  const uint32_t root = call.attribute<ShareAttribute>().root;
  const uint64_t bytes = call[A::kY].used_bytes();
  const bool copies = root == trainer.peers.rank && call.u8(A::kY) != call.u8(A::kX);  // nothing to copy if y is x
  if (copies) REPRISE_RETURN_IF_ERROR(access.copy(trainer.context, {call.u8(A::kY)}, {call.u8(A::kX)}, bytes));
  // The network does not wait for the backend's queue, so wait here for the rows before this one.
  REPRISE_RETURN_IF_ERROR(access.synchronise(trainer.context));
  return trainer.peers.count == 1 ? ok_status()
                                  : trainer.peers.start_broadcast(trainer.peers.state, root, call.u8(A::kY), bytes);
}

Status wait_for_share(const Trainer& trainer, const RowCall& call, const Ref*) {
  return trainer.peers.count == 1 ? ok_status() : trainer.peers.wait(trainer.peers.state, call.u8(ShareWait::kY));
}

void settle_peers(const Trainer& trainer) {
  if (trainer.peers.wait != nullptr) (void)trainer.peers.wait(trainer.peers.state, nullptr);
}

bool needs_peers(const Plan& plan) { return plan.ranks > 1; }

enum : uint32_t { kDiskEntry, kHostEntry, kWeightsEntry, kSlicesEntry, kPeersEntry };
constexpr CarrierFunctions kCarriers[] = {
    {.check = check_disk,
     .start = start_on_disk,
     .wait = wait_on_disk,
     .settle = settle_disk,
     .needs_host = needs_disk},
    {.check = check_host_memory,
     .start = start_in_host,
     .wait = wait_in_host,
     .settle = settle_host,
     .needs_host = needs_no_host},
    {.check = check_weights,
     .start = start_load,
     .wait = wait_for_load,
     .settle = settle_weights,
     .needs_host = needs_weights},
    {.check = check_weights,
     .start = start_slices,
     .wait = wait_for_slices,
     .settle = settle_weights,
     .needs_host = needs_weights},
    {.check = check_peers,
     .start = start_share,
     .wait = wait_for_share,
     .settle = settle_peers,
     .needs_host = needs_peers},
};

}  // namespace

const CarrierFunctions& carrier_functions(const Plan& plan, Carrier carrier) {
  if (carrier == Carrier::kWeights) return kCarriers[plan.shard_bytes > 0 ? kSlicesEntry : kWeightsEntry];
  if (carrier == Carrier::kPeers) return kCarriers[kPeersEntry];
  return kCarriers[plan.spill_level == SpillLevel::kHost ? kHostEntry : kDiskEntry];
}

Status check_carriers(const Plan& plan, const Resources& given) {
  for (const CarrierFunctions& carrier : kCarriers) REPRISE_RETURN_IF_ERROR(carrier.check(plan, given));
  return ok_status();
}

void settle_carriers(const Trainer& trainer) {
  for (const CarrierFunctions& carrier : kCarriers) carrier.settle(trainer);
}

bool carriers_need_host(const Plan& plan) {
  for (const CarrierFunctions& carrier : kCarriers) {
    if (carrier.needs_host(plan)) return true;
  }
  return false;
}

}  // namespace reprise
