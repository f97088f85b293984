// A recipe's "schedule".
#include <algorithm>

#include "tools/formats/json_text.h"
#include "tools/recipes/sections.h"
#include "tools/schedule/schedule.h"

namespace reprise {

using nlohmann::json;

ScheduleRecipe read_schedule(const JsonFields& recipe) {
  ScheduleRecipe schedule;
  if (recipe.at("schedule").is_string()) {
    recipe.read("schedule", schedule.strategy);
    return schedule;
  }
  const JsonFields fields = recipe.object("schedule");
  fields.allow_only({"strategy", "k", "slots", "policy", "residues", "disk", "write_cost", "read_cost"});
  fields.read("strategy", schedule.strategy);
  fields.read("k", schedule.k, 1, kMostCount);
  fields.read("slots", schedule.slots, 1, kMostCount);
  fields.read("policy", schedule.policy);
  fields.read("residues", schedule.residues);
  std::optional<uint64_t> disk;
  fields.read_bytes("disk", disk, 0);
  schedule.disk_bytes = disk.value_or(0);
  constexpr FieldRange kCostOfAByte = {0, 1e12};
  fields.read("write_cost", schedule.write_cost, kCostOfAByte);
  fields.read("read_cost", schedule.read_cost, kCostOfAByte);
  return schedule;
}

void check_schedule(const ScheduleRecipe& schedule, const RecipeRules& rules) {
  std::vector<std::string> names = strategy_names();
  names.push_back("policy");  // no schedule over a chain: it decides what each link's tape holds
  const std::string near = closest_match(schedule.strategy, names);
  rules.require(std::find(names.begin(), names.end(), schedule.strategy) != names.end(), "schedule.strategy",
                "must be one of " + quoted_list(names) + ", not " + json_shown(schedule.strategy) +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  const bool by_policy = schedule.strategy == "policy";
  rules.require(by_policy == !schedule.policy.empty(), "schedule.policy",
                by_policy ? "missing; \"policy\" needs its name, as dots or linear" : "goes with strategy \"policy\" alone; leave it out");
  rules.require(schedule.disk_bytes == 0 || takes_disk(schedule.strategy), "schedule.disk",
                "goes with the strategies h-revolve and multistage; leave it out");
  rules.require(schedule.disk_bytes > 0 || !(schedule.write_cost || schedule.read_cost), "schedule.disk",
                "missing; write_cost and read_cost are of its bytes");
}

json schedule_json(const ScheduleRecipe& schedule) {
  json value = {{"strategy", schedule.strategy}, {"policy", schedule.policy}, {"residues", schedule.residues}};
  if (schedule.k > 0) value["k"] = schedule.k;
  if (schedule.slots > 0) value["slots"] = schedule.slots;
  if (schedule.disk_bytes > 0) value["disk"] = schedule.disk_bytes;
  if (schedule.write_cost) value["write_cost"] = *schedule.write_cost;
  if (schedule.read_cost) value["read_cost"] = *schedule.read_cost;
  return value;
}

}  // namespace reprise
