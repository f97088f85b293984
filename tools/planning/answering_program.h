// The program that generates, beside those that train: the same weights, one sequence, caches of keys and values.
// Here because it may not make the arena larger: an answer takes no more memory than a step.
#pragma once

#include "lib/backend_rules.h"
#include "tools/lowering/owned_plan.h"
#include "tools/lowering/weight_window.h"

namespace reprise {

// Adds the program to a plan that has all the others. `network`: the plan's model for one sequence of as many tokens as are put in at
// once, whose parameters and buffers have the names of the plan's. The caches have room for `most_positions`, or for as many as fit
// beside State and Carried in the arena that the plan has; where not even the tokens put in at once fit, or the network adds learned
// positions to its tokens (GPT-2) or sees ahead, the plan stays as it is. Answers the positions; 0 for no program. `window`: the plan's streamed
// weights.
uint64_t add_generation(OwnedPlan& plan, const Graph& network, const BackendRules& rules, const WeightWindow& window, uint64_t most_positions);

}  // namespace reprise
