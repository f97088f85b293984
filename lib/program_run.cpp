// Implements program_run.h, and the trainer's reads and writes of State.
#include "lib/program_run.h"

#include <cstring>

#include "lib/assert.h"
#include "lib/carriers.h"
#include "lib/float_mode.h"

namespace reprise {

namespace {

constexpr Status kStopped = {Code::kStopped, "stopped between two rows", 0};

// True if this rank runs the row. Only the owner of moments runs the rows that update them.
bool runs_here(const Trainer& trainer, const Program& program, const Row& row) {
  if (row.pass != Pass::kUpdate || trainer.peers.count == 1) return true;
  const uint32_t owner =
      owner_of(*trainer.plan, program, row, contract::kIndex.arity[kernel_index(row.op, row.pass)]);
  return owner == kEveryRank || owner == trainer.peers.rank;
}

Status run_row(const Trainer& trainer, const Program& program, const Row& row) {
  if (!runs_here(trainer, program, row)) return ok_status();
  REPRISE_RETURN_IF_ERROR(dispatch(trainer, program, row, false));
  if (trainer.peers.advance != nullptr) trainer.peers.advance(trainer.peers.state);
  return trainer.eager ? trainer.backend->host.synchronise(trainer.context) : ok_status();
}

// Returns the address of State tensor `index` in host memory; null if the tensor is not offloaded.
unsigned char* offloaded_state(const Trainer& trainer, uint32_t index) {
  const StateTensor& state = trainer.plan->state[index];
  return state.kind == StateKind::kOffloaded ? trainer.host_memory.base + state.tensor.offset : nullptr;
}

// True if [at, at + bytes) is a part of a State tensor that is not streamed.
[[maybe_unused]] bool is_part_of_state(const Plan& plan, uint32_t index, uint64_t at, uint64_t bytes) {
  if (index >= plan.state.count || plan.state[index].kind == StateKind::kStreamed) return false;
  const uint64_t all = plan.state[index].tensor.bytes;
  return at <= all && bytes <= all - at;
}

}  // namespace

Status Trainer::write_state(uint32_t index, uint64_t at, const void* from, uint64_t bytes) const {
  REPRISE_ASSERT(is_part_of_state(*plan, index, at, bytes), "a written part of State is within one tensor");
  if (const uint32_t owner = plan->state[index].owner; owner != kEveryRank && owner != peers.rank)
    return ok_status();
  unsigned char* const there = offloaded_state(*this, index);
  if (there == nullptr) return write(state_tensor(index) + at, from, bytes);
  REPRISE_RETURN_IF_ERROR(backend->host.synchronise(context));
  std::memcpy(there + at, from, bytes);
  return ok_status();
}

Status Trainer::read_state(uint32_t index, uint64_t at, void* to, uint64_t bytes) const {
  REPRISE_ASSERT(is_part_of_state(*plan, index, at, bytes), "a part of State that is read is within one tensor");
  if (const uint32_t owner = plan->state[index].owner; owner != kEveryRank) {
    if (owner == peers.rank) REPRISE_RETURN_IF_ERROR(read(to, state_tensor(index) + at, bytes));
    REPRISE_RETURN_IF_ERROR(peers.start_broadcast(peers.state, owner, to, bytes));
    return peers.wait(peers.state, to);
  }
  const unsigned char* const there = offloaded_state(*this, index);
  if (there == nullptr) return read(to, state_tensor(index) + at, bytes);
  REPRISE_RETURN_IF_ERROR(backend->host.synchronise(context));
  std::memcpy(to, there + at, bytes);
  return ok_status();
}

Status run_rows(const Trainer& trainer, ProgramId id) {
  const Program& program = trainer.plan->program(id);
  for (uint32_t r = 0; r < program.rows.count; ++r) {
    if (trainer.observer.before != nullptr) trainer.observer.before(trainer.observer.state, id, r);
    const bool stops = trainer.stops != nullptr && trainer.stops();
    if (Status status = stops ? kStopped : run_row(trainer, program, program.rows[r]); !status.ok()) {
      status.row = uint64_t{static_cast<uint32_t>(id)} << 32 | r;
      return status;
    }
    if (trainer.observer.after != nullptr) trainer.observer.after(trainer.observer.state, id, r);
  }
  return ok_status();
}

Status run_program(const Trainer& trainer, ProgramId id) {
  void* recording = trainer.recordings[static_cast<uint32_t>(id)];
  const bool is_observed = trainer.observer.before != nullptr || trainer.observer.after != nullptr;
  if (recording != nullptr && !is_observed) return trainer.backend->recorder.replay(trainer.context, recording);
  const FloatModeScope scope(float_mode() | kFlushDenormals);
  return run_rows(trainer, id);
}

Status write_scalars(const Trainer& trainer, const StepScalars& scalars) {
  return trainer.write(trainer.state_tensor(0), &scalars, sizeof scalars);
}

Status copy_scalars_out(const Trainer& trainer, StepScalars& scalars) {
  return trainer.backend->host.copy_out(trainer.context, &scalars, trainer.state_tensor(0), sizeof scalars);
}

Status fault_status(const StepFault& fault) {
  switch (fault.code) {
    case DataFault::kNone: break;
    case DataFault::kToken:
      return {Code::kIndexOutOfRange, "a token must be at least 0 and less than the vocabulary size", fault.position};
    case DataFault::kLabel:
      return {Code::kIndexOutOfRange, "a label must be in [0, classes), or -100 for none", fault.position};
    case DataFault::kDocument:
      return {
          Code::kIndexOutOfRange,
          "a document must start at or before each of its positions, not before 0 and not inside of another document",
          fault.position};
    case DataFault::kPair:
      return {Code::kIndexOutOfRange, "the rows of a pair's answers must be rows of the micro-batch", fault.position};
  }
  return ok_status();
}

Status settle(const Trainer& trainer, Status status) {
  const Status done = trainer.backend->host.synchronise(trainer.context);
  if (status.ok()) status = done;
  if (!status.ok()) settle_carriers(trainer);
  return status;
}

}  // namespace reprise
