// `reprise schedule`: runs one strategy on a chain file, or on a chain of equal steps.
#include <cmath>
#include <iostream>
#include <memory>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/text.h"
#include "tools/plan/layout/chain_layout.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/schedule/chain_json.h"
#include "tools/plan/schedule/schedule_command.h"
#include "tools/run/commands/command.h"

namespace reprise {

namespace {

struct ScheduleOptions {
  std::string chain, memory, strategy = "optimal", actions, policy, disk, check;
  std::optional<double> write_cost, read_cost;
  uint64_t unit = 0;
  int k = 0;
  bool no_residues = false, as_published = false, json = false;
  UnitChainRequest unit_chain;
  bool is_unit_chain = false;
};

int run_unit_chain(ScheduleOptions& options) {
  options.unit_chain.strategy = options.strategy;
  options.unit_chain.write_cost = options.write_cost;
  options.unit_chain.read_cost = options.read_cost;
  if (!options.disk.empty()) options.unit_chain.disk = spill_bytes_of(options.disk, "--disk");
  const nlohmann::ordered_json answer = answer_unit_chain(options.unit_chain);
  if (options.json) {
    std::cout << answer.dump() << "\n";
  } else {
    for (const auto& [key, value] : answer.items()) std::cout << key << " " << value.dump() << "\n";
  }
  return 0;
}

DiskLevel disk_of(const ScheduleOptions& options) {
  const auto cost = [&options](const std::optional<double>& given, const char* name) {
    if (given && options.disk.empty() && options.check.empty())
      throw UserError("schedule: " + std::string(name) + ": needs --disk D", UserError::kUsage);
    if (given && (!std::isfinite(*given) || *given < 0))
      throw UserError("schedule: " + std::string(name) + ": must be a number >= 0");
    return given.value_or(0);
  };
  const DiskLevel disk = {0, cost(options.write_cost, "--write-cost"), cost(options.read_cost, "--read-cost")};
  if (options.disk.empty()) return disk;
  return {spill_bytes_of(options.disk, "--disk"), disk.write_cost, disk.read_cost};
}

LayoutFigures layout_figures(const Chain& chain, const std::vector<Action>& actions) {
  const ChainLayout layout = layout_chain(chain, actions);
  return {layout.packed_bytes, layout.move_bytes};
}

void print_answer(const ScheduleAnswer& answer, bool as_json) {
  if (as_json) {
    std::cout << answer.json.dump() << "\n";
    return;
  }
  for (const auto& [key, value] : answer.json.items()) std::cout << key << " " << value.dump() << "\n";
}

int run_check(const ScheduleOptions& options, const Chain& chain, const std::optional<Output>& actions) {
  const DiskLevel disk = disk_of(options);
  CheckBounds bounds;
  if (!options.memory.empty()) bounds.memory_bytes = parse_bytes(options.memory, "--memory");
  if (!options.disk.empty()) bounds.disk_bytes = disk.bytes;
  const ScheduleAnswer answer = answer_check(chain, options.check, bounds, disk, layout_figures);
  if (actions) actions->write(actions_as_jsonl(answer.schedule.actions));
  print_answer(answer, options.json);
  if (answer.schedule.feasible) return 0;
  std::cerr << options.check << ": is a schedule of " << options.chain << " that takes " << answer.schedule.peak_bytes
            << " bytes of memory and " << answer.schedule.disk_bytes << " of disk, more than "
            << (bounds.memory_bytes && answer.schedule.peak_bytes > *bounds.memory_bytes ? "--memory " + options.memory
                                                                                         : "--disk " + options.disk)
            << "\n";
  return UserError::kDoesNotFit;
}

int run_schedule(ScheduleOptions& options) {
  if (options.is_unit_chain && !options.chain.empty())
    throw UserError("schedule: --steps: a chain file has its own; give one of them", UserError::kUsage);
  if (options.is_unit_chain) return run_unit_chain(options);
  if (options.chain.empty())
    throw UserError("schedule: CHAIN.json: give a chain file, or --steps L", UserError::kUsage);
  if (!options.policy.empty() || options.strategy == kPolicy) {
    throw UserError("schedule: --policy: a chain file names no values; give a recipe to `reprise plan` or `compare`",
                    UserError::kUsage);
  }
  if (options.memory.empty() && options.check.empty())
    throw UserError("schedule: --memory: give the bytes that the chain may use", UserError::kUsage);
  std::optional<Output> actions;
  if (!options.actions.empty())
    actions.emplace(options.actions, kActionsFile, std::vector<std::string>{options.chain, options.check});
  const Chain chain = read_chain(options.chain);
  if (!options.check.empty()) return run_check(options, chain, actions);
  ScheduleRequest request;
  request.strategy = options.strategy;
  request.memory_bytes = parse_bytes(options.memory, "--memory");
  request.disk = disk_of(options);
  request.unit = options.unit;
  request.k = options.k;
  request.slots = static_cast<int>(std::min<uint64_t>(options.unit_chain.slots.value_or(0), kMaxLinks));
  request.residues = !options.no_residues;
  request.as_published = options.as_published;
  const ScheduleAnswer answer = answer_schedule(chain, request, layout_figures);
  if (actions && answer.schedule.feasible) actions->write(actions_as_jsonl(answer.schedule.actions));
  print_answer(answer, options.json);
  if (answer.schedule.feasible) return 0;
  std::cerr << options.chain << ": --memory " << options.memory << " does not fit strategy \"" << request.strategy
            << "\"";
  if (answer.schedule.smallest_memory != 0)
    std::cerr << "; the smallest that does is " << answer.schedule.smallest_memory;
  std::cerr << "\n";
  return UserError::kDoesNotFit;
}

}  // namespace

Command add_schedule(OptionParser& app) {
  const auto options = std::make_shared<ScheduleOptions>();
  OptionParser* parser = app.add_subcommand("schedule", "schedule a chain file, or a chain of equal steps");
  parser->add_option("CHAIN", options->chain, "chain file (JSON)");
  parser->add_option("--memory", options->memory, "bytes, the chain's input included");
  Option* check = parser
                      ->add_option("--check", options->check,
                                   "prove and price this file of actions, of --actions or of checkpoint_schedules")
                      ->check(not_empty());
  parser->add_option("--strategy,--schedule", options->strategy, "default optimal")->excludes(check);
  parser->add_option("--unit", options->unit, "bytes per memory unit: a hint")->check(integer_from(1))->excludes(check);
  parser->add_option("--k", options->k, "every-k, sqrt, chen-recursive: links per segment")
      ->check(integer_from(1, kMaxLinks))
      ->excludes(check);
  parser->add_option("--policy", options->policy,
                     "refused here: a policy needs a recipe's values, see plan and compare");
  parser->add_flag("--no-residues", options->no_residues, "optimal: Rotor's class")->excludes(check);
  parser->add_flag("--as-published", options->as_published, "optimal: Rotor's recurrence as printed")->excludes(check);
  parser->add_option("--actions", options->actions, "write the actions to this file, one JSON object a line")
      ->check(not_empty());
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  Option* steps = parser->add_option("--steps", options->unit_chain.steps, "a chain of this many equal steps")
                      ->check(integer_from(1, 1000000000))
                      ->excludes(check);
  parser->add_option("--slots", options->unit_chain.slots, "revolve: checkpoints, the input's included")
      ->check(integer_from(1))
      ->excludes(check);
  parser->add_option("--ram", options->unit_chain.ram, "h-revolve: checkpoints in memory")
      ->check(integer_from(1))
      ->excludes(check);
  parser->add_option("--disk", options->disk,
                     "h-revolve, multistage: bytes of disk (an integer or 7GiB); with --steps: checkpoints on disk");
  parser->add_option("--write-cost", options->write_cost,
                     "of one byte to disk, in the chain's unit; with --steps: of one checkpoint");
  parser->add_option("--read-cost", options->read_cost, "of one byte from disk; with --steps: of one checkpoint");
  return {parser, [options, steps] {
            options->is_unit_chain = steps->count() > 0;
            return run_schedule(*options);
          }};
}

}  // namespace reprise
