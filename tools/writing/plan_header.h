// Writes plan.h: the plan as constexpr tables that prove themselves when compiled.
// Here because the compiler is the last judge of a plan.
#pragma once

#include <string>
#include <vector>

#include "tools/planning/planner.h"

namespace reprise {

struct PlanHeaderParts {
  const OwnedPlan& plan;
  const BackendRules& rules;
  std::string recipe;   // the canonical one, which the compiled program reads back for its data
  std::string summary;
  std::vector<uint64_t> smaller_budgets = {};
  std::string space = "generated";  // its namespace within reprise
};
// How every header begins: what else is called plan.h is somebody's own.
constexpr const char* kPlanHeaderMark = "// Written by reprise plan";

// The whole text. The other plans of the program stand in namespaces of their own within the first one's, budget_1, budget_2, ...; the table
// kPlans has them all.
std::string plan_header(const PlanHeaderParts& first, const std::vector<PlanHeaderParts>& others = {});

// 64-bit FNV-1a of the tables, in hexadecimal: names a plan in manifests and logs.
std::string plan_hash(const OwnedPlan& plan);

}  // namespace reprise
