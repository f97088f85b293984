// The list of backends. It includes only their rules, so that a plan for a device needs no device.
#include "tools/plan/costs/backends.h"

#include <algorithm>

#include "cuda/cuda_rules.h"
#include "lib/cpu/cpu_rules.h"

namespace reprise {

const BackendRules& backend_of(const Recipe& recipe) {
  if (recipe.backend != Recipe::BackendChoice::kCuda)
    return cpu_rules_of(recipe.core == Recipe::CoreSize::kSmall ? CpuSize::kSmall : CpuSize::kLarge);
  const CardSize size = recipe.card == Recipe::CardSize::kLarge ? CardSize::kLarge : CardSize::kSmall;
  switch (recipe.math) {
    case Recipe::Math::kTf32: return cuda_rules_of(size, ProductMath::kTf32);
    case Recipe::Math::kBf16x3: return cuda_rules_of(size, ProductMath::kBf16x3);
    default: return cuda_rules_of(size);
  }
}

const std::vector<const BackendRules*>& all_backends() {
  static const std::vector<const BackendRules*> kAll = {&kCpuRules, &kCudaRules, &kCudaLargeRules, &kCpuSmallRules};
  return kAll;
}

std::vector<std::string> missing_kernels(const BackendRules& rules, const OwnedPlan& plan) {
  std::vector<std::string> names;
  for (uint32_t kernel = 0; kernel < kKernelCount; ++kernel) {
    if (rules.kernels[kernel].exists || kOps[kernel].asynchronous()) continue;
    const auto calls = [kernel](const Row& row) { return kernel_index(row.op, row.pass) == kernel; };
    const auto has = [&calls](const OwnedProgram& program) {
      return std::any_of(program.rows.begin(), program.rows.end(), calls);
    };
    if (std::any_of(std::begin(plan.programs), std::end(plan.programs), has)) names.push_back(kOps[kernel].name);
  }
  return names;
}

}  // namespace reprise
