// See model_argument.h. A JSON file is read as a recipe if its "model" names files or a family.
#include "tools/run/commands/model_argument.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/gguf_weights.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {
namespace {

bool is_recipe(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored) || is_gguf(path)) return false;
  const nlohmann::json value = json_or_discarded(read_file(path), JsonComments::kAllowed);
  if (!value.is_object() || !value.contains("model") || !value["model"].is_object()) return false;
  const nlohmann::json& model = value["model"];
  return model.contains("huggingface") || model.contains("gguf") || model.contains("graph") || model.contains("family");
}

ModelFiles model_of_recipe(const std::string& path, const Recipe& recipe) {
  if (recipe.place.path().empty())
    throw UserError(path +
                    ": model: names no files, so it has no tokenizer; give \"huggingface\" or \"gguf\", or of a net of "
                    "texts data.tokenizer");
  return ModelFiles::open(recipe.place);
}

}  // namespace

ModelFiles model_of_argument(const std::string& path, ChatSettings* settings) {
  if (!is_recipe(path)) return ModelFiles::open(path);
  const Recipe recipe = read_recipe(path);
  if (settings != nullptr) *settings = recipe.data.chat;
  return model_of_recipe(path, recipe);
}

TokenizerFile tokenizer_of_argument(const std::string& path) {
  if (!is_recipe(path)) return read_tokenizer(path);
  const Recipe recipe = read_recipe(path);
  return recipe.data.tokenizer.empty() ? model_of_recipe(path, recipe).tokenizer()
                                       : read_tokenizer(recipe.data.tokenizer);
}

}  // namespace reprise
