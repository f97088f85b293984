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

using Model = std::variant<ResNetModel, Gpt2Model, LlamaModel, Qwen2Model, Qwen3Model>;

// A recipe's "model": {"family": ..., fields}, or {"huggingface": FOLDER}, whose config.json holds the fields. `huggingface_folder`
// becomes the absolute path of that folder, which a canonical recipe names beside the fields; it is left alone where there is none.
Model read_model(const JsonFields& fields, const std::string& recipe_folder, std::string& huggingface_folder);

nlohmann::json model_json(const Model& model);   // of a canonical recipe, without the folder
nlohmann::json model_config(const Model& model);  // config.json beside saved weights: as transformers reads it where it knows the family

ModelDescription describe_model(const Model& model);
void check_model(const Model& model, const RecipeRules& rules, MicroBatch batch);
void build_model(const Model& model, Graph& graph, MicroBatch batch);

}  // namespace reprise
