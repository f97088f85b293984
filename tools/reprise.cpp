// The command line: plan, profile, fit, compare, chain, schedule, pack, audit, doctor, name (DESIGN 9).
// Results go to stdout, everything else to stderr; exit status 0 done, 1 bad input, 2 usage, 3 does not fit.
// It must not compute: every subcommand calls one room and prints its answer.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>

#include "lib/reprise.h"
#include "ports/linux/linux_port.h"
#include "tools/command_line.h"
#include "tools/doctor.h"
#include "tools/planning/compare.h"
#include "tools/drawing/front_svg.h"
#include "tools/writing/plan_header.h"
#include "tools/planning/backends.h"
#include "tools/planning/planner.h"
#include "tools/writing/report.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/formats/text.h"
#include "tools/layout/pack_command.h"
#include "tools/profiling/measure.h"
#include "tools/schedule/chain_json.h"
#include "tools/schedule/schedule_command.h"

namespace reprise {
namespace {

constexpr int kDoesNotFit = UserError::kDoesNotFit;
constexpr uint64_t kMostLinks = 1000000;

// An option's bytes of disk; 0: none.
uint64_t disk_bytes_of(const std::string& text) { return text == "0" ? 0 : parse_bytes(text, "--disk"); }

// What plan, fit, compare, audit and chain share: a recipe, and what the command line overrides in it.
struct RecipeOptions {
  std::string recipe, strategy, profile, disk;
  std::optional<std::string> budget;
  int k = 0;
  std::string policy;
  bool json = false;

  void add_to(CLI::App& app, bool with_schedule) {
    app.add_option("RECIPE", recipe, "recipe file (JSON)")->required();
    app.add_option("--budget", budget, "bytes of the whole arena: an integer or 7GiB, 512MiB; overrides the recipe's");
    if (!with_schedule) return;
    app.add_option("--schedule,--strategy", strategy, "one of: none every-k sqrt revolve multistage h-revolve optimal ...; overrides the recipe's");
    app.add_option("--disk", disk, "h-revolve, multistage: bytes that may lie on disk; overrides the recipe's");
    app.add_option("--k", k, "every-k: links per segment")->check(integer_from(1, kMostLinks));
    app.add_option("--policy", policy, "policy: dots, linear, attention-core, drop-bn-relu, ops:OP,... or names:PATTERN,...");
  }
  void add_profile_to(CLI::App& app) { app.add_option("--profile", profile, "file of `reprise profile`: measured costs, so that step times are predicted"); }

  SolvedModel solve() const {
    const Recipe read_recipe = read();
    if (profile.empty()) return solve_model(read_recipe);
    const auto measured = std::make_shared<const Profile>(read_profile(profile));
    const Status kernels = linux_port().set_up_kernels();
    const std::string warning = kernels.ok() ? profile_mismatch(*measured, cpu_backend().kernel_set(), usable_processors()) : kernels.message;
    if (!warning.empty()) std::cerr << "warning: " << warning << "\n";
    return solve_model(read_recipe, costs_of(measured));
  }

  Recipe read() const {
    Recipe result = read_recipe(recipe);
    if (budget) {
      result.budget_bytes = parse_bytes(*budget, "--budget");
      result.feature_map_budget_bytes.reset();
    }
    // The recipe's parameters belong to the recipe's strategy.
    if (!strategy.empty() && strategy != result.schedule.strategy) {
      result.schedule = {};
      result.schedule.strategy = strategy;
    }
    if (!disk.empty()) result.schedule.disk_bytes = disk_bytes_of(disk);
    if (k != 0) result.schedule.k = k;
    if (!policy.empty()) result.schedule.policy = policy;
    check_recipe(result, recipe);
    if (result.backend == Recipe::BackendChoice::kCuda) {
      throw UserError(recipe + ": backend: \"cuda\" cannot train yet; use \"cpu\", or \"auto\", which takes the CPU where there is no other");
    }
    return result;
  }
};

void print_json(const nlohmann::json& json) { std::cout << json.dump(1) << "\n"; }

bool holds(const std::string& path, const std::string& text) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && read_file(path) == text;
}

// All of them or none; one that holds its text already is only touched, so that make sees it as made.
void write_files(const std::vector<std::pair<std::string, std::string>>& files) {
  try {
    for (const auto& [path, text] : files) {
      if (!holds(path, text)) write_file(path + ".tmp", text);
    }
  } catch (const UserError&) {
    for (const auto& [path, text] : files) ::unlink((path + ".tmp").c_str());
    throw;
  }
  for (const auto& [path, text] : files) {
    const bool done = holds(path, text) ? ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0 : std::rename((path + ".tmp").c_str(), path.c_str()) == 0;
    if (!done) throw UserError(path + ": cannot be replaced: " + std::strerror(errno));
  }
}

void make_folders(const std::string& path) {
  if (path.empty()) throw UserError("--output: must be a folder, not \"\"");
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) throw UserError(folder + ": cannot be made: " + std::strerror(errno));
    if (slash == std::string::npos) return;
  }
}

int run_plan(const RecipeOptions& options, const std::string& folder) {
  const SolvedModel model = options.solve();
  const ScheduleRequest request = request_of(model);
  const PlannedModel planned = plan_model(model, request);
  if (!planned.fits) throw UserError(does_not_fit_message(model, planned, request), UserError::kDoesNotFit);
  const std::string summary = summary_of(model, planned);
  make_folders(folder);
  write_files({{folder + "/manifest.json", manifest_of(model, planned).dump(1) + "\n"},
               {folder + "/plan.h", plan_header(planned.plan, backend_of(model.recipe), canonical_recipe(model.recipe), summary)}});
  std::cerr << summary << "\n";
  return 0;
}

int run_fit(const RecipeOptions& options) {
  const SolvedModel model = options.solve();
  if (!model.recipe.budget_bytes && !model.recipe.feature_map_budget_bytes) {
    throw UserError(options.recipe + ": budget: fit needs one; give --budget B, or \"budget\" in the recipe");
  }
  const ScheduleRequest request = request_of(model);
  PlannedModel planned = plan_model(model, request);
  if (planned.fits) planned.smallest_budget_bytes = smallest_budget(model, request);
  nlohmann::json answer = {{"fits", planned.fits}};
  answer["predicted_seconds"] = planned.fits && planned.predicted_seconds ? nlohmann::json(*planned.predicted_seconds) : nlohmann::json(nullptr);
  answer["smallest_budget"] = planned.smallest_budget_bytes == 0 ? nlohmann::json(nullptr) : nlohmann::json(planned.smallest_budget_bytes);
  answer["planned_bytes"] = planned.fits ? nlohmann::json(planned.plan.arena_bytes) : nlohmann::json(nullptr);
  if (options.json) print_json(answer);
  if (!planned.fits) {
    std::cerr << does_not_fit_message(model, planned, request) << "\n";
    return kDoesNotFit;
  }
  if (!options.json) std::cout << summary_of(model, planned) << "\n  smallest budget " << bytes_text(planned.smallest_budget_bytes) << "\n";
  return 0;
}

bool is_manifest(const nlohmann::json& given) { return given.is_object() && given.contains("plan_hash") && given.contains("slots"); }

nlohmann::json manifest_from(const RecipeOptions& options) {
  const SolvedModel model = options.solve();
  const ScheduleRequest request = request_of(model);
  const PlannedModel planned = plan_model(model, request);
  if (!planned.fits) throw UserError(does_not_fit_message(model, planned, request), UserError::kDoesNotFit);
  return manifest_of(model, planned);
}

// A plan may have grown by at most that many per cent since the baseline's manifest was written.
struct Gate {
  std::string baseline;
  double max_growth = 0;

  void check(const nlohmann::json& manifest) const {
    if (baseline.empty()) return;
    const nlohmann::json old = nlohmann::json::parse(read_file(baseline), nullptr, false);
    if (!is_manifest(old) || !old.value("planned_bytes", nlohmann::json()).is_number_unsigned()) {
      throw UserError(baseline + ": --gate: must be a manifest as `reprise plan` writes it");
    }
    const double before = old.at("planned_bytes").get<double>(), now = manifest.at("planned_bytes").get<double>();
    if (now <= before * (1 + max_growth / 100)) return;
    throw UserError(baseline + ": --gate: the plan has grown from " + bytes_text(static_cast<uint64_t>(before)) + " to " +
                        bytes_text(static_cast<uint64_t>(now)) + ", more than --max-growth " + std::to_string(max_growth) + " per cent",
                    UserError::kDoesNotFit);
  }
};

int run_audit(const RecipeOptions& options, const Gate& gate) {
  const nlohmann::json given = nlohmann::json::parse(read_file(options.recipe), nullptr, false);
  const nlohmann::json manifest = is_manifest(given) ? given : manifest_from(options);
  gate.check(manifest);
  std::string text;
  try {
    text = audit_text(manifest);
  } catch (const nlohmann::json::exception&) {
    throw UserError(options.recipe + ": plan_hash, slots: there, but this is no manifest as `reprise plan` writes it; plan again");
  }
  if (options.json) {
    print_json(manifest);
  } else {
    std::cout << text;
  }
  return 0;
}

struct ScheduleOptions {
  std::string chain, memory, strategy = "optimal", actions, policy, disk;
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
  if (!options.disk.empty()) options.unit_chain.disk = disk_bytes_of(options.disk);
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
    if (given && options.disk.empty()) throw UserError("schedule: " + std::string(name) + ": needs --disk D", UserError::kUsage);
    if (given && (!std::isfinite(*given) || *given < 0)) throw UserError("schedule: " + std::string(name) + ": must be a number >= 0");
    return given.value_or(0);
  };
  const DiskLevel disk = {0, cost(options.write_cost, "--write-cost"), cost(options.read_cost, "--read-cost")};
  if (options.disk.empty()) return disk;
  return {disk_bytes_of(options.disk), disk.write_cost, disk.read_cost};
}

int run_schedule(ScheduleOptions& options) {
  if (options.is_unit_chain && !options.chain.empty()) throw UserError("schedule: --steps: a chain file has its own; give one of them", UserError::kUsage);
  if (options.is_unit_chain) return run_unit_chain(options);
  if (options.chain.empty()) throw UserError("schedule: CHAIN.json: give a chain file, or --steps L", UserError::kUsage);
  if (!options.policy.empty() || options.strategy == kPolicy) {
    throw UserError("schedule: --policy: a chain file names no values; give a recipe to `reprise plan` or `compare`", UserError::kUsage);
  }
  if (options.memory.empty()) throw UserError("schedule: --memory: give the bytes that the chain may use", UserError::kUsage);
  const Chain chain = read_chain(options.chain);
  ScheduleRequest request;
  request.strategy = options.strategy;
  request.memory_bytes = parse_bytes(options.memory, "--memory");
  request.disk = disk_of(options);
  request.unit = options.unit;
  request.k = options.k;
  request.slots = static_cast<int>(std::min<uint64_t>(options.unit_chain.slots.value_or(0), kMostLinks));
  request.residues = !options.no_residues;
  request.as_published = options.as_published;
  const ScheduleAnswer answer = answer_schedule(chain, request, [](const Chain& c, const std::vector<Action>& actions) {
    const ChainLayout layout = layout_chain(c, actions);
    return LayoutFigures{layout.packed_bytes, layout.move_bytes};
  });
  if (!options.actions.empty() && answer.schedule.feasible) write_file(options.actions, actions_as_jsonl(answer.schedule.actions));
  if (options.json) {
    std::cout << answer.json.dump() << "\n";
  } else {
    for (const auto& [key, value] : answer.json.items()) std::cout << key << " " << value.dump() << "\n";
  }
  if (answer.schedule.feasible) return 0;
  std::cerr << options.chain << ": --memory " << options.memory << " does not fit strategy \"" << request.strategy << "\"";
  if (answer.schedule.smallest_memory != 0) std::cerr << "; the smallest that does is " << answer.schedule.smallest_memory;
  std::cerr << "\n";
  return kDoesNotFit;
}

int run_compare(const RecipeOptions& options, bool sweep, const std::string& svg) {
  const SolvedModel model = options.solve();
  const nlohmann::json answer = sweep ? sweep_strategies(model) : compare_strategies(model);
  if (!svg.empty()) write_file(svg, front_svg(answer, model.recipe.name + ": memory against extra work"));
  if (options.json || sweep) {
    print_json(answer);
  } else {
    std::cout << comparison_text(answer);
  }
  return 0;
}

int run_profile(const RecipeOptions& options, const std::string& output, uint32_t threads) {
  MeasureOptions measure;
  measure.threads = threads;
  measure.say = [](const std::string& line) { std::cerr << line << "\n"; };
  const std::string spill = output + ".spill";  // beside the profile: the folder says which disk is measured
  measure.spill_file = spill.c_str();
  const Profile profile = measure_profile(linux_port(), options.read(), measure);
  write_file(output, profile_text(profile));
  std::cerr << profile.kernels.size() << " distinct kernel calls, " << profile.threads << (profile.threads == 1 ? " thread" : " threads") << ", kernels "
            << profile.kernel_set << "\n";
  return 0;
}

int run_pack_command(const PackRequest& request, bool as_json) {
  const nlohmann::json report = run_pack(request);
  if (as_json) {
    std::cout << report.dump() << "\n";
  } else {
    std::cout << describe_pack(report, request.capacity) << "\n";
  }
  return report.at("feasible").get<bool>() ? 0 : kDoesNotFit;
}

int run(int argc, char** argv) {
  CLI::App app("Plans the memory of a whole training step before it runs.", "reprise");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all subcommands");

  RecipeOptions recipe;
  std::string output;
  CLI::App* plan = app.add_subcommand("plan", "write DIR/plan.h and DIR/manifest.json for a recipe");
  recipe.add_to(*plan, true);
  recipe.add_profile_to(*plan);
  plan->add_option("-o,--output", output, "folder")->required();

  CLI::App* profile = app.add_subcommand("profile", "measure every kernel call of a recipe on this machine");
  uint32_t threads = 0;
  recipe.add_to(*profile, false);
  profile->add_option("-o,--output", output, "file; a recipe with a disk measures the disk of its folder")->required();
  profile->add_option("--threads", threads, "workers; default: one for each processor")->check(integer_from(1, linux_port().most_workers));

  CLI::App* fit = app.add_subcommand("fit", "does the recipe fit a budget? exit status 0 or 3, the smallest budget that does");
  recipe.add_to(*fit, true);
  recipe.add_profile_to(*fit);
  fit->add_flag("--json", recipe.json);

  bool sweep = false;
  CLI::App* compare = app.add_subcommand("compare", "every strategy side by side at the recipe's budget");
  recipe.add_to(*compare, false);
  recipe.add_profile_to(*compare);
  compare->add_flag("--json", recipe.json);
  compare->add_flag("--sweep", sweep, "the memory-time front of every strategy, as JSON");
  std::string svg;
  compare->add_option("--svg", svg, "file: the sweep as a picture")->needs("--sweep");

  CLI::App* audit = app.add_subcommand("audit", "regions, peak and slots of a recipe's plan or of a manifest");
  recipe.add_to(*audit, true);
  recipe.add_profile_to(*audit);
  audit->add_flag("--json", recipe.json);
  Gate gate;
  audit->add_option("--gate", gate.baseline, "a manifest: exit status 3 where the plan has outgrown it");
  audit->add_option("--max-growth", gate.max_growth, "per cent of growth that the gate lets pass; default 0")->check(CLI::NonNegativeNumber);

  CLI::App* chain = app.add_subcommand("chain", "write a recipe's chain of links as JSON");
  recipe.add_to(*chain, false);
  chain->add_option("-o,--output", output, "file; default: stdout");

  CLI::App* name = app.add_subcommand("name", "print a recipe's name");
  recipe.add_to(*name, false);

  ScheduleOptions schedule_options;
  CLI::App* schedule = app.add_subcommand("schedule", "schedule a chain file, or a chain of equal steps");
  schedule->add_option("CHAIN", schedule_options.chain, "chain file (JSON)");
  schedule->add_option("--memory", schedule_options.memory, "bytes, the chain's input included");
  schedule->add_option("--strategy,--schedule", schedule_options.strategy, "default optimal");
  schedule->add_option("--unit", schedule_options.unit, "bytes per memory unit: a hint")->check(integer_from(1));
  schedule->add_option("--k", schedule_options.k, "every-k: links per segment")->check(integer_from(1, kMostLinks));
  schedule->add_option("--policy", schedule_options.policy, "refused here: a policy needs a recipe's values, see plan and compare");
  schedule->add_flag("--no-residues", schedule_options.no_residues, "optimal: Rotor's class");
  schedule->add_flag("--as-published", schedule_options.as_published, "optimal: Rotor's recurrence as printed");
  schedule->add_option("--actions", schedule_options.actions, "write the actions to this file, one JSON object a line");
  schedule->add_flag("--json", schedule_options.json);
  CLI::Option* steps = schedule->add_option("--steps", schedule_options.unit_chain.steps, "a chain of this many equal steps")->check(integer_from(1, 1000000000));
  schedule->add_option("--slots", schedule_options.unit_chain.slots, "revolve: checkpoints, the input's included")->check(integer_from(1));
  schedule->add_option("--ram", schedule_options.unit_chain.ram, "h-revolve: checkpoints in memory")->check(integer_from(1));
  schedule->add_option("--disk", schedule_options.disk, "h-revolve, multistage: bytes of disk (an integer or 7GiB); with --steps: checkpoints on disk");
  schedule->add_option("--write-cost", schedule_options.write_cost, "of one byte to disk, in the chain's unit; with --steps: of one checkpoint");
  schedule->add_option("--read-cost", schedule_options.read_cost, "of one byte from disk; with --steps: of one checkpoint");

  PackRequest pack_request;
  bool pack_json = false;
  CLI::App* pack = app.add_subcommand("pack", "pack buffers with lifetimes (CSV: id,lower,upper,size)");
  pack->add_option("PROBLEM", pack_request.problem_path, "CSV file")->required();
  pack->add_option("--capacity", pack_request.capacity, "bytes that must suffice; default: as few as can be")->check(integer_from(1));
  pack->add_option("-o,--output", pack_request.output_path, "CSV file with a column of offsets");
  pack->add_flag("--json", pack_json);

  CLI::App* doctor = app.add_subcommand("doctor", "what this machine offers: processor, kernels, memory");
  bool doctor_json = false;
  doctor->add_flag("--json", doctor_json);

  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands([&](CLI::App* command) { return command->check_name(argv[1]); }).empty()) {
    throw UserError(std::string("reprise: no subcommand \"") + argv[1] + "\"; see reprise --help", UserError::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return exit_status_of(app, error, "reprise");
  }
  schedule_options.is_unit_chain = steps->count() > 0;
  if (*plan) return run_plan(recipe, output);
  if (*profile) return run_profile(recipe, output, threads);
  if (*fit) return run_fit(recipe);
  if (*compare) return run_compare(recipe, sweep, svg);
  if (*audit) return run_audit(recipe, gate);
  if (*chain) {
    const SolvedModel model = recipe.solve();
    if (output.empty()) {
      std::cout << chain_to_json(model.chain).dump(1) << "\n";
    } else {
      write_chain(output, model.chain);
    }
    return 0;
  }
  if (*name) {
    std::cout << recipe.read().name << "\n";
    return 0;
  }
  if (*schedule) return run_schedule(schedule_options);
  if (*pack) return run_pack_command(pack_request, pack_json);
  return print_doctor(linux_port(), doctor_json);
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error of write()
  try {
    return reprise::checked_output(reprise::run(argc, argv), "reprise");
  } catch (const reprise::UserError& error) {
    std::cerr << error.what() << "\n";
    return error.status;
  } catch (const std::bad_alloc&) {
    std::cerr << "reprise: out of memory while planning; give a larger --unit or a smaller recipe\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "reprise: " << error.what() << "\n";
    return 1;
  }
}
