// Views of an owned plan.
// Here because Plan holds plain pointers.
// It must not copy.
#include "tools/emit/owned_plan.h"

namespace reprise {

Program OwnedProgram::view() const {
  Program program;
  program.rows = span_of(rows);
  program.arguments = span_of(arguments);
  program.slots = span_of(slots);
  program.bytes = bytes;
  program.input = input;
  program.labels = labels;
  program.disk = span_of(disk);
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
  plan.carried = span_of(carried);
  for (uint32_t p = 0; p < kProgramCount; ++p) plan.programs[p] = programs[p].view();
  plan.attributes = {span_of(attributes.window),    span_of(attributes.norm),    span_of(attributes.linear),
                     span_of(attributes.gelu),      span_of(attributes.attention), span_of(attributes.dropout),
                     span_of(attributes.group),     span_of(attributes.clip),    span_of(attributes.update)};
  plan.learning_rate = learning_rate;
  plan.learning_rate.milestones = span_of(milestones);
  plan.state_bytes = state_bytes;
  plan.carried_bytes = carried_bytes;
  plan.arena_bytes = arena_bytes;
  plan.seed = seed;
  plan.accumulate = accumulate;
  plan.disk_bytes = disk_bytes;
  return plan;
}

}  // namespace reprise
