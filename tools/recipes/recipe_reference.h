// Every key of a recipe for people and for editors: the reference page, the JSON schema, and examples to start from.
// Here because they are made of the reads of the recipe's own reader, so that a page and the program cannot part.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/formats/key_notes.h"

namespace reprise {

struct RecipeKey {
  std::string path;  // "optimizer.lr"
  ValueForm form;
  KeyText text;
  bool required;
  // The families, or the optimizers, that have the key, and its default with each; one entry, unnamed, where this does not matter.
  std::vector<std::pair<std::string, nlohmann::json>> defaults;
};

// In the order in which the reader asks for them.
std::vector<RecipeKey> recipe_keys();

// What `reprise recipe --reference` prints, and tools/recipes/REFERENCE.md holds: Markdown, lines of at most 118 characters.
std::string recipe_reference();

// JSON Schema, draft 7.
nlohmann::json recipe_schema();

// A recipe of this family with a comment above each key. Throws UserError for a family that is none.
std::string example_recipe(const std::string& family);

}  // namespace reprise
