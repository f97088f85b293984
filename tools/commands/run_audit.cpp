// `reprise audit`: regions, peak and slots of a recipe's plan or of a manifest, and a gate against growth.
#include <iostream>
#include <memory>

#include "tools/commands/recipe_options.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/formats/text.h"
#include "tools/writing/report.h"

namespace reprise {

namespace {

bool is_manifest(const nlohmann::json& given) { return given.is_object() && given.contains("plan_hash") && given.contains("slots"); }

nlohmann::json manifest_from(const RecipeOptions& options) {
  const SolvedModel model = options.solve();
  const ScheduleRequest request = request_of(model);
  const PlannedModel planned = plan_model(model, request);
  if (!planned.fits) throw UserError(does_not_fit_message(model, planned, request), UserError::kDoesNotFit);
  return manifest_of(model, planned);
}

// A plan may have grown by at most that many per cent since the baseline's manifest was written.
struct GrowthGate {
  std::string baseline;
  double max_growth = 0;

  // Why the plan may not pass; "" where it may. Throws UserError where the baseline is no manifest.
  std::string refusal(const nlohmann::json& manifest) const {
    if (baseline.empty()) return "";
    const nlohmann::json old = nlohmann::json::parse(read_file(baseline), nullptr, false);
    if (!is_manifest(old) || !old.value("planned_bytes", nlohmann::json()).is_number_unsigned()) {
      throw UserError(baseline + ": --gate: must be a manifest as `reprise plan` writes it");
    }
    const double before = old.at("planned_bytes").get<double>(), now = manifest.at("planned_bytes").get<double>();
    if (now <= before * (1 + max_growth / 100)) return "";
    return baseline + ": --gate: the plan has grown from " + bytes_text(static_cast<uint64_t>(before)) + " to " +
           bytes_text(static_cast<uint64_t>(now)) + ", more than --max-growth " + nlohmann::json(max_growth).dump() + " per cent";
  }
};

int run_audit(const RecipeOptions& options, const GrowthGate& gate, bool as_json) {
  const nlohmann::json given = nlohmann::json::parse(read_file(options.recipe), nullptr, false);
  const std::string unheeded = options.first_given();
  if (is_manifest(given) && !unheeded.empty()) {
    throw UserError(options.recipe + ": " + unheeded + ": has no effect on a manifest, which is of a plan that is made; give the recipe", UserError::kUsage);
  }
  const nlohmann::json manifest = is_manifest(given) ? given : manifest_from(options);
  const std::string refusal = gate.refusal(manifest);
  std::string text;
  try {
    text = audit_text(manifest);
  } catch (const nlohmann::json::exception&) {
    throw UserError(options.recipe + ": plan_hash, slots: there, but this is no manifest as `reprise plan` writes it; plan again");
  }
  if (as_json) print_json(manifest);  // also where the gate refuses it
  if (!refusal.empty()) throw UserError(refusal, UserError::kDoesNotFit);
  if (!as_json) std::cout << text;
  return 0;
}

}  // namespace

Command add_audit(CLI::App& app, const Port& port) {
  struct AuditOptions {
    RecipeOptions recipe;
    GrowthGate gate;
    bool json = false;
  };
  const auto options = std::make_shared<AuditOptions>();
  CLI::App* parser = app.add_subcommand("audit", "regions, peak and slots of a recipe's plan or of a manifest");
  options->recipe.add_to(*parser);
  parser->get_option("RECIPE")->description("recipe file (JSON), or a manifest of `reprise plan`");
  options->recipe.add_schedule_to(*parser);
  options->recipe.add_profile_to(*parser, port);
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  CLI::Option* gate = parser->add_option("--gate", options->gate.baseline, "a manifest: exit status 3 where the plan has outgrown it");
  const CLI::Validator per_cent([](std::string& text) { return text.find('-') == std::string::npos ? "" : "must be a number of at least 0, not " + text; }, "");
  parser->add_option("--max-growth", options->gate.max_growth, "per cent of growth that the gate lets pass; default 0")->check(per_cent)->needs(gate);
  return {parser, [options] { return run_audit(options->recipe, options->gate, options->json); }};
}

}  // namespace reprise
