// The dispatch of models.h: one table row for each family of the variant, made by the compiler.
#include "tools/models/models.h"

#include <array>
#include <filesystem>

#include "tools/formats/error.h"
#include "tools/formats/json_fields.h"
#include "tools/formats/json_text.h"
#include "tools/formats/output_file.h"
#include "tools/models/model_examples.h"

namespace reprise {
namespace {

using nlohmann::json;

struct Family {
  const char* name;
  HuggingFaceNames huggingface;
  Model (*read)(const JsonFields&);
  json (*example)();
};

template <typename... F>
constexpr std::array<Family, sizeof...(F)> families_of(const std::variant<F...>*) {
  return {Family{F::kFamily, F::kHuggingFace, [](const JsonFields& fields) -> Model { return F::read(fields); }, [] { return F::example(); }}...};
}
constexpr auto kFamilies = families_of(static_cast<const Model*>(nullptr));

Model read_huggingface(const JsonFields& fields, const std::string& model_folder) {
  fields.allow_only({"huggingface"});
  const std::string file = model_folder + "/config.json";
  if (!std::filesystem::is_regular_file(file)) fields.refuse("huggingface", "must be a folder with a config.json; there is no " + file);
  const std::string text = read_file(file);
  const json config = parse_json(text, file);
  const JsonFields config_fields(config, {file, &text}, "");
  std::string type;
  config_fields.read("model_type", type);
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.huggingface.model_type == nullptr) continue;
    if (type == family.huggingface.model_type) return family.read(config_fields);
    known.emplace_back(family.huggingface.model_type);
  }
  config_fields.refuse("model_type", "must be " + either_of(known) + (known.size() == 1 ? ", the one available" : "") + ", not " + json_shown(type));
}

Model read_family(const JsonFields& fields) {
  fields.require("family", "give " + either_of(family_names()) + " (or \"huggingface\": FOLDER)");
  std::string name;
  fields.read("family", name, {"The kind of network, with names and shapes as in torchvision and Hugging Face", "", "", family_names()});
  for (const Family& family : kFamilies) {
    if (name == family.name) return family.read(fields);
  }
  fields.refuse("family", json_shown(name) + " is not available (yet); available are " + quoted_list(family_names()));
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

json model_example(const std::string& family_name) {
  for (const Family& family : kFamilies) {
    if (family_name != family.name) continue;
    json example = family.example();
    example["family"] = family.name;
    return example;
  }
  throw UserError(json_shown(family_name) + " is no family of models; give " + either_of(family_names()));
}

Model read_model(const JsonFields& fields, const std::string& recipe_folder, std::string& huggingface_folder) {
  if (fields.has("family") || !fields.has("huggingface")) {
    const Model model = read_family(fields);
    // A canonical recipe says where its config was.
    fields.read_path("huggingface", recipe_folder, huggingface_folder,
                     {"A folder whose config.json gives the model, in place of a family and its fields; training starts from its "
                      "model.safetensors where it is there", "", "none"});
    return model;
  }
  fields.read_path("huggingface", recipe_folder, huggingface_folder);
  return read_huggingface(fields, huggingface_folder);
}

json model_json(const Model& model) {
  return std::visit(
      [](const auto& family) {
        json value = family.write();
        value["family"] = family.kFamily;
        return value;
      },
      model);
}

json model_config(const Model& model) {
  return std::visit(
      [](const auto& family) {
        json value = family.write();
        if (family.kHuggingFace.model_type == nullptr) {
          value["family"] = family.kFamily;
        } else {
          value["model_type"] = family.kHuggingFace.model_type;
          value["architectures"] = json::array({family.kHuggingFace.architecture});
        }
        return value;
      },
      model);
}

ModelDescription describe_model(const Model& model) {
  return std::visit([](const auto& family) { return family.describe(); }, model);
}

void check_model(const Model& model, const RecipeRules& rules, MicroBatch batch) {
  std::visit([&](const auto& family) { family.check(rules, batch); }, model);
}

void build_model(const Model& model, Graph& graph, MicroBatch batch) {
  std::visit([&](const auto& family) { family.build(graph, batch); }, model);
}

void RecipeRules::require(bool condition, const std::string& field, const std::string& reason) const {
  if (condition) return;
  if (const auto option = options.find(field); option != options.end()) throw UserError(option->second + ": " + reason);
  throw UserError(file + ": " + field + ": " + reason + place_of(text, field));
}

void RecipeRules::require_elements(double elements, const std::string& field, const std::string& tensor) const {
  constexpr double kMostElements = 1099511627776.0;  // 2^40
  require(elements <= kMostElements, field, "too large: " + tensor + " would have more than 2^40 elements");
}

}  // namespace reprise
