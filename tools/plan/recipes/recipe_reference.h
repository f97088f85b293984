// Lists every key of a recipe for people and for editors: the reference page, the JSON schema, and
// examples to start from. They are made of the keys that the recipe's own reader asks for, so that
// they agree with the program.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/files/formats/key_notes.h"

namespace reprise {

struct RecipeKey {
  std::string path;  // path in the recipe, for example "optimizer.lr"
  ValueForm form;
  KeyText text;
  bool required;
  // (family or optimizer, default): one entry for each that has the key. One entry with an empty
  // name if the key does not depend on them.
  std::vector<std::pair<std::string, nlohmann::json>> defaults;
};

// Returns the keys in the order in which the reader asks for them.
std::vector<RecipeKey> recipe_keys();

// Returns the page of `reprise recipe --reference` and tools/recipes/REFERENCE.md: Markdown with
// lines of at most 118 characters.
std::string recipe_reference();

// Returns a JSON Schema, draft 7.
nlohmann::json recipe_schema();

// Returns a recipe of this family with a comment above each key. Throws UserError for an unknown
// family.
std::string example_recipe(const std::string& family);

}  // namespace reprise
