// Writes plan.h: the plan as constexpr tables that prove themselves when compiled.
// Here because the compiler is the last judge of a plan.
#pragma once

#include <string>

#include "tools/planning/planner.h"

namespace reprise {

// The whole text. `recipe` is the canonical recipe, which the compiled program reads back for its data.
std::string plan_header(const OwnedPlan& plan, const BackendRules& rules, const std::string& recipe, const std::string& summary);

// 64-bit FNV-1a of the tables, in hexadecimal: names a plan in manifests and logs.
std::string plan_hash(const OwnedPlan& plan);

}  // namespace reprise
