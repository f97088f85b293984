// The families of models that a recipe can name, and the dispatch over them.
// Names and shapes follow torchvision (ResNet) and Hugging Face (GPT-2), so that weights travel both ways.
#pragma once

#include <string>
#include <variant>

#include "tools/models/decoder.h"
#include "tools/models/gpt2.h"
#include "tools/models/model.h"
#include "tools/models/net.h"
#include "tools/models/resnet.h"
#include "tools/weights/model_files.h"

namespace reprise {

using Model = std::variant<ResNetModel, Gpt2Model, LlamaModel, MistralModel, Qwen2Model, Qwen3Model, SmolLm3Model, Phi3Model, Gemma2Model, Gemma3Model,
                           NetModel>;

// A recipe's "model": {"family": ..., fields}; or {"huggingface": FOLDER} or {"gguf": FILE}, whose config holds the fields, with tokens that
// are new; or {"graph": FILE}, which holds those of a net. A canonical recipe names `place` beside the fields, which have room for the tokens.
Model read_model(const JsonFields& fields, const std::string& recipe_folder, ModelPlace& place);

// Of the config in such a place, as it is now, with a row of the embeddings for each new token. Throws UserError.
Model read_published_model(const ModelPlace& place);

nlohmann::json model_json(const Model& model);   // of a canonical recipe, without the folder
nlohmann::json model_config(const Model& model);  // config.json beside saved weights: as transformers 4 and 5 read it where they know the family

ModelDescription describe_model(const Model& model);
void check_model(const Model& model, const RecipeRules& rules, MicroBatch batch);
void build_model(const Model& model, Graph& graph, MicroBatch batch);  // without its cuts

}  // namespace reprise
