// How far a budget goes by how a model is stored: a part of `reprise fit --table`.
// Here because the longest sequence that a board trains depends more on formats, states and streaming than on any schedule, and a person who asks
// for one plan at a time does not see it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/recipes/recipe.h"

namespace reprise {

// For each way to store the frozen weights (as the recipe says, and in 8 and 4 bits), the optimizer's states (f32 and 8 bits) and the weights' place
// (memory, or streamed where that pays) that the recipe's kind of training has:
//   [{"frozen", "states", "stream", "sequence", "batch", "smallest_budget"}]
// `sequence`: the longest that fits the recipe's budget in a batch of one, a multiple of 64 or all that the model takes; null of images. `batch`:
// the largest at the recipe's own sequence. Either is 0 where nothing fits. `smallest_budget`: of a batch of one, of 64 tokens where the model takes
// as many; null where the model does not have the choice.
nlohmann::json storage_choices(const Recipe& recipe);

// The same for people; "" where there is nothing to choose.
std::string storage_choices_text(const nlohmann::json& choices, int sequence);

// Of several models in one table, for people: [{"model", "reason", "sequence", "storage"}], where `reason` says why none of its choices is there or
// fits, else null, and `sequence` is the recipe's for this model.
std::string models_text(const nlohmann::json& models);

}  // namespace reprise
