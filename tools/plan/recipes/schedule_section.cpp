// A recipe's "schedule".
#include <algorithm>

#include "tools/files/formats/json_text.h"
#include "tools/plan/recipes/sections.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise {

using nlohmann::json;

namespace {

std::vector<std::string> recipe_strategies() {
  std::vector<std::string> names = strategy_names();
  names.push_back("policy");  // not a schedule of a chain: a policy sets the content of each link's tape
  return names;
}

}  // namespace

ScheduleRecipe read_schedule(const JsonFields& recipe) {
  ScheduleRecipe schedule;
  const auto form = [] { return either_form(word_form(recipe_strategies()), object_form()); };
  recipe.note("schedule", form, [&] { return json(schedule.strategy); },
              {"What is kept and what is computed again; a word is short for {\"strategy\": word}"});
  if (recipe.at("schedule").is_string()) {
    recipe.read("schedule", schedule.strategy);
    return schedule;
  }
  const JsonFields fields = recipe.object("schedule");
  fields.allow_only({"strategy", "k", "slots", "policy", "residues", "disk", "host", "write_cost", "read_cost"});
  fields.read("strategy", schedule.strategy,
              {"The plan of what is kept; section 4 of lib/PLANNING.md says what each is", "", "",
               recipe_strategies()});
  fields.read("k", schedule.k, 1, kMaxCount,
              {"Of every-k, sqrt, chen-recursive: links in a segment, segments, boundaries kept at each level", "",
               "chosen"});
  fields.read("slots", schedule.slots, 1, kMaxCount,
              {"Of revolve: checkpoints kept at once, the input's included", "boundaries",
               "as many as the budget holds"});
  fields.read("policy", schedule.policy,
              {"Of policy: dots, linear, attention-core, drop-bn-relu, ops:OP,... or names:PATTERN or offload:PATTERN "
               "and more after commas",
               "", "none; required for \"policy\""});
  fields.read("residues", schedule.residues,
              {"Of optimal, h-revolve: whether inner values may be kept without the output; false is Rotor's class"});
  std::optional<uint64_t> disk;
  fields.read_bytes("disk", disk, 0,
                    {"What may lie on disk at once: boundaries that the strategy chooses, or all that it keeps", "",
                     "0"});
  schedule.disk_bytes = disk.value_or(0);
  std::optional<uint64_t> host;
  fields.read_bytes("host", host, 0,
                    {"The same in pinned memory of the host beside a card's; a plan has one of the two", "", "0"});
  schedule.host_bytes = host.value_or(0);
  constexpr FieldRange kCostOfAByte = {0, 1e12};
  fields.read("write_cost", schedule.write_cost, kCostOfAByte,
              {"What a byte to disk or host costs; the seconds of a profile replace it", "flop equivalents",
               "320 to disk, 600 to the host"});
  fields.read("read_cost", schedule.read_cost, kCostOfAByte,
              {"What a byte from disk or host costs; the seconds of a profile replace it", "flop equivalents",
               "320 from disk, 600 from the host"});
  return schedule;
}

void check_schedule(const ScheduleRecipe& schedule, const RecipeRules& rules) {
  const std::vector<std::string> names = recipe_strategies();
  const std::string near = closest_match(schedule.strategy, names);
  rules.require(std::find(names.begin(), names.end(), schedule.strategy) != names.end(), "schedule.strategy",
                "must be one of " + quoted_list(names) + ", not " + json_shown(schedule.strategy) +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  const bool by_policy = schedule.strategy == "policy";
  rules.require(by_policy == !schedule.policy.empty(), "schedule.policy",
                by_policy ? "missing; \"policy\" needs its name, as dots or linear"
                          : "goes with strategy \"policy\" alone; leave it out");
  const bool offloads = by_policy && schedule.policy.starts_with("offload:");
  const bool takes_level = takes_disk(schedule.strategy) || offloads;
  const std::string takers =
      "goes with the strategies h-revolve, multistage, every-k and sqrt, and with a policy offload:...; leave it out";
  rules.require(schedule.disk_bytes == 0 || takes_level, "schedule.disk", takers);
  rules.require(schedule.host_bytes == 0 || takes_level || schedule.strategy == "optimal", "schedule.host", takers);
  rules.require(!offloads || schedule.spill_bytes() > 0, "schedule.host",
                "missing, and \"disk\" too: where a policy offload:... sends what it names");
  rules.require(schedule.host_bytes == 0 || schedule.disk_bytes == 0, "schedule.host",
                "goes without \"disk\": a plan spills to one of the two");
  rules.require(schedule.spill_bytes() > 0 || !(schedule.write_cost || schedule.read_cost), "schedule.disk",
                "missing, and \"host\" too; write_cost and read_cost are of their bytes");
}

json schedule_json(const ScheduleRecipe& schedule) {
  json value = {{"strategy", schedule.strategy}, {"policy", schedule.policy}, {"residues", schedule.residues}};
  if (schedule.k > 0) value["k"] = schedule.k;
  if (schedule.slots > 0) value["slots"] = schedule.slots;
  if (schedule.disk_bytes > 0) value["disk"] = schedule.disk_bytes;
  if (schedule.host_bytes > 0) value["host"] = schedule.host_bytes;
  if (schedule.write_cost) value["write_cost"] = *schedule.write_cost;
  if (schedule.read_cost) value["read_cost"] = *schedule.read_cost;
  return value;
}

}  // namespace reprise
