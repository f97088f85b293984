// See manifest.h.
#include "tools/plan/audit/manifest.h"

#include <algorithm>

#include "tools/plan/graph/cost.h"
#include "tools/plan/schedule/schedule_command.h"
#include "tools/plan/writing/plan_header.h"
#include "tools/plan/costs/prediction.h"
#include "tools/plan/planning/peak.h"

namespace reprise {

using nlohmann::json;

namespace {

const char* const kProgramNames[kProgramCount] = {"micro_first", "micro_add", "micro_last",
                                                  "update",      "evaluate",  "generate"};
const char* const kSlotKinds[] = {"input",           "label", "boundary", "tape",  "transient", "gradient",
                                 "weight_gradient", "small", "scratch",  "cache", "weight"};
const char* const kStateKinds[] = {"scalars", "parameter", "buffer",   "optimizer",
                                   "norms",   "table",     "streamed", "offloaded"};

json tensor_json(const Tensor& tensor, const std::string& name, const std::string& kind) {
  return {{"name", name}, {"kind", kind}, {"dtype", dtype_info(tensor.dtype).name}, {"shape", shape_of(tensor)},
          {"bytes", tensor.bytes}, {"offset", tensor.offset}};
}

// Returns the slots of the arena, or the blocks of the second level, of all programs.
json slots_json(const OwnedPlan& plan, std::vector<Slot> OwnedProgram::*list,
                std::vector<std::string> OwnedProgram::*names) {
  json slots = json::array();
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const OwnedProgram& program = plan.programs[p];
    for (uint32_t s = 0; s < (program.*list).size(); ++s) {
      const Slot& slot = (program.*list)[s];
      json entry = tensor_json(slot.tensor, (program.*names)[s], kSlotKinds[static_cast<int>(slot.use)]);
      entry["id"] = s;
      entry["program"] = kProgramNames[p];
      entry["layer"] = program.rows.empty() ? "" : plan.link_names[program.rows[slot.first_row].link];
      entry["first_row"] = slot.first_row;
      entry["last_row"] = slot.end_row - 1;
      slots.push_back(entry);
    }
  }
  return slots;
}

uint32_t high_water_row(const std::vector<Slot>& slots) {
  uint32_t row = 0;
  uint64_t highest = 0;
  for (const Slot& slot : slots) {
    if (slot.tensor.offset + slot.tensor.bytes > highest) {
      highest = slot.tensor.offset + slot.tensor.bytes;
      row = slot.first_row;
    }
  }
  return row;
}

json regions_json(const OwnedPlan& plan) {
  const uint64_t transient = plan.arena_bytes - plan.state_bytes - plan.carried_bytes;
  json regions = json::array();
  const auto add = [&regions](const std::string& name, uint64_t capacity, uint64_t planned, uint32_t row) {
    regions.push_back(
        {{"name", name}, {"capacity_bytes", capacity}, {"planned_bytes", planned}, {"high_water_row", row}});
  };
  add("state", plan.state_bytes, plan.state_bytes, 0);
  add("carried", plan.carried_bytes, plan.carried_bytes, 0);
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    if (!plan.programs[p].rows.empty())
      add(kProgramNames[p], transient, plan.programs[p].bytes, high_water_row(plan.programs[p].slots));
  }
  if (plan.shard_bytes > 0) add("shard", plan.shard_bytes, plan.shard_bytes, 0);
  if (plan.streamed_bytes > 0) add("streamed", plan.streamed_bytes, plan.streamed_bytes, 0);
  if (plan.spill_bytes > 0)
    add(spill_name(plan.spill_level), plan.spill_bytes, plan.spill_bytes, high_water_row(plan.programs[0].spilled));
  return regions;
}

// Returns a reference as text: "slot:12", "state:3", "carried:0", "disk:1" or "host:1".
json reference_json(const OwnedPlan& plan, Ref ref) {
  const char* const regions[] = {"slot", "carried", "state", spill_name(plan.spill_level)};
  return std::string(regions[static_cast<uint32_t>(ref_region(ref))]) + ":" + std::to_string(ref_index(ref));
}

void add_references(const OwnedPlan& plan, const OwnedProgram& program, const Row& row, json& entry) {
  const KernelInfo& kernel = kernel_info(row.op, row.pass);
  json reads = json::array(), writes = json::array(), scratch = nullptr;
  for (uint32_t a = 0; a < kernel.arity(); ++a) {
    const Ref ref = program.arguments[row.first_argument + a];
    if (ref == kNoRef) continue;
    const Role role = kernel.arguments[a].role;
    const bool adds = role == Role::kOutput && (row.accumulate >> a & 1u) != 0;
    if (role == Role::kScratch) scratch = reference_json(plan, ref);
    if (role == Role::kInput || role == Role::kUpdated || adds) reads.push_back(reference_json(plan, ref));
    if (role == Role::kOutput || role == Role::kUpdated) writes.push_back(reference_json(plan, ref));
  }
  entry["reads"] = reads;
  entry["writes"] = writes;
  entry["scratch"] = scratch;
}

// Returns the stage of a row. A forward kernel that is not the first run of its link is a
// recomputation, also if it runs in the backward.
const char* stage_of(const Row& row, const RowOrigin& origin) {
  if (row.op == Op::kMove) return "move";
  if (kernel_info(row.op, row.pass).asynchronous()) return "transfer";
  switch (row.pass) {
    case Pass::kReduce:
    case Pass::kFinish:
    case Pass::kUpdate: return "update";
    case Pass::kBackward:
    case Pass::kBackwardData:
    case Pass::kBackwardWeight:
    case Pass::kBackwardBias: return "backward";
    default: return origin.of_gradient ? "backward" : origin.first_time ? "forward" : "recomputed";
  }
}

std::vector<uint64_t> live_bytes_of(const OwnedProgram& program) {
  // First the change of the live bytes at each row, modulo 2^64; then the sums of these changes.
  std::vector<uint64_t> live(program.rows.size() + 1, 0);
  for (const Slot& slot : program.slots) {
    live[slot.first_row] += slot.tensor.bytes;
    live[slot.end_row] -= slot.tensor.bytes;
  }
  for (size_t row = 1; row < live.size(); ++row) live[row] += live[row - 1];
  live.pop_back();
  return live;
}

json row_json(const OwnedPlan& plan, const OwnedProgram& program, size_t r) {
  const Row& row = program.rows[r];
  const RowOrigin& origin = program.origins[r];
  const std::string name = kernel_info(row.op, row.pass).name;
  const CallCost cost = kernel_cost(kernel_call(plan, program, row), plan.attributes);
  json entry = {{"op", name.substr(0, name.find('.'))}, {"pass", name.substr(name.find('.') + 1)},
                {"link", plan.link_names[row.link]}, {"stage", stage_of(row, origin)}, {"queue", row.queue},
                {"flops", cost.flops}, {"bytes", cost.bytes}};
  entry["action"] = origin.action == kNoAction ? json(nullptr) : json(origin.action);
  add_references(plan, program, row, entry);
  return entry;
}

// Returns the predicted seconds of a row; null if there is no prediction. `times` is how often a
// step runs the program. A profile covers only programs that a step runs.
json seconds_json(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program, const Row& row,
                  uint32_t times) {
  const std::optional<double> seconds = times > 0 ? predict_row_seconds(model, plan, program, row) : std::nullopt;
  return seconds ? json(*seconds) : json(nullptr);
}

json programs_json(const SolvedModel& model, const OwnedPlan& plan) {
  json programs = json::array();
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const OwnedProgram& program = plan.programs[p];
    const uint32_t times = runs_in_step(plan, static_cast<ProgramId>(p));
    if (program.rows.empty()) continue;
    const std::vector<uint64_t> live = live_bytes_of(program);
    json rows = json::array();
    for (size_t r = 0; r < program.rows.size(); ++r) {
      rows.push_back(row_json(plan, program, r));
      rows.back()["live_bytes"] = live[r];
      rows.back()["seconds"] = seconds_json(model, plan, program, program.rows[r], times);
    }
    programs.push_back({{"name", kProgramNames[p]}, {"times", times}, {"bytes", program.bytes},
                        {"live_bytes", *std::max_element(live.begin(), live.end())}, {"rows", std::move(rows)}});
  }
  return programs;
}

json peak_json(const OwnedProgram& program) {
  const PeakRow peak = find_peak(program);
  json live = json::array();
  for (const uint32_t s : peak.slots) {
    live.push_back({{"id", s}, {"name", program.slot_names[s]}, {"bytes", program.slots[s].tensor.bytes}});
  }
  return {{"row", peak.row}, {"bytes", peak.bytes}, {"live", live}};
}

json outside_json(const SolvedModel& model, const OwnedPlan& plan) {
  json names = {"code", "stacks of the workers", "the data set in host memory"};
  if (model.recipe.backend == Recipe::BackendChoice::kCuda) names.push_back("the card's context and the kernels on it");
  return {{"not_in_the_arena", std::move(names)}, {"worker_stack_bytes", plan.worker_stack_bytes}};
}

}  // namespace

json manifest_of(const SolvedModel& model, const PlannedModel& planned) {
  const OwnedPlan& plan = planned.plan;
  json state = json::array();
  for (const StateTensor& s : plan.state) {
    state.push_back(tensor_json(s.tensor, s.name, kStateKinds[static_cast<int>(s.kind)]));
    if (s.owner != kEveryRank) state.back()["keeper"] = s.owner;
  }
  json carried = json::array();
  for (size_t i = 0; i < plan.carried.size(); ++i)
    carried.push_back(tensor_json(plan.carried[i], plan.carried_names[i], "weight_gradient"));
  json actions = json::array();
  for (const Action& action : planned.schedule.actions) actions.push_back(json(action_as_json(action)));
  json manifest = {{"format", kPlanFormat},
                   {"manifest_version", kManifestVersion},
                   {"recipe", json::parse(canonical_recipe(model.recipe))},
                   {"plan_hash", plan_hash(plan)},
                   {"planned_bytes", plan.arena_bytes},
                   {"store_all_bytes", model.store_all_bytes},
                   {"strategy", model.recipe.schedule.strategy},
                   {"extra_forward_cost", planned.extra_forward_cost},
                   {"predicted_seconds", planned.predicted_seconds ? json(*planned.predicted_seconds) : json(nullptr)},
                   {"peak_bytes", find_peak(plan.programs[0]).bytes},
                   {"packed_bytes", planned.packed_bytes},
                   {"move_bytes", planned.move_bytes},
                   {"rows", plan.programs[0].rows.size()},
                   {"regions", regions_json(plan)},
                   {"state", state},
                   {"carried", carried},
                   {"slots", slots_json(plan, &OwnedProgram::slots, &OwnedProgram::slot_names)},
                   {"programs", programs_json(model, plan)},
                   {"actions", std::move(actions)},
                   {"links", plan.link_names},
                   {"truncated", truncated_links(model.bodies.links)},
                   {"peak", peak_json(plan.programs[0])},
                   {"outside", outside_json(model, plan)},
                   {"measured", json::object()}};
  if (plan.spill_bytes > 0)
    manifest[spill_name(plan.spill_level)] = slots_json(plan, &OwnedProgram::spilled, &OwnedProgram::spilled_names);
  if (plan.ranks > 1) manifest["ranks"] = plan.ranks, manifest["sent_bytes"] = sent_bytes(plan.view());
  const auto& feature_maps = model.recipe.feature_map_budget_bytes;
  manifest["feature_map_budget_bytes"] = feature_maps ? json(*feature_maps) : json(nullptr);
  manifest["budget_bytes"] = planned.budget_bytes ? json(*planned.budget_bytes) : json(nullptr);
  return manifest;
}

json portable_manifest(json manifest) {
  manifest["recipe"] = without_places(manifest["recipe"]);
  if (manifest.contains("other_budgets")) {
    for (json& other : manifest["other_budgets"]) other = portable_manifest(other);
  }
  return manifest;
}

}  // namespace reprise
