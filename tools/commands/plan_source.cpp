// The source of plan_source.h.
#include "tools/commands/plan_source.h"

#include "tools/audit/manifest.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/planning/does_not_fit.h"

namespace reprise {

PlanSource open_plan(const RecipeOptions& options) {
  PlanSource source;
  if (is_manifest(nlohmann::json::parse(read_file(options.recipe), nullptr, false))) {
    const std::string unheeded = options.first_given();
    if (!unheeded.empty()) {
      throw UserError(options.recipe + ": " + unheeded + ": has no effect on a manifest, which is of a plan that is made; give the recipe", UserError::kUsage);
    }
    source.manifest = read_manifest(options.recipe);
    return source;
  }
  source.model = options.solve();
  const ScheduleRequest request = request_of(*source.model);
  source.planned = plan_model(*source.model, request);
  if (!source.planned->fits) throw UserError(does_not_fit_message(*source.model, *source.planned, request), UserError::kDoesNotFit);
  source.manifest = manifest_of(*source.model, *source.planned);
  return source;
}

}  // namespace reprise
