// The names of the families in a recipe, and a small example of each. With them a reference page
// can show every family without including its header.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

std::vector<std::string> family_names();

// Returns the "model" of an example recipe, its family included. Throws UserError if the word is
// none of family_names().
nlohmann::json model_example(const std::string& family);

}  // namespace reprise
