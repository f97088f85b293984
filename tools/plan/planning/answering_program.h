// Adds the program that generates text to a plan that trains. The program uses the plan's weights,
// and has one sequence, and caches of keys and values. It must not make the arena larger, so that
// generating takes no more memory than a step of training.
#pragma once

#include "lib/backend_rules.h"
#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/lowering/weight_window.h"

namespace reprise {

// Adds the program to a plan that has all other programs. Returns the number of positions of its
// caches; 0 if there is no program. `network`: the plan's model for one sequence, with as many
// tokens as are processed at once; its parameters and buffers have the plan's names. `window`: the
// plan's streamed weights.
// The caches have `max_positions` positions, or as many as fit next to State and Carried in the
// plan's arena. The plan does not change if these are fewer than the tokens processed at once. It
// also does not change if the network has no caches, adds learned positions to its tokens (GPT-2),
// or sees ahead.
uint64_t add_generation(OwnedPlan& plan, const Graph& network, const BackendRules& rules, const WeightWindow& window,
                        uint64_t max_positions);

}  // namespace reprise
