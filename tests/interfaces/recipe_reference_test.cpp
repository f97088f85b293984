// Tests the reference, the schema and the examples of recipes. They are compared with the reader,
// the committed page and the project's own recipes. `reprise recipe` and `reprise parameters` are
// run as programs. Without this test the page of keys would soon be wrong.
#include "tools/plan/recipes/recipe_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/programs/process.h"
#include "tools/files/formats/json_text.h"
#include "tools/plan/models/model_examples.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise::test {
namespace {

using nlohmann::json;

const std::filesystem::path kRecipes = std::filesystem::path(__FILE__).parent_path() / "../../tools/recipes";

std::vector<json> own_recipes() {
  std::vector<json> recipes;
  for (const auto& entry : std::filesystem::directory_iterator(kRecipes)) {
    if (entry.path().extension() != ".json") continue;
    json recipe = json::parse(file_text(entry.path().string()), nullptr, true, true);
    if (recipe["model"].contains("gguf")) {
      const std::filesystem::path model = kRecipes / recipe["model"]["gguf"].get<std::string>();
      if (!std::filesystem::exists(model)) continue;  // the Makefile could not fetch this model
      recipe["model"]["gguf"] = std::filesystem::weakly_canonical(model).string();
    }
    recipes.push_back(recipe);
  }
  for (const std::string& family : family_names())
    recipes.push_back(json::parse(example_recipe(family), nullptr, true, true));
  return recipes;
}

json::json_pointer pointer_of(const std::string& path) {
  std::string pointer = "/" + path;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return json::json_pointer(pointer);
}

const RecipeKey* find_key(const std::vector<RecipeKey>& keys, const std::string& path) {
  const auto key = std::find_if(keys.begin(), keys.end(), [&](const RecipeKey& known) { return known.path == path; });
  return key == keys.end() ? nullptr : &*key;
}

// Returns a recipe in which the key is allowed: it has the key's family or optimizer, the key's
// section, and the required keys of the model.
json recipe_with(const RecipeKey& key) {
  const std::string word = key.defaults.at(0).first, object = key.path.substr(0, key.path.rfind('.'));
  json recipe = {{"model", json::object()}, {"batch", 4}, {"steps", 100}};
  const std::vector<RecipeKey> keys = recipe_keys();
  const bool of_language = object == "lora" || object == "weights";
  const json model = model_example(object.starts_with("model") ? word
                                   : object == "loss"          ? "llama"
                                   : of_language               ? "gpt2"
                                                               : "resnet");
  for (const auto& [name, value] : model.items()) {
    if (find_key(keys, "model." + name)->required) recipe["model"][name] = value;
  }
  recipe["optimizer"] = {{"name", object == "optimizer" ? word : "adamw"}};
  recipe["lr_schedule"] = {{"kind", "constant"}};
  if (object == "schedule") recipe["schedule"] = json::object();
  if (of_language) recipe["lora"] = {{"r", 8}};
  if (object == "loss") recipe["loss"] = {{"kind", "dpo"}};
  if (object == "parallel") recipe["parallel"] = {{"ranks", 1}};
  if (object.substr(0, 4) == "data") recipe["data"] = {{"kind", "synthetic"}, {"augment", json::object()}};
  return recipe;
}

std::string canonical(const json& recipe) { return canonical_recipe(parse_recipe(recipe.dump(), "r.json", "/")); }

TEST(RecipeReference, TheCommittedPageIsWhatTheProgramPrints) {
  EXPECT_EQ(file_text((kRecipes / "REFERENCE.md").string()), recipe_reference())
      << "make it again: build/reprise recipe --reference >tools/recipes/REFERENCE.md";
}

TEST(RecipeReference, EveryKeyHasAMeaning) {
  for (const RecipeKey& key : recipe_keys()) {
    EXPECT_NE(key.text.meaning, "") << key.path << ": give its read a KeyText";
    EXPECT_NE(key.form.words, "") << key.path;
  }
}

// An unknown key is refused with a list of the allowed keys. The reference must contain each
// allowed key.
TEST(RecipeReference, EveryAllowedKeyIsInIt) {
  const std::vector<RecipeKey> keys = recipe_keys();
  const auto expect_allowed = [&](const json& base, const std::string& object) {
    json recipe = base;
    recipe[pointer_of(object.empty() ? "zzzzzzzz" : object + ".zzzzzzzz")] = 1;
    std::string line;
    try {
      canonical(recipe);
    } catch (const UserError& error) {
      line = error.what();
    }
    const size_t at = line.find("allowed here: ");
    ASSERT_NE(at, std::string::npos) << object << ": " << line;
    const std::regex word("\"([^\"]+)\"");
    int count = 0;
    for (std::sregex_iterator i(line.begin() + static_cast<long>(at), line.end(), word); i != std::sregex_iterator();
         ++i, ++count) {
      const std::string path = (object.empty() ? "" : object + ".") + (*i)[1].str();
      EXPECT_NE(find_key(keys, path), nullptr) << path << " is allowed and nobody reads it";
    }
    EXPECT_GE(count, 2) << line;
  };
  const json data = {{"kind", "synthetic"}, {"augment", json::object()}};
  json recipe = {{"model", model_example(family_names().at(0))},
                 {"batch", 1},
                 {"data", data},
                 {"lr_schedule", {{"kind", "constant"}}},
                 {"schedule", json::object()}};
  for (const char* object : {"", "model", "data", "data.augment", "lr_schedule", "schedule"})
    expect_allowed(recipe, object);
  for (const auto& entry : find_key(keys, "optimizer.name")->defaults) {
    recipe["optimizer"] = {{"name", entry.first}};
    expect_allowed(recipe, "optimizer");
  }
}

void expect_known(const std::vector<RecipeKey>& keys, const json& object, const std::string& path) {
  for (const auto& [key, value] : object.items()) {
    EXPECT_NE(find_key(keys, path + key), nullptr) << path << key << " is written and nobody reads it";
    if (value.is_object()) expect_known(keys, value, path + key + ".");
  }
}

TEST(RecipeReference, EveryKeyOfACanonicalRecipeIsInIt) {
  for (const json& recipe : own_recipes()) expect_known(recipe_keys(), json::parse(canonical(recipe)), "");
}

// A recipe with a key at the default that the reference shows must equal the recipe without the
// key.
TEST(RecipeReference, DefaultsAreTheReaders) {
  int tried = 0;
  for (const RecipeKey& key : recipe_keys()) {
    for (const auto& [word, value] : key.defaults) {
      if (value.is_null() || value == "" || key.required || !key.text.absent.empty()) continue;
      RecipeKey one = key;
      one.defaults = {{word, value}};
      json recipe = recipe_with(one);
      if (recipe.contains(pointer_of(key.path)))
        recipe[pointer_of(key.path).parent_pointer()].erase(pointer_of(key.path).back());
      const std::string without = canonical(recipe);
      recipe[pointer_of(key.path)] = value;
      EXPECT_EQ(canonical(recipe), without) << key.path << " " << value << " " << word;
      ++tried;
    }
  }
  EXPECT_GE(tried, 30);
}

// A number one below or one above the range that the reference shows must be refused, in the words
// of the reference.
TEST(RecipeReference, RangesAreTheReaders) {
  int tried = 0;
  for (const RecipeKey& key : recipe_keys()) {
    const json& schema = key.form.schema;
    if (schema.value("type", "") != "integer") continue;
    std::vector<json> wrong = {json(1.5), json("1")};
    if (schema.at("minimum") > 0) wrong.push_back(schema.at("minimum").get<uint64_t>() - 1);
    if (schema.at("maximum") < std::numeric_limits<uint64_t>::max())
      wrong.push_back(schema.at("maximum").get<uint64_t>() + 1);
    if (key.path == "sequence") continue;  // the model of the recipe reads images, not sequences
    for (const json& value : wrong) {
      json recipe = recipe_with(key);
      recipe[pointer_of(key.path)] = value;
      expect_user_error([&] { canonical(recipe); },
                        {"r.json: " + key.path, "must be " + key.form.words, "not " + value.dump()});
      ++tried;
    }
  }
  EXPECT_GE(tried, 40);
}

// Validates `value` against the part of JSON Schema that the recipe's schema uses.
bool is_valid(const json& value, const json& schema) {
  const std::string type = schema.value("type", "");
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum") && std::count(schema["enum"].begin(), schema["enum"].end(), value) == 0) return false;
  if (schema.contains("anyOf") &&
      std::none_of(schema["anyOf"].begin(), schema["anyOf"].end(), [&](const json& s) { return is_valid(value, s); })) {
    return false;
  }
  if (type == "integer" && !(value.is_number() && value.get<double>() == std::floor(value.get<double>()))) return false;
  if (type == "number" && !value.is_number()) return false;
  if (type == "boolean" && !value.is_boolean()) return false;
  if (type == "null" && !value.is_null()) return false;
  if (type == "string" && !value.is_string()) return false;
  if (type == "object" && !value.is_object()) return false;
  if (type == "array" && !value.is_array()) return false;
  if (value.is_number()) {
    if (schema.contains("minimum") && value < schema["minimum"]) return false;
    if (schema.contains("maximum") && value > schema["maximum"]) return false;
    if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) return false;
    if (schema.contains("exclusiveMaximum") && value >= schema["exclusiveMaximum"]) return false;
  }
  if (value.is_string() && schema.contains("pattern") &&
      !std::regex_match(value.get<std::string>(), std::regex(schema["pattern"].get<std::string>()))) {
    return false;
  }
  if (value.is_string() && value.get<std::string>().size() < schema.value("minLength", 0u)) return false;
  if (type == "array")
    return std::all_of(value.begin(), value.end(),
                       [&](const json& element) { return is_valid(element, schema["items"]); });
  if (type != "object") return true;
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return false;
  }
  for (const auto& [key, inner] : value.items()) {
    const json known = schema.value("properties", json::object());
    if (known.contains(key) ? !is_valid(inner, known[key]) : !schema.value("additionalProperties", true)) return false;
  }
  return true;
}

TEST(RecipeSchema, TheProjectsRecipesAreOfIt) {
  const json schema = recipe_schema();
  int count = 0;
  for (const json& recipe : own_recipes()) {
    EXPECT_TRUE(is_valid(recipe, schema)) << recipe.dump(1);
    EXPECT_TRUE(is_valid(json::parse(canonical(recipe)), schema) || recipe["schedule"] != "policy")
        << canonical(recipe);
    ++count;
  }
  EXPECT_GE(count, 4);
  EXPECT_TRUE(
      is_valid({{"model", {{"huggingface", "folder"}}}, {"batch", 1}, {"$schema", "recipe.schema.json"}}, schema));
}

TEST(RecipeSchema, WrongRecipesAreNot) {
  const json schema = recipe_schema();
  json recipe = recipe_with(recipe_keys().at(0));
  ASSERT_TRUE(is_valid(recipe, schema)) << recipe;
  const std::pair<const char*, json> wrong[] = {{"batchs", 1},
                                                {"batch", 0},
                                                {"batch", 1.5},
                                                {"dtype", "f16"},
                                                {"optimizer.name", "adam"},
                                                {"optimizer.momentum", 0.9},
                                                {"optimizer.eps", 0},
                                                {"optimizer.betas", "x"},
                                                {"model.family", "vgg"},
                                                {"lr_schedule.kind", "linear"},
                                                {"schedule", "optimum"},
                                                {"schedule.stratgy", "none"},
                                                {"budget", "7XB"},
                                                {"budget", 0},
                                                {"budgets", "7GiB"},
                                                {"budgets", {1, "7XB"}},
                                                {"freeze", "conv1"},
                                                {"clip_norm", 0},
                                                {"seed", -1},
                                                {"lora", 1},
                                                {"data.kind", "idx2"},
                                                {"model.huggingface", ""}};
  for (const auto& [path, value] : wrong) {
    json changed = recipe;
    changed[pointer_of(path)] = value;
    EXPECT_FALSE(is_valid(changed, schema)) << path << " " << value;
  }
  recipe.erase("batch");
  EXPECT_FALSE(is_valid(recipe, schema));
}

class RecipeCommand : public ::testing::Test {
 protected:
  std::string output_of(const std::vector<std::string>& arguments) {
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return result.out;
  }
  void expect_refusal(const std::vector<std::string>& arguments, int status,
                      const std::vector<std::string>& fragments) {
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.is_one_line_with(fragments)) << result.err;
  }

  TemporaryFolder folder_;
};

TEST_F(RecipeCommand, PrintsReferenceAndSchema) {
  EXPECT_EQ(output_of({"recipe", "--reference"}), recipe_reference());
  EXPECT_EQ(json::parse(output_of({"recipe", "--schema"})), recipe_schema());
  expect_refusal({"recipe"}, 2, {"recipe"});
  expect_refusal({"recipe", "--reference", "--schema"}, 2, {"recipe"});
}

TEST_F(RecipeCommand, EveryExamplePlans) {
  for (const std::string& family : family_names()) {
    SCOPED_TRACE(family);
    const std::string text = output_of({"recipe", "--example", family}), file = folder_.file(family + ".json");
    EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 60) << text;
    write_text(file, text);
    const ProcessResult plan = reprise_command({"plan", file, "-o", folder_.file(family)});
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_EQ(json::parse(file_text(folder_.file(family) + "/manifest.json"))["recipe"]["model"]["family"], family);
  }
  expect_refusal({"recipe", "--example", "vgg"}, 1, {"vgg", family_names().at(0)});
}

TEST_F(RecipeCommand, Checks) {
  const std::string file = folder_.file("r.json");
  write_text(file, R"({"model": {"family": "resnet", "image": [28, 28, 1]}, "batch": 4, "freeze": ["layer1.*"]})");
  const std::string line = output_of({"recipe", "--check", file});
  EXPECT_EQ(line.find(file + ": is a recipe of a resnet"), 0u) << line;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  write_text(file, R"({"model": {"family": "resnet", "image": [28, 28, 1]}, "batch": 4, "freeze": ["layer9.*"]})");
  expect_refusal({"recipe", "--check", file}, 1,
                 {"r.json: freeze[0]: ", "layer9.*", "reprise parameters", "(line 1, column "});
  const auto with_init = [&](const std::string& init) {
    write_text(file, R"({"model": {"family": "resnet", "image": [28, 28, 1]}, "batch": 4, "init": )" + init + "}");
  };
  with_init(R"({"from": "absent.safetensors"})");
  expect_refusal({"recipe", "--check", file}, 1,
                 {"r.json: init.from: " + folder_.file("absent.safetensors"), "cannot be opened", "(line 1, column "});
  with_init(R"({"from": "r.json"})");
  expect_refusal({"recipe", "--check", file}, 1, {"r.json: init.from: ", "header", "(line 1, column "});
  with_init(R"({"from": "r.json", "skip": ["fc.*", "head.*"]})");
  expect_refusal({"recipe", "--check", file}, 1,
                 {"r.json: init.skip[1]: ", "head.*", "matches no tensor", "(line 1, column "});
  write_text(file, "{\"model\": {\"family\": \"resnet\", \"image\": [28, 28, 1]},\n \"batch\": 4.5}");
  expect_refusal({"recipe", "--check", file}, 1, {"r.json: batch", "4.5", "(line 2, column 11)"});
  expect_refusal({"recipe", "--check", folder_.file("absent.json")}, 1, {"absent.json"});
}

TEST_F(RecipeCommand, ParametersAreWhatFreezeAndNoDecayName) {
  const std::string file = folder_.file("r.json");
  write_text(
      file,
      R"({"model": {"family": "resnet", "units": [1, 1, 1], "width": 8, "image": [28, 28, 1]}, "batch": 4, "freeze": ["layer1.*"],
    "optimizer": {"name": "sgd", "weight_decay": 0.1, "no_decay": ["*.bias"]}})");
  const json answer = json::parse(output_of({"parameters", file, "--json"}));
  uint64_t elements = 0, trained = 0;
  for (const json& parameter : answer["parameters"]) {
    const std::string name = parameter["name"];
    const bool frozen = name.find("layer1.") == 0;
    EXPECT_EQ(parameter["trains"], !frozen) << name;
    EXPECT_EQ(parameter["decays"], !frozen && name.find(".bias") == std::string::npos) << name;
    uint64_t product = 1;
    for (const json& side : parameter["shape"]) product *= side.get<uint64_t>();
    EXPECT_EQ(parameter["elements"], product) << name;
    elements += product;
    trained += frozen ? 0 : product;
  }
  EXPECT_EQ(answer["elements"], elements);
  EXPECT_EQ(answer["trained_elements"], trained);
  EXPECT_EQ(answer["parameters"][0]["name"], "conv1.weight");
  EXPECT_EQ(answer["parameters"][0]["shape"], json({8, 1, 3, 3})) << "as files store it";
  const std::string text = output_of({"parameters", file});
  for (const char* fragment : {"name", "layer1.0.conv1.weight", "[8,1,3,3]", "yes", "no", "fc.bias"})
    EXPECT_NE(text.find(fragment), std::string::npos) << text;
}

}  // namespace
}  // namespace reprise::test
