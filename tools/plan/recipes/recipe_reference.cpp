// See recipe_reference.h. The keys are found by reading small recipes while the reader notes each
// key. The page, the schema and the examples are made of these notes.
#include "tools/plan/recipes/recipe_reference.h"

#include <algorithm>
#include <set>

#include "tools/files/formats/json_text.h"
#include "tools/plan/models/model_examples.h"
#include "tools/plan/recipes/sections.h"

namespace reprise {
namespace {

using nlohmann::json;

// An object in which the value of one key decides which keys are possible, in this object and in
// the objects within it.
struct Discriminator {
  const char* object;
  const char* key;
  std::vector<std::string> (*words)();
};
constexpr Discriminator kDiscriminators[] = {{"model", "family", family_names}, {"optimizer", "name", optimizer_names}};

const Discriminator* discriminator_of(const std::string& object) {
  for (const Discriminator& discriminator : kDiscriminators) {
    if (object == discriminator.object || object.starts_with(std::string(discriminator.object) + "."))
      return &discriminator;
  }
  return nullptr;
}

std::string object_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// A path without '.' is returned whole, because npos + 1 is 0.
std::string key_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

struct Keys {
  std::vector<RecipeKey> keys;
  // Pairs of an object and a value of its discriminator with which the reader refuses unknown keys
  // of the object.
  std::set<std::pair<std::string, std::string>> closed;

  void add(const KeyNotes& notes, const json& recipe);
};

// Adds the keys that one recipe's reader asked for.
void Keys::add(const KeyNotes& notes, const json& recipe) {
  const auto word_of_object = [&](const std::string& object) {
    const Discriminator* discriminator = discriminator_of(object);
    return discriminator == nullptr ? std::string()
                                    : recipe.at(discriminator->object).at(discriminator->key).get<std::string>();
  };
  for (const auto& [object, allowed] : notes.allowed) closed.emplace(object, word_of_object(object));
  for (const KeyNote& note : notes.keys) {
    const std::string object = object_of(note.path), word = word_of_object(object);
    const auto allowed = notes.allowed.find(object);
    if (allowed != notes.allowed.end() &&
        std::count(allowed->second.begin(), allowed->second.end(), key_of(note.path)) == 0)
      continue;
    auto key = std::find_if(keys.begin(), keys.end(), [&](const RecipeKey& known) { return known.path == note.path; });
    if (key == keys.end())
      key = keys.insert(key, {note.path, note.form, note.text, notes.required.count(note.path) > 0, {}});
    const bool known =
        std::any_of(key->defaults.begin(), key->defaults.end(), [&](const auto& entry) { return entry.first == word; });
    if (!known) key->defaults.emplace_back(word, note.default_value);
  }
}

Keys find_keys() {
  Keys keys;
  for (const std::string& family : family_names()) {
    for (const std::string& optimizer : optimizer_names()) {
      const json written = {{"model", model_example(family)},      {"batch", 1},
                            {"optimizer", {{"name", optimizer}}},  {"lr_schedule", {{"kind", "constant"}}},
                            {"schedule", json::object()},          {"init", json::object()},
                            {"lora", {{"r", 8}}},                  {"weights", json::object()},
                            {"loss", {{"kind", "dpo"}}},
                            {"early_stopping", {{"patience", 1}}},
                            {"parallel", {{"ranks", 1}}},
                            {"trained", json::object()},
                            {"data", {{"kind", "synthetic"}, {"augment", json::object()}}}};
      KeyNotes notes;
      read_fields(JsonFields(written, {.file = "recipe", .text = nullptr, .notes = &notes}, ""), "recipe", "");
      keys.add(notes, written);
    }
  }
  return keys;
}

// ---- the page

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<std::string> words_with(const RecipeKey& key, const json& value) {
  std::vector<std::string> words;
  for (const auto& [word, with] : key.defaults) {
    if (with == value) words.push_back(word);
  }
  return words;
}

std::string default_text(const RecipeKey& key) {
  if (key.required) return "required";
  if (!key.text.absent.empty()) return (key.text.absent.find("required") == 0 ? "" : "default: ") + key.text.absent;
  std::string text;
  std::vector<json> values;
  for (const auto& [word, value] : key.defaults) {
    if (std::count(values.begin(), values.end(), value) > 0) continue;
    values.push_back(value);
    const std::vector<std::string> words = words_with(key, value);
    const bool none = value.is_null() || value == "";
    text += (text.empty() ? "default: " : "; ") + (none ? "none" : "`" + value.dump() + "`");
    if (words.size() < key.defaults.size()) text += " for " + list_of(words);
  }
  return text;
}

// Returns the values of the discriminator with which the key is possible, as text; "" if the key is
// possible with all of them.
std::string of_which(const RecipeKey& key) {
  const Discriminator* discriminator = discriminator_of(object_of(key.path));
  if (discriminator == nullptr || key.defaults.size() == discriminator->words().size()) return "";
  std::vector<std::string> words;
  for (const auto& entry : key.defaults) words.push_back(entry.first);
  return " (" + list_of(words) + ")";
}

std::string wrapped(const std::string& text, const std::string& first, const std::string& next) {
  constexpr size_t kWidest = 118;
  std::string lines, line = first;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    const bool empty = line == first || line == next;
    if (!empty && line.size() + 1 + word.size() > kWidest) {
      lines += line + "\n";
      line = next + word;
    } else {
      line += (empty ? "" : " ") + word;
    }
    at = end + 1;
  }
  return lines + line + "\n";
}

std::string page_entry(const RecipeKey& key) {
  const std::string unit = key.text.unit.empty() ? "" : ", in " + key.text.unit;
  const std::string entry = "`" + key.path + "`" + of_which(key) + ": " + key.form.words + unit + "; " +
                            default_text(key) + ". " + key.text.meaning + ".";
  return wrapped(entry, "- ", "  ");
}

// ---- the schema

json object_schema(const Keys& all, const std::string& object);
json object_schema_of(const Keys& all, const std::string& object, const std::string& word);

// Returns the schema of a path. `word`: the value of the discriminator of the object around the
// path; "" if there is none.
json expanded(const Keys& all, const std::string& path, const std::string& word, json schema) {
  if (schema.value("type", json()) == "object")
    return word.empty() ? object_schema(all, path) : object_schema_of(all, path, word);
  if (schema.contains("anyOf")) {
    for (json& part : schema["anyOf"]) part = expanded(all, path, word, part);
  }
  return schema;
}

// Returns the schema of the object. `word`: the value of the object's discriminator; "" if it has
// none.
json object_schema_of(const Keys& all, const std::string& object, const std::string& word) {
  json schema = {{"type", "object"}, {"properties", json::object()}};
  for (const RecipeKey& key : all.keys) {
    const auto entry =
        std::find_if(key.defaults.begin(), key.defaults.end(), [&](const auto& known) { return known.first == word; });
    if (object_of(key.path) != object || entry == key.defaults.end()) continue;
    json& property = schema["properties"][key_of(key.path)];
    property = expanded(all, key.path, word, key.form.schema);
    property["description"] = key.text.meaning + ".";
    if (!key.required && key.text.absent.empty() && !entry->second.is_null()) property["default"] = entry->second;
    if (key.required) schema["required"].push_back(key_of(key.path));
  }
  if (const Discriminator* discriminator = discriminator_of(object);
      discriminator != nullptr && object == discriminator->object) {
    schema["properties"][discriminator->key] = {{"const", word}};
  }
  if (all.closed.count({object, word}) > 0) schema["additionalProperties"] = false;
  return schema;
}

json object_schema(const Keys& all, const std::string& object) {
  const Discriminator* discriminator = discriminator_of(object);
  if (discriminator == nullptr) return object_schema_of(all, object, "");
  json variants = json::array();
  for (const std::string& word : discriminator->words()) variants.push_back(object_schema_of(all, object, word));
  if (object == "model") {  // The model may also be given by files, without a family.
    const auto add = [&](const char* file, json more) {
      json properties = {{file, path_form().schema}};
      properties.update(more);
      variants.push_back(
          {{"type", "object"}, {"properties", properties}, {"required", {file}}, {"additionalProperties", false}});
    };
    for (const char* key : {"huggingface", "gguf"})
      add(key, {{"new_tokens", list_form(string_form()).schema}, {"hub_name", string_form().schema}});
    add("graph", json::object());
  }
  return {{"anyOf", variants}};
}

// ---- the examples

// Returns the keys of `value`, the object at `path`, in the order of the reference. Each key is
// below a comment with its meaning.
std::string commented(const std::vector<RecipeKey>& keys, const json& value, const std::string& path,
                      const std::string& indent) {
  std::string text;
  size_t left = value.size();
  for (const RecipeKey& key : keys) {
    const std::string name = key_of(key.path);
    if (object_of(key.path) != path || !value.contains(name)) continue;
    const json& inner = value.at(name);
    const std::string unit = key.text.unit.empty() ? "" : " (" + key.text.unit + ")";
    text += wrapped(key.text.meaning + unit + ".", indent + "// ", indent + "// ");
    text += indent + json(name).dump() + ": ";
    text += inner.is_object() ? "{\n" + commented(keys, inner, key.path, indent + "  ") + indent + "}" : inner.dump();
    text += --left > 0 ? ",\n" : "\n";
  }
  return text;
}

json example_of_images() {
  return {{"batch", 128},
          {"data",
           {{"kind", "idx"},
            {"path", "/usr/share/datasets/fashion-mnist"},
            {"mean", 0.286},
            {"std", 0.353},
            {"augment", {{"flip", true}, {"crop", 2}}}}},
          {"optimizer",
           {{"name", "sgd"},
            {"lr", 0.1},
            {"momentum", 0.9},
            {"nesterov", true},
            {"weight_decay", 5e-4},
            {"no_decay", {"*.bias"}}}}};
}

json example_of_tokens() {
  return {{"batch", 16},
          {"data", {{"kind", "text"}, {"path", "book.txt"}}},
          {"optimizer", {{"name", "adamw"}, {"lr", 1e-3}, {"betas", {0.9, 0.95}}, {"weight_decay", 0.01}}},
          {"clip_norm", 1.0}};
}

}  // namespace

std::vector<RecipeKey> recipe_keys() { return find_keys().keys; }

std::string recipe_reference() {
  const std::vector<RecipeKey> keys = recipe_keys();
  std::string page = "# Every key of a recipe\n\n";
  page += wrapped(
      "`reprise recipe --reference` prints this page. It is made of the reads of the recipe's own reader. A recipe is "
      "one JSON object, in which "
      "comments may stand (`// ...` and `/* ... */`). Names in brackets say which family or optimizer has a key, where "
      "not all have it. "
      "`null` is as if absent where a key has no default. `tools/FILES.md` says more of models, data "
      "and schedules.",
      "", "");
  std::vector<std::string> objects;
  for (const RecipeKey& key : keys) {
    if (std::count(objects.begin(), objects.end(), object_of(key.path)) == 0) objects.push_back(object_of(key.path));
  }
  for (const std::string& object : objects) {
    page += "\n## " + (object.empty() ? "The recipe" : object) + "\n\n";
    for (const RecipeKey& key : keys) {
      if (object_of(key.path) == object) page += page_entry(key);
    }
  }
  return page;
}

json recipe_schema() {
  json schema = object_schema(find_keys(), "");
  schema["$schema"] = "http://json-schema.org/draft-07/schema#";
  schema["title"] = "A recipe of Reprise";
  return schema;
}

std::string example_recipe(const std::string& family) {
  json recipe = {{"name", family + "-example"},
                 {"model", model_example(family)},
                 {"batch", 1},
                 {"accumulate", 1},
                 {"dtype", "f32"},
                 {"lr_schedule", {{"kind", "cosine"}, {"warmup_steps", 50}}},
                 {"freeze", json::array()},
                 {"evaluate_every", 500},
                 {"steps", 1000},
                 {"schedule", {{"strategy", "optimal"}}},
                 {"budget", "64MiB"},
                 {"seed", 1},
                 {"backend", "cpu"}};
  const bool images =
      describe_model(parse_recipe(json({{"model", recipe["model"]}, {"batch", 1}}).dump(), "example", "").model)
          .input == ModelDescription::Input::kImages;
  recipe.update(images ? example_of_images() : example_of_tokens());
  return "// A recipe to start from. `reprise recipe --reference` lists every key.\n{\n" +
         commented(recipe_keys(), recipe, "", "  ") + "}\n";
}

}  // namespace reprise
