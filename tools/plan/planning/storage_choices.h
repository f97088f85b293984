// Shows what a budget allows for each way to store a model: a part of `reprise fit --table`. The
// longest sequence that a board trains depends more on formats, states and streaming than on any
// schedule. Single plans do not show it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/plan/costs/step_times.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Returns a row for each way of storage that the recipe's kind of training has: frozen weights as
// the recipe states, and in 8 and 4 bits; the optimizer's states in f32 and 8 bits; weights in
// memory, or streamed if that pays.
//   [{"frozen", "states", "stream", "sequence", "batch", "smallest_budget", "planned_bytes",
//     "extra_forward_cost", "stall_share", "work", "seconds"}]
// `sequence`: the longest that fits the recipe's budget in a batch of one, a multiple of 64 or the
// model's maximum; null for images. `batch`: the largest at the recipe's own sequence. Each of the
// two is 0 if nothing fits. `smallest_budget`: for a batch of one with 64 tokens, or with the
// model's maximum if that is smaller; null if unknown, or if the model does not have the choice.
// The last five keys describe the plan at the recipe's own batch and sequence; they are null if
// that plan does not fit.
nlohmann::json storage_choices(const Recipe& recipe, const StepTimes& times);

// True if the optimizer keeps moments whose type "states" chooses.
bool keeps_moments_in_any_type(const OptimizerRecipe& optimizer);

// Returns one line on what "stream": "auto" would improve, from storage_choices(); "" if nothing.
std::string streaming_text(const nlohmann::json& choices);

// Returns the choices as text; "" if there is nothing to choose.
std::string storage_choices_text(const nlohmann::json& choices, int sequence);

// Returns a table of several models as text: [{"model", "reason", "sequence", "storage"}]. `reason`
// states why no choice of the model is listed or fits; null if one does. `sequence` is the sequence
// of the model's recipe.
std::string models_text(const nlohmann::json& models);

}  // namespace reprise
