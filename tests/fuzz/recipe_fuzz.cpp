// Fuzzes the reader of recipes. An accepted recipe that is written in canonical form and read again
// must be equal. Users type recipes by hand.
#include "tests/fuzz/fuzz.h"
#include "tools/plan/recipes/recipe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const Recipe recipe = parse_recipe(text, "recipe.json", "/nowhere");
    fuzz::require(parse_recipe(canonical_recipe(recipe), "canonical", "/") == recipe,
                  "the canonical recipe is the recipe");
  });
  return 0;
}
