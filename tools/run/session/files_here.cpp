// See files_here.h.
#include "tools/run/session/files_here.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/weights/gguf_weights.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

bool is_here(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Returns the path of a file with the same name next to the program or in the working folder; "" if
// there is none.
std::string here_instead(const std::string& path, const std::string& folder) {
  fs::path name = fs::path(path).filename();
  if (name.empty()) name = fs::path(path).parent_path().filename();  // for a path such as "pictures/"
  for (const fs::path& place : {fs::path(folder), fs::current_path()}) {
    if (!name.empty() && is_here(place / name)) return (place / name).string();
  }
  return "";
}

// Replaces the model's path in the recipe. The key depends on the format: "gguf" for a GGUF file,
// "huggingface" for a folder. In a recipe that imports no model, replaces init.from. Throws
// UserError if the recipe has neither.
void give_model(json& recipe, const std::string& path, const std::string& name) {
  json& model = recipe["model"];
  if (model.contains("huggingface") || model.contains("gguf")) {
    model.erase("huggingface");
    model.erase("gguf");
    model[is_gguf(path) ? "gguf" : "huggingface"] = path;
  } else if (recipe.contains(json::json_pointer("/init/from"))) {
    recipe["init"]["from"] = path;
  } else {
    throw UserError("--model: the recipe of " + name + " names no file of a model's; --init FILE starts from weights",
                    UserError::kUsage);
  }
}

}  // namespace

std::string recipe_with_files_here(const std::string& text, const std::string& name, const ProgramOptions& options,
                                   const std::string& folder, std::vector<std::string>& said) {
  json recipe = json::parse(text);
  const auto absolute = [](const std::string& path) { return fs::absolute(path).lexically_normal().string(); };
  if (!options.model.empty()) give_model(recipe, absolute(options.model), name);
  const struct {
    const char* option;
    const std::string& given;
    const char* key;
  } paths[] = {{"--data", options.data, "path"},
               {"--eval-data", options.eval_data, "eval_path"},
               {"--tokenizer", options.tokenizer, "tokenizer"}};
  for (const auto& [option, given, key] : paths) {
    if (given.empty()) continue;
    if (!recipe["data"].contains(key))
      throw UserError(std::string(option) + ": the recipe of " + name + " has no data." + key +
                          " that it could stand for",
                      UserError::kUsage);
    recipe["data"][key] = absolute(given);
  }
  const bool reads_data = options.trains() || options.evaluate || options.check_data;
  for (const NamedFile& file : named_files(parse_recipe(recipe.dump(), name, "/"))) {
    if (is_here(file.path)) continue;
    const std::string instead = here_instead(file.path, folder);
    if (!instead.empty()) {
      json::json_pointer key("/" + file.key.substr(0, file.key.find('.')) + "/" +
                             file.key.substr(file.key.find('.') + 1));
      recipe[key] = instead;
      said.push_back(file.key + ": " + instead + ", because " + file.path + " is not here");
    } else if (reads_data && (file.option == "--data" || file.option == "--eval-data") &&
               !is_here(fs::path(file.path).parent_path())) {
      throw UserError(name + ": " + file.key + ": " + file.path +
                      " is not here, and nothing of that name is beside the program or in the working folder; " +
                      file.option + " PATH says where it is");
    }
  }
  return recipe.dump();
}

}  // namespace reprise
