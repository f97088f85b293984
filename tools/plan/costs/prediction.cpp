// Implements prediction.h: adds the seconds of all rows of a step. With several ranks or streamed
// weights, the step is simulated, because transfers overlap rows.
#include "tools/plan/costs/prediction.h"

#include "tools/plan/graph/cost.h"
#include "tools/plan/planning/weight_stream.h"

namespace reprise {

namespace {

// Returns the cost of a transfer to or from a slot. A wait costs 0, and so does a transfer between
// ranks.
double transfer_cost(const SolvedModel& model, const OwnedProgram& program, const Row& row) {
  if (row.pass != Pass::kStart || kernel_info(row.op, row.pass).carrier == Carrier::kPeers) return 0;
  const Ref* const ends = &program.arguments[row.first_argument];
  const bool writes = ref_region(ends[0]) != Region::kProgram;
  const uint64_t bytes = program.slots[ref_index(ends[writes])].tensor.bytes;
  if (row.op == Op::kLoad || row.op == Op::kGather) return stream_byte_cost(model) * static_cast<double>(bytes);
  const DiskLevel disk = second_level(model, bytes);
  return (writes ? disk.write_cost : disk.read_cost) * static_cast<double>(bytes);
}

}  // namespace

double row_cost(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
  if (kernel_info(row.op, row.pass).asynchronous()) return transfer_cost(model, program, row);
  if (model.measured) return model.measured->row_seconds(plan, program, row);
  const CallCost cost = kernel_cost(kernel_call(plan, program, row), plan.attributes);
  return cost.flops + kFlopsPerByte * cost.bytes;
}

std::optional<double> predict_row_seconds(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program,
                                          const Row& row) {
  if (!model.measured) return std::nullopt;
  return row_cost(model, plan, program, row);
}

WireTime step_on_wire(const SolvedModel& model, const OwnedPlan& plan) {
  return wire_time(plan, *model.measured->wire, model.measured->micro_batch_seconds,
                   [&](const OwnedProgram& program, const Row& row) { return row_cost(model, plan, program, row); });
}

std::optional<double> predict_seconds(const SolvedModel& model, const OwnedPlan& plan) {
  if (!model.measured) return std::nullopt;
  double seconds = plan.accumulate * model.measured->micro_batch_seconds;
  if (plan.ranks > 1 && model.measured->wire && (plan.streamed_bytes == 0 || plan.shard_bytes > 0))
    return step_on_wire(model, plan).step_seconds;
  if (plan.streamed_bytes > 0) return seconds + streamed_step_cost(model, plan);
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    seconds += times * *predict_row_seconds(model, plan, program, row);
  });
  return seconds;
}

}  // namespace reprise
