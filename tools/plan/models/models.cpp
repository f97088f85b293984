// Dispatches the functions of models.h to the families. The compiler makes a table with one row for
// each family of the variant.
#include "tools/plan/models/models.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "tools/files/adapters/base_name.h"
#include "tools/files/formats/json_fields.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/files/weights/model_files.h"
#include "tools/plan/graph/graph.h"
#include "tools/plan/models/model_examples.h"

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
  return {Family{F::kFamily, F::kHuggingFace, [](const JsonFields& fields) -> Model { return F::read(fields); },
                 [] { return F::example(); }}...};
}
constexpr auto kFamilies = families_of(static_cast<const Model*>(nullptr));

void read_new_tokens(const JsonFields& fields, ModelPlace& place) {
  fields.read("new_tokens", place.new_tokens,
              {"Tokens that are added to the vocabulary of the model's files, each found in texts as it is written; "
               "the embeddings get a row for each, and "
               "must be trained",
               "", "none"});
  const std::vector<std::string>& tokens = place.new_tokens;
  for (size_t n = 0; n < tokens.size(); ++n) {
    if (tokens[n].empty()) fields.refuse("new_tokens", "\"\" is no token; must be a text", &fields.at("new_tokens")[n]);
    if (std::find(tokens.begin(), tokens.begin() + static_cast<int64_t>(n), tokens[n]) ==
        tokens.begin() + static_cast<int64_t>(n))
      continue;
    fields.refuse("new_tokens", json_shown(tokens[n]) + " is given twice; leave one out", &fields.at("new_tokens")[n]);
  }
}

void read_hub_name(const JsonFields& fields, ModelPlace& place) {
  fields.read("hub_name", place.hub_name,
              {"The model's name on the Hugging Face Hub, as ORG/NAME, which an adapter's folder gives as its base", "",
               "what the model's files say"});
  if (!place.hub_name.empty() && !is_hub_name(place.hub_name))
    fields.refuse("hub_name", "must be ORG/NAME, not " + json_shown(place.hub_name));
}

// Removes from `place` the new tokens that the model's files already have as added tokens.
void keep_new_tokens(const JsonFields& fields, ModelPlace& place) {
  if (place.new_tokens.empty()) return;
  const ModelFiles files = ModelFiles::open(place);
  if (!files.has_tokenizer())
    fields.refuse("new_tokens",
                  "needs a tokenizer, and " + place.path() + " has none: tokenizer.json, or tokenizer.ggml of a GGUF");
  NewTokens made;
  try {
    files.tokenizer(&made);
  } catch (const UserError& error) {
    fields.refuse("new_tokens", error.what());
  }
  place.new_tokens = made.names;
}

Model read_published(const JsonFields& fields, ModelPlace& place) {
  fields.allow_only({place.gguf.empty() ? "huggingface" : "gguf", "new_tokens", "hub_name"});
  const std::string file = place.gguf.empty() ? place.huggingface + "/config.json" : place.gguf;
  if (place.gguf.empty() && !std::filesystem::is_regular_file(file))
    fields.refuse("huggingface", "must be a folder with a config.json; there is no " + file);
  if (!place.gguf.empty() && !std::filesystem::is_regular_file(file))
    fields.refuse("gguf", "must be a GGUF file; there is no " + file);
  read_new_tokens(fields, place);
  read_hub_name(fields, place);
  keep_new_tokens(fields, place);
  return read_published_model(place);
}

Model read_net_file(const JsonFields& fields, const std::string& recipe_folder) {
  fields.allow_only({"graph"});
  std::string file;
  fields.read_path("graph", recipe_folder, file);
  const std::string text = read_file(file);
  const json value = parse_json(text, file, JsonComments::kAllowed);
  return read_net(value, {file, &text});
}

Model read_family(const JsonFields& fields) {
  fields.require("family", "give " + either_of(family_names()) +
                               " (or \"huggingface\": FOLDER, \"gguf\": FILE, or \"graph\": FILE)");
  std::string name;
  fields.read("family", name,
              {"The kind of network, with names and shapes as in torchvision and Hugging Face", "", "",
               family_names()});
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

Model read_model(const JsonFields& fields, const std::string& recipe_folder, ModelPlace& place) {
  if (fields.has("graph") && !fields.has("family")) return read_net_file(fields, recipe_folder);
  if (fields.has("family") || !(fields.has("huggingface") || fields.has("gguf"))) {
    const Model model = read_family(fields);
    // A canonical recipe states the folder or file from which its config was read.
    fields.read_path(
        "huggingface", recipe_folder, place.huggingface,
        {"A folder whose config.json gives the model, in place of a family and its fields; training starts from its "
         "model.safetensors, or the files of model.safetensors.index.json, where they are there",
         "", "none"});
    fields.read_path(
        "gguf", recipe_folder, place.gguf,
        {"A GGUF file that gives model and weights, tokenizer and chat template, in place of a family and its fields",
         "", "none"});
    read_new_tokens(fields, place);
    read_hub_name(fields, place);
    if (!place.new_tokens.empty() && place.path().empty())
      fields.refuse("new_tokens", "needs a model with a tokenizer: \"huggingface\": FOLDER or \"gguf\": FILE");
    return model;
  }
  fields.read_path("huggingface", recipe_folder, place.huggingface);
  fields.read_path("gguf", recipe_folder, place.gguf);
  return read_published(fields, place);
}

namespace {

// True if the parameters of a rope rotate only a part of the channels, in all layers or in one kind
// of layers.
bool rotates_part(const json& rope) {
  if (rope.contains("partial_rotary_factor")) return true;
  return std::any_of(rope.begin(), rope.end(), [](const json& each) { return each.is_object() && rotates_part(each); });
}

Model read_config(const ModelFiles& files) {
  const std::string file = files.config_path(), text = files.is_gguf() ? "" : read_file(file);
  const json config = files.is_gguf() ? files.config() : parse_json(text, file);
  const JsonFields config_fields(config, {file, files.is_gguf() ? nullptr : &text}, "");
  std::string type;
  config_fields.read("model_type", type);
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.huggingface.model_type == nullptr) continue;
    known.emplace_back(family.huggingface.model_type);
    if (type != known.back()) continue;
    const Model model = family.read(config_fields);
    // If a config rotates only a part of the channels, transformers 4 refuses it for most families,
    // and 5 rotates all channels.
    const json fields = model_json(model);
    if (!family.huggingface.rotates_part && rotates_part(fields.value("rope_parameters", json::object()))) {
      config_fields.refuse("partial_rotary_factor", "must be 1: transformers rotates all channels of a " + type);
    }
    return model;
  }
  config_fields.refuse("model_type", "must be " + either_of(known) + (known.size() == 1 ? ", the one available" : "") +
                                         ", not " + json_shown(type));
}

void make_space(Model& model, size_t tokens) {
  std::visit(
      [tokens](auto& family) {
        if constexpr (requires { family.vocab_size; })
          family.vocab_size = std::max(family.vocab_size, static_cast<int>(tokens));
      },
      model);
}

}  // namespace

Model read_published_model(const ModelPlace& place) {
  const ModelFiles files = ModelFiles::open(place);
  Model model = read_config(files);
  if (place.new_tokens.empty()) return model;
  NewTokens made;
  files.tokenizer(&made);
  make_space(model, made.first + made.count);
  return model;
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
        if (value.contains("rope_parameters")) write_rope_for_transformers(value);
        return value;
      },
      model);
}

std::string rope_factors_text(const Model& model, int sequence) {
  return std::visit(
      [sequence](const auto& family) -> std::string {
        if constexpr (requires { family.rope; })
          return longrope_text(family.rope, family.max_position_embeddings, sequence);
        return "";
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

std::array<int, 3> read_image_size(const JsonFields& fields) {
  fields.require("image", "give [height, width, channels], for example [28, 28, 1]");
  std::vector<int> image;
  fields.read("image", image, 1, 65536, {"The size of an image: [height, width, channels]", "pixels"});
  if (image.size() != 3)
    fields.refuse("image", "must be [height, width, channels], not " + json_shown(fields.at("image")));
  return {image[0], image[1], image[2]};
}

void RecipeRules::require(bool condition, const std::string& field, const std::string& reason) const {
  if (condition) return;
  if (const auto option = options.find(field); option != options.end()) throw UserError(option->second + ": " + reason);
  throw UserError(file + ": " + field + ": " + reason + place_of(text, field));
}

void RecipeRules::require_elements(double elements, const std::string& field, const std::string& tensor) const {
  require(elements <= kMaxElements, field, "too large: " + tensor + " would have more than 2^40 elements");
}

}  // namespace reprise
