// Fuzzes the config.json of a Hugging Face model, which a recipe names by its "huggingface" folder.
// The file comes from the internet, and its numbers become shapes.
#include "tests/fuzz/fuzz.h"
#include "tools/plan/recipes/recipe.h"

namespace {

struct Files {
  reprise::fuzz::MemoryFile config;
  reprise::fuzz::MemoryFolder folder;
  Files() { folder.add("config.json", config); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const Files files;
  static const std::string text = R"({"model": {"huggingface": ")" + files.folder.path() + R"("}, "batch": 1})";
  files.config.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const Recipe recipe = parse_recipe(text, "recipe.json", "/");
    fuzz::require(parse_recipe(canonical_recipe(recipe), "canonical", "/") == recipe,
                  "the canonical recipe is the recipe");
  });
  return 0;
}
