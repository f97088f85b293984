// Reports of report.h.
// The manifest holds everything; the audit only formats it.
#include "tools/writing/report.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tools/writing/plan_header.h"
#include "tools/planning/step_cost.h"
#include "tools/formats/text.h"

namespace reprise {

using nlohmann::json;

namespace {

const char* const kProgramNames[kProgramCount] = {"micro_first", "micro_add", "update", "evaluate", "generate"};
const char* const kSlotKinds[] = {"input", "label", "boundary", "tape", "transient", "gradient", "weight_gradient", "small", "scratch", "cache"};
const char* const kStateKinds[] = {"scalars", "parameter", "buffer", "optimizer", "norms", "table"};

json shape_of(const Tensor& tensor) {
  json shape = json::array();
  for (uint32_t d = 0; d < tensor.rank; ++d) shape.push_back(tensor.shape[d]);
  return shape;
}

json tensor_json(const Tensor& tensor, const std::string& name, const std::string& kind) {
  return {{"name", name}, {"kind", kind}, {"dtype", dtype_info(tensor.dtype).name}, {"shape", shape_of(tensor)},
          {"bytes", tensor.bytes}, {"offset", tensor.offset}};
}

// The slots of the arena, or the blocks on disk.
json slots_json(const OwnedPlan& plan, std::vector<Slot> OwnedProgram::*list, std::vector<std::string> OwnedProgram::*names) {
  json slots = json::array();
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const OwnedProgram& program = plan.programs[p];
    for (uint32_t s = 0; s < (program.*list).size(); ++s) {
      const Slot& slot = (program.*list)[s];
      json entry = tensor_json(slot.tensor, (program.*names)[s], kSlotKinds[static_cast<int>(slot.kind)]);
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
    regions.push_back({{"name", name}, {"capacity_bytes", capacity}, {"planned_bytes", planned}, {"high_water_row", row}});
  };
  add("state", plan.state_bytes, plan.state_bytes, 0);
  add("carried", plan.carried_bytes, plan.carried_bytes, 0);
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    if (!plan.programs[p].rows.empty()) add(kProgramNames[p], transient, plan.programs[p].bytes, high_water_row(plan.programs[p].slots));
  }
  if (plan.disk_bytes > 0) add("disk", plan.disk_bytes, plan.disk_bytes, high_water_row(plan.programs[0].disk));
  return regions;
}

json peak_json(const OwnedProgram& program) {
  const PeakRow peak = find_peak(program);
  json live = json::array();
  for (const uint32_t s : peak.slots) {
    live.push_back({{"id", s}, {"name", program.slot_names[s]}, {"bytes", program.slots[s].tensor.bytes}});
  }
  return {{"row", peak.row}, {"bytes", peak.bytes}, {"live", live}};
}

}  // namespace

json manifest_of(const SolvedModel& model, const PlannedModel& planned) {
  const OwnedPlan& plan = planned.plan;
  json state = json::array();
  for (const StateTensor& s : plan.state) state.push_back(tensor_json(s.tensor, s.name, kStateKinds[static_cast<int>(s.kind)]));
  json carried = json::array();
  for (size_t i = 0; i < plan.carried.size(); ++i) carried.push_back(tensor_json(plan.carried[i], plan.carried_names[i], "weight_gradient"));
  json manifest = {{"format", kPlanFormat},
                   {"recipe", json::parse(canonical_recipe(model.recipe))},
                   {"plan_hash", plan_hash(plan)},
                   {"planned_bytes", plan.arena_bytes},
                   {"store_all_bytes", model.store_all_bytes},
                   {"strategy", model.recipe.schedule.strategy},
                   {"extra_forward_cost", planned.extra_forward_cost},
                   {"predicted_seconds", planned.predicted_seconds ? json(*planned.predicted_seconds) : json(nullptr)},
                   {"peak_bytes", planned.schedule.peak_bytes},
                   {"packed_bytes", planned.packed_bytes},
                   {"move_bytes", planned.move_bytes},
                   {"rows", plan.programs[0].rows.size()},
                   {"regions", regions_json(plan)},
                   {"state", state},
                   {"carried", carried},
                   {"slots", slots_json(plan, &OwnedProgram::slots, &OwnedProgram::slot_names)},
                   {"peak", peak_json(plan.programs[0])},
                   {"outside", {{"not_in_the_arena", {"code", "stacks of the workers", "the data set in host memory"}}}},
                   {"measured", json::object()}};
  if (plan.disk_bytes > 0) manifest["disk"] = slots_json(plan, &OwnedProgram::disk, &OwnedProgram::disk_names);
  const auto& feature_maps = model.recipe.feature_map_budget_bytes;
  manifest["feature_map_budget_bytes"] = feature_maps ? json(*feature_maps) : json(nullptr);
  manifest["budget_bytes"] = planned.budget_bytes ? json(*planned.budget_bytes) : json(nullptr);
  return manifest;
}

namespace {

std::string budget_text(const Recipe& recipe) {
  if (recipe.budget_bytes) return bytes_text(*recipe.budget_bytes);
  if (recipe.feature_map_budget_bytes) return bytes_text(*recipe.feature_map_budget_bytes) + " of feature maps and scratch";
  return "none: as much as the schedule wants";
}

}  // namespace

std::string summary_of(const SolvedModel& model, const PlannedModel& planned) {
  const OwnedPlan& plan = planned.plan;
  std::ostringstream text;
  char share[64];
  std::snprintf(share, sizeof share, "%.1f%%", 100.0 * static_cast<double>(plan.arena_bytes) / static_cast<double>(model.store_all_bytes));
  text << "plan " << model.recipe.name << " (" << model.recipe.schedule.strategy << ", " << plan.programs[0].rows.size() << " rows a micro-batch)\n";
  text << "  budget          " << budget_text(model.recipe) << "\n";
  text << "  planned peak    " << bytes_text(plan.arena_bytes) << " = " << bytes_text(plan.state_bytes) << " state + " << bytes_text(plan.carried_bytes)
       << " gradients + " << bytes_text(plan.arena_bytes - plan.state_bytes - plan.carried_bytes) << " activations and scratch\n";
  if (plan.disk_bytes > 0) text << "  on disk         " << bytes_text(plan.disk_bytes) << " of boundaries at most, in a spill file\n";
  text << "  storing all     " << bytes_text(model.store_all_bytes) << " (this plan takes " << share << " of it)\n";
  const CallCost cost = step_cost(plan);
  std::snprintf(share, sizeof share, "%.4g GFLOP", cost.flops / 1e9);
  text << "  a whole step    " << share << " in convolutions and products, at least " << bytes_text(static_cast<uint64_t>(cost.bytes)) << " read or written\n";
  std::snprintf(share, sizeof share, "%.1f%%", 100.0 * planned.extra_forward_cost);
  text << "  extra work      " << share << " of a step's forward and backward, predicted from " << (planned.predicted_seconds ? "the profile" : "flops and bytes");
  if (planned.predicted_seconds) {
    std::snprintf(share, sizeof share, "%.4g s", *planned.predicted_seconds);
    text << "\n  predicted step  " << share;
  }
  return text.str();
}

std::string audit_text(const json& manifest) {
  std::ostringstream text;
  const auto size = [](const json& bytes) { return bytes_text(bytes.get<uint64_t>()); };
  text << "plan " << manifest.at("plan_hash").get<std::string>() << " of " << manifest.at("recipe").at("name").get<std::string>() << ": "
       << manifest.at("planned_bytes").get<uint64_t>() << " bytes (" << size(manifest.at("planned_bytes")) << "), storing all would take "
       << size(manifest.at("store_all_bytes")) << "\n\nregion            planned       capacity  high water at row\n";
  char line[256];
  for (const json& region : manifest.at("regions")) {
    std::snprintf(line, sizeof line, "%-12s %12s %14s  %u\n", region.at("name").get<std::string>().c_str(), size(region.at("planned_bytes")).c_str(),
                  size(region.at("capacity_bytes")).c_str(), region.at("high_water_row").get<uint32_t>());
    text << line;
  }
  const json& peak = manifest.at("peak");
  text << "\npeak of micro_first: row " << peak.at("row") << ", " << size(peak.at("bytes")) << " live in " << peak.at("live").size() << " slots\n";
  for (const json& slot : peak.at("live")) {
    std::snprintf(line, sizeof line, "  %12s  slot %-5u %s\n", size(slot.at("bytes")).c_str(), slot.at("id").get<uint32_t>(),
                  slot.at("name").get<std::string>().c_str());
    text << line;
  }
  const auto list = [&](const char* title, const json& slots) {
    text << "\n" << title << " (program id kind bytes offset rows name [shape])\n";
    for (const json& slot : slots) {
      std::snprintf(line, sizeof line, "%-11s %5u %-10s %12llu @ %-12llu %6u..%-6u %s %s\n", slot.at("program").get<std::string>().c_str(),
                    slot.at("id").get<uint32_t>(), slot.at("kind").get<std::string>().c_str(),
                    static_cast<unsigned long long>(slot.at("bytes").get<uint64_t>()), static_cast<unsigned long long>(slot.at("offset").get<uint64_t>()),
                    slot.at("first_row").get<uint32_t>(), slot.at("last_row").get<uint32_t>(), slot.at("name").get<std::string>().c_str(),
                    slot.at("shape").dump().c_str());
      text << line;
    }
  };
  list("slots", manifest.at("slots"));
  if (manifest.contains("disk")) list("blocks on disk", manifest.at("disk"));
  return text.str();
}

}  // namespace reprise
