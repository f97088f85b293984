// The one list of backends. It includes their rules and nothing else of them, so that a plan for a device is made where there is none.
#include "tools/planning/backends.h"

#include "cuda/cuda_rules.h"
#include "lib/cpu/cpu_rules.h"

namespace reprise {

const BackendRules& backend_of(const Recipe& recipe) {
  return recipe.backend == Recipe::BackendChoice::kCuda ? kCudaRules : kCpuRules;
}

}  // namespace reprise
