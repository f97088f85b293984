// The families of models that a recipe can name, and the dispatch over them.
// Names and shapes follow torchvision (ResNet) and Hugging Face (GPT-2), so that weights travel both ways.
#pragma once

#include <string>
#include <variant>

#include "tools/models/decoder.h"
#include "tools/models/gpt2.h"
#include "tools/models/model.h"
#include "tools/models/resnet.h"

namespace reprise {

using Model = std::variant<ResNetModel, Gpt2Model, LlamaModel, MistralModel, Qwen2Model, Qwen3Model, SmolLm3Model, Phi3Model, Gemma2Model, Gemma3Model>;

// Where a published model lies, absolute: a folder as Hugging Face has it, or one GGUF file; both empty where a recipe names none.
struct ModelPlace {
  std::string huggingface, gguf;
  const std::string& path() const { return gguf.empty() ? huggingface : gguf; }
  bool operator==(const ModelPlace&) const = default;
};

// A recipe's "model": {"family": ..., fields}; or {"huggingface": FOLDER} or {"gguf": FILE}, whose config holds the fields. A canonical
// recipe names `place` beside the fields.
Model read_model(const JsonFields& fields, const std::string& recipe_folder, ModelPlace& place);

// Of the config in such a place, as it is now. Throws UserError.
Model read_published_model(const ModelPlace& place);

nlohmann::json model_json(const Model& model);   // of a canonical recipe, without the folder
nlohmann::json model_config(const Model& model);  // config.json beside saved weights: as transformers 4 and 5 read it where they know the family

ModelDescription describe_model(const Model& model);
void check_model(const Model& model, const RecipeRules& rules, MicroBatch batch);
void build_model(const Model& model, Graph& graph, MicroBatch batch);  // and its cuts

}  // namespace reprise
