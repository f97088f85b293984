// See smaller_plans.h.
#include "tools/run/session/smaller_plans.h"

#include <algorithm>
#include <vector>

#include "tools/files/io/text.h"

namespace reprise {
namespace {

struct Smaller {
  uint64_t bytes;
  std::string words;
};

// Returns the plans that need less memory than plan `number`, largest first.
std::vector<Smaller> smaller_plans(const CompiledPlan& compiled, uint32_t number) {
  std::vector<Smaller> plans;
  const uint64_t maximum = plan_at(compiled, number).plan.arena_bytes;
  for (uint32_t n = 0; n < compiled.plans.count; ++n) {
    const WrittenPlan& written = compiled.plans[n];
    const uint64_t bytes = written.plan->arena_bytes;
    if (bytes < maximum)
      plans.push_back({bytes, "--start-budget " + std::to_string(n) + " (" + bytes_text(bytes) + ")"});
    for (const uint64_t budget : written.smaller_budgets) {
      if (budget < maximum) plans.push_back({budget, "a plan for the budget " + bytes_text(budget)});
    }
  }
  std::stable_sort(plans.begin(), plans.end(), [](const Smaller& a, const Smaller& b) { return a.bytes > b.bytes; });
  return plans;
}

}  // namespace

std::string smaller_that_fit(const CompiledPlan& compiled, uint32_t number,
                             const std::function<bool(uint64_t bytes)>& has_space) {
  const std::vector<Smaller> plans = smaller_plans(compiled, number);
  if (plans.empty()) return "";
  for (const Smaller& each : plans) {
    if (has_space(each.bytes)) return "; " + each.words + " would fit";
  }
  std::string words;
  for (const Smaller& each : plans) words += (words.empty() ? "" : ", nor ") + each.words;
  return "; nor would " + words + " fit";
}

}  // namespace reprise
