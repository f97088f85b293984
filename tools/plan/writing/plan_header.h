// Writes plan.h: the plan as constexpr tables, and a proof that the compiler checks.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/planning/planner.h"

namespace reprise {

struct PlanHeaderParts {
  const OwnedPlan& plan;
  const BackendRules& rules;
  std::string recipe;   // canonical form, which the compiled program reads for its data
  std::string summary;
  std::vector<uint64_t> smaller_budgets = {};
  std::string space = "generated";  // namespace within reprise
};
// First line of every header. A plan.h without this line was not written by `reprise plan`, and is
// not overwritten.
constexpr const char* kPlanHeaderMark = "// Written by reprise plan";

// Returns the complete text of plan.h. The program's other plans are in the namespaces budget_1,
// budget_2, ... inside the first plan's namespace. The table kPlans lists all plans.
std::string plan_header(const PlanHeaderParts& first, const std::vector<PlanHeaderParts>& others = {});

// Returns the 64-bit FNV-1a hash of the tables, in hexadecimal, by which manifests and logs name a
// plan.
std::string plan_hash(const OwnedPlan& plan);

}  // namespace reprise
