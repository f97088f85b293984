// `reprise audit`: shows regions, peak and slots of a recipe's plan or of a manifest, as text,
// JSON, a page or a trace. It also shows the difference to another plan. With --gate it fails if
// the plan has grown by more than a limit, compared with a stored manifest. With --renew it writes
// this manifest.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/shell_word.h"
#include "tools/files/io/text.h"
#include "tools/plan/audit/audit_text.h"
#include "tools/plan/audit/growth_gate.h"
#include "tools/plan/audit/manifest.h"
#include "tools/plan/audit/page.h"
#include "tools/plan/audit/plan_diff.h"
#include "tools/plan/audit/plan_trace.h"
#include "tools/plan/audit/prices.h"
#include "tools/run/commands/plan_source.h"

namespace reprise {

namespace {

using nlohmann::json;

constexpr int kSweptPlans = 12;

struct AuditOptions {
  RecipeOptions recipe;
  std::string diff, gate, html, trace;
  std::vector<std::string> max_growth;
  bool json = false, markdown = false, prices = false, sweep = false, renew = false;
};

void add_prices(PlanSource& source, const std::string& file) {
  if (source.plans.empty())
    throw UserError(file + ": --prices: are found by planning again; give the recipe", UserError::kUsage);
  for (size_t i = 0; i < source.plans.size(); ++i) {
    json& manifest = i == 0 ? source.manifest : source.manifest["other_budgets"][i - 1];
    manifest["prices"] = memory_prices(source.plans[i].model, source.plans[i].planned);
    manifest["smaller"] = largest_misfit(source.plans[i].model);
  }
}

// Returns the command that plans the recipe again with the budget of `manifest`; "" if the input
// was only a manifest. Compiling the result proves the plan. A plan of a sweep has a budget that is
// not in the options of the command line.
std::string proving_command(const RecipeOptions& options, const PlanSource& source, const json& manifest) {
  if (source.plans.empty()) return "";
  const auto option = [](const std::string& name, const std::string& value) {
    return value.empty() ? "" : " " + name + " " + shell_word(value);
  };
  const bool is_own = manifest["plan_hash"] == source.manifest["plan_hash"];
  std::string budget = options.budget.value_or(""), remark;
  if (!is_own && manifest["budget_bytes"].is_number()) budget = manifest["budget_bytes"].dump();
  if (!is_own && manifest["feature_map_budget_bytes"].is_number())
    remark = " with \"feature_map_budget\": " + manifest["feature_map_budget_bytes"].dump() + " in the recipe";
  return "reprise plan " + shell_word(options.recipe) + option("--budget", budget) +
         option("--schedule", options.strategy) + option("--disk", options.disk) + option("--host", options.host) +
         option("--k", options.k == 0 ? "" : std::to_string(options.k)) +
         option("--ranks", options.ranks == 0 ? "" : std::to_string(options.ranks)) +
         option("--policy", options.policy) + option("--profile", options.profile) + " -o DIR" + remark;
}

// Returns the plans for the page: the requested one, and with --sweep those with other budgets.
json plans_of(const AuditOptions& options, const PlanSource& source) {
  json plans = json::array({source.manifest});
  for (const json& other : source.manifest.value("other_budgets", json::array())) plans.push_back(other);
  plans[0].erase("other_budgets");
  if (!options.sweep) return plans;
  if (source.plans.empty())
    throw UserError(options.recipe.recipe + ": --sweep: plans at other budgets; give the recipe", UserError::kUsage);
  for (json& manifest : sweep_manifests(source.plans[0].model, kSweptPlans - 1)) {
    const bool is_new = std::none_of(plans.begin(), plans.end(),
                                     [&](const json& known) { return known["plan_hash"] == manifest["plan_hash"]; });
    if (is_new) plans.push_back(std::move(manifest));
  }
  std::stable_sort(plans.begin(), plans.end(),
                   [](const json& a, const json& b) { return a["planned_bytes"] < b["planned_bytes"]; });
  return plans;
}

constexpr OutputKind kPage = {"audit"};

// Writes the page. A comment that marks the page as written by this program follows the first line,
// because the first line must declare that the file is HTML.
void write_page(const Output& to, std::string page) {
  page.insert(page.find('\n') + 1, "<!-- " + std::string(kWriterKey) + ": " + mark_of(kPage) + " -->\n");
  to.write(page);
}

// The outputs of a command; unset if not requested.
struct AuditOutputs {
  std::optional<Output> html, trace, gate;
};

void write_page(const AuditOptions& options, const Output& to, const PlanSource& source) {
  const json plans = plans_of(options, source);
  size_t shown = 0;
  while (plans[shown]["plan_hash"] != source.manifest["plan_hash"]) ++shown;
  json commands = json::array();
  for (const json& manifest : plans) commands.push_back(proving_command(options.recipe, source, manifest));
  write_page(to, audit_page({{"plans", plans}, {"shown", shown}, {"diff", nullptr}, {"commands", commands}}));
}

int show_diff(const AuditOptions& options, const AuditOutputs& outputs, const PlanSource& source) {
  RecipeOptions other;
  other.recipe = options.diff;
  other.board = options.recipe.board;
  const PlanSource second = open_plan(other);
  const json diff = plan_diff(source.manifest, second.manifest);
  if (outputs.html) {
    const json plans = json::array({source.manifest, second.manifest});
    const json commands = json::array(
        {proving_command(options.recipe, source, source.manifest), proving_command(other, second, second.manifest)});
    write_page(*outputs.html, audit_page({{"plans", plans}, {"shown", 1}, {"diff", diff}, {"commands", commands}}));
  }
  if (options.json) {
    print_json(diff);
  } else if (options.html.empty()) {
    std::cout << plan_diff_text(diff);
  }
  return 0;
}

std::vector<GrowthLine> growth_of(const AuditOptions& options, const json& manifest) {
  if (options.gate.empty()) return {};
  const GrowthLimits limits = growth_limits(options.max_growth);
  if (std::error_code ignored; !std::filesystem::exists(options.gate, ignored))
    throw UserError(options.gate + ": --gate: is not there; the same command with --renew makes it");
  const json baseline = read_manifest(options.gate, "--gate");
  std::vector<GrowthLine> lines = compare_growth(baseline, manifest, limits, options.gate);
  const json others = manifest.value("other_budgets", json::array()),
             before = baseline.value("other_budgets", json::array());
  if (others.size() != before.size()) {
    throw UserError(options.gate + ": other_budgets: has " + std::to_string(before.size()) +
                    " plans, and the plan that is compared has " + std::to_string(others.size()));
  }
  for (size_t n = 0; n < others.size(); ++n) {
    for (GrowthLine& line : compare_growth(before[n], others[n], limits, options.gate)) {
      line.name = "other_budgets[" + std::to_string(n) + "]." + line.name;
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

AuditOutputs outputs_of(const AuditOptions& options) {
  require_different({{"--html", options.html}, {"--trace", options.trace}, {"--gate", options.gate}});
  std::vector<std::string> inputs = is_manifest_file(options.recipe.recipe)
                                        ? std::vector<std::string>{options.recipe.recipe}
                                        : options.recipe.inputs();
  inputs.insert(inputs.end(), {options.renew ? "" : options.gate, options.diff});
  AuditOutputs outputs;
  if (!options.html.empty()) outputs.html.emplace(options.html, kPage, inputs);
  if (!options.trace.empty()) outputs.trace.emplace(options.trace, kTraceFile, inputs);
  if (options.renew) outputs.gate.emplace(options.gate, kManifestFile, inputs);
  return outputs;
}

// Writes or replaces the manifest of --gate. Prints the bytes of the new plan and, if there was
// one, of the old plan.
void renew_gate(const AuditOptions& options, const Output& to, const json& manifest) {
  std::string before;
  if (is_manifest_file(options.gate)) {
    const json old = json_or_discarded(read_file(options.gate)).value("planned_bytes", json());
    if (old.is_number_unsigned()) before = ", before " + bytes_text(old);
  }
  to.write(portable_manifest(manifest).dump(1) + "\n");
  std::cout << options.gate << ": " << manifest["recipe"]["name"].get<std::string>() << " has "
            << bytes_text(manifest["planned_bytes"]) << before << "\n";
}

int run_audit(const AuditOptions& options) {
  const AuditOutputs outputs = outputs_of(options);
  PlanSource source = open_plan(options.recipe);
  if (options.prices || (!options.html.empty() && !source.plans.empty())) add_prices(source, options.recipe.recipe);
  if (!options.diff.empty()) return show_diff(options, outputs, source);
  if (outputs.gate) return renew_gate(options, *outputs.gate, source.manifest), 0;
  const std::vector<GrowthLine> growth = growth_of(options, source.manifest);
  const std::string refusal = growth_refusal(growth, options.gate);
  // The table is printed even if the gate fails.
  if (options.markdown) std::cout << growth_markdown(growth, source.manifest["recipe"]["name"].get<std::string>());
  if (options.json) print_json(source.manifest);
  if (outputs.html) write_page(options, *outputs.html, source);
  if (outputs.trace) outputs.trace->write(marked_json(kTraceFile, plan_trace(source.manifest, {}).dump()) + "\n");
  if (!refusal.empty()) throw UserError(refusal, UserError::kDoesNotFit);
  if (!options.json && !options.markdown && options.html.empty() && options.trace.empty())
    std::cout << audit_text(source.manifest);
  return 0;
}

}  // namespace

Command add_audit(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<AuditOptions>();
  OptionParser* parser = app.add_subcommand("audit", "regions, peak and slots of a recipe's plan or of a manifest");
  options->recipe.add_to(*parser);
  parser->get_option("RECIPE")->description(
      "recipe file (JSON), or a manifest of `reprise plan`; tools/check_plan.c, a C program for auditors, "
      "proves the plan.bin beside it a second time");
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  Option* as_json = parser->add_flag("--json", options->json, "one JSON value on stdout");
  parser->add_flag(
      "--prices", options->prices,
      "what less and more memory would cost and save, found by planning again; a page of a recipe has them");
  Option* html =
      parser->add_option("--html", options->html, "file: a page to look at, offline, with the map of every slot")
          ->check(not_empty());
  parser->add_flag("--sweep", options->sweep, "the page also holds up to eleven plans at other budgets")->needs(html);
  Option* trace = parser->add_option("--trace", options->trace, "file: the plan for Perfetto or chrome://tracing")
                      ->check(not_empty());
  Option* diff =
      parser->add_option("--diff", options->diff, "a recipe or a manifest: what differs there")->check(not_empty());
  Option* gate = parser
                     ->add_option("--gate", options->gate,
                                  "a manifest, as --renew writes it: exit status 3 where the plan has outgrown it")
                     ->check(not_empty())
                     ->excludes(diff);
  Option* growth = parser
                       ->add_option("--max-growth", options->max_growth,
                                    "per cent of growth that the gate lets pass, default 0; NAME=PCT: of a region, of "
                                    "\"seconds\" or \"work\"; may be given again")
                       ->take_all()
                       ->allow_extra_args(false)
                       ->needs(gate);
  Option* markdown = parser->add_flag("--markdown", options->markdown, "the gate's table, for a comment on a change")
                         ->needs(gate)
                         ->excludes(as_json);
  parser->add_flag("--renew", options->renew, "write the manifest of --gate, or replace it, in place of comparing")
      ->needs(gate)
      ->excludes(html)
      ->excludes(trace)
      ->excludes(as_json)
      ->excludes(growth)
      ->excludes(markdown);
  trace->excludes(diff);
  return {parser, [options] { return run_audit(*options); }};
}

}  // namespace reprise
