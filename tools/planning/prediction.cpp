// See prediction.h.
#include "tools/planning/prediction.h"

namespace reprise {

namespace {

double transfer_seconds(const SolvedModel& model, const OwnedProgram& program, const Row& row) {
  if (row.pass != Pass::kStart) return 0;
  const Ref y = program.arguments[row.first_argument];
  const bool writes = ref_region(y) == Region::kDisk;
  const Tensor& tensor = writes ? program.disk[ref_index(y)].tensor : program.slots[ref_index(y)].tensor;
  const DiskLevel disk = disk_level(model, tensor.bytes);
  return (writes ? disk.write_cost : disk.read_cost) * static_cast<double>(tensor.bytes);
}

}  // namespace

std::optional<double> predict_row_seconds(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
  if (!model.measured) return std::nullopt;
  return row.op == Op::kTransfer ? transfer_seconds(model, program, row) : model.measured->row_seconds(plan, program, row);
}

std::optional<double> predict_seconds(const SolvedModel& model, const OwnedPlan& plan) {
  if (!model.measured) return std::nullopt;
  double seconds = plan.accumulate * model.measured->micro_batch_seconds;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    seconds += times * *predict_row_seconds(model, plan, program, row);
  });
  return seconds;
}

}  // namespace reprise
