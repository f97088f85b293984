// Views of an owned plan, and its rows as kernel calls. Plan has plain pointers, which these
// functions set.
#include "tools/plan/lowering/owned_plan.h"

namespace reprise {

Program OwnedProgram::view() const {
  Program program;
  program.rows = span_of(rows);
  program.arguments = span_of(arguments);
  program.slots = span_of(slots);
  program.bytes = bytes;
  program.input = input;
  program.labels = labels;
  program.document_start = document_start;
  program.output = output;
  program.pairs = pairs;
  program.token_types = token_types;
  program.spilled = span_of(spilled);
  return program;
}

const char* OwnedPlan::keep(const std::string& text) {
  kept_.push_back(std::make_shared<const std::string>(text));
  return kept_.back()->c_str();
}

Plan OwnedPlan::view() const {
  Plan plan;
  plan.format = format;
  plan.name = name.c_str();
  plan.backend = backend.c_str();
  plan.state = span_of(state);
  plan.numbers = span_of(numbers);
  plan.carried = span_of(carried);
  for (uint32_t p = 0; p < kProgramCount; ++p) plan.programs[p] = programs[p].view();
  plan.attributes = attributes.pools();
  plan.learning_rate = learning_rate;
  plan.learning_rate.milestones = span_of(milestones);
  plan.state_bytes = state_bytes;
  plan.carried_bytes = carried_bytes;
  plan.arena_bytes = arena_bytes;
  plan.seed = seed;
  plan.accumulate = accumulate;
  plan.ranks = ranks;
  plan.spill_level = spill_level;
  plan.spill_bytes = spill_bytes;
  plan.streamed_bytes = streamed_bytes;
  plan.shard_bytes = shard_bytes;
  plan.worker_stack_bytes = worker_stack_bytes;
  plan.recipe_hash = recipe_hash;
  return plan;
}

namespace {

const Tensor* tensor_of(const OwnedPlan& plan, const OwnedProgram& program, Ref ref) {
  if (ref == kNoRef) return nullptr;
  switch (ref_region(ref)) {
    case Region::kState: return &plan.state[ref_index(ref)].tensor;
    case Region::kCarried: return &plan.carried[ref_index(ref)];
    case Region::kSpill: return &program.spilled[ref_index(ref)].tensor;
    default: return &program.slots[ref_index(ref)].tensor;
  }
}

}  // namespace

KernelCall kernel_call(const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
  KernelCall call{row.op, row.pass, row.attribute, row.accumulate, {}};
  const KernelInfo& kernel = kernel_info(row.op, row.pass);
  for (uint32_t a = 0; a < kernel.arity() && kernel.arguments[a].role != Role::kScratch; ++a) {
    call.tensors.push_back(tensor_of(plan, program, program.arguments[row.first_argument + a]));
  }
  return call;
}

void for_each_step_row(const OwnedPlan& plan, const StepRow& body) {
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const uint32_t times = runs_in_step(plan, static_cast<ProgramId>(p));
    for (const Row& row : plan.programs[p].rows) {
      if (times > 0) body(plan.programs[p], row, times);
    }
  }
}

}  // namespace reprise
