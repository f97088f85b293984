// The families by their words in a recipe, and a small model of each for people to start from.
// Here because a reference must show every family without knowing one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

std::vector<std::string> family_names();

// The "model" of a recipe, the family included. Throws UserError for a word that is none of family_names().
nlohmann::json model_example(const std::string& family);

}  // namespace reprise
