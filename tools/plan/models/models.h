// The families of models that a recipe can name, and the dispatch over them. Names and shapes
// follow torchvision (ResNet) and Hugging Face (GPT-2), so that weights can be read from there and
// written back.
#pragma once

#include <string>
#include <variant>

#include "tools/files/weights/model_files.h"
#include "tools/plan/models/decoder.h"
#include "tools/plan/models/gpt2.h"
#include "tools/plan/models/model.h"
#include "tools/plan/models/net.h"
#include "tools/plan/models/resnet.h"

namespace reprise {

using Model = std::variant<ResNetModel, Gpt2Model, LlamaModel, MistralModel, Qwen2Model, Qwen3Model, SmolLm3Model,
                           Phi3Model, Gemma2Model, Gemma3Model, NetModel>;

// Reads a recipe's "model". It is {"family": ..., fields} or {"graph": FILE}, a file with the
// fields of a net. It may also be {"huggingface": FOLDER} or {"gguf": FILE}, with new tokens; the
// fields are then in the config of the folder or file. Sets `place` to the location of the model's
// files. A canonical recipe has both the location and the fields, and the fields include the new
// tokens.
Model read_model(const JsonFields& fields, const std::string& recipe_folder, ModelPlace& place);

// Reads the config at `place`, as its files are at this moment. The embeddings have a row for each
// new token. Throws UserError.
Model read_published_model(const ModelPlace& place);

// Returns the "model" of a canonical recipe, without the folder.
nlohmann::json model_json(const Model& model);
// Returns the config.json of saved weights. transformers 4 and 5 can read it if they have the
// family.
nlohmann::json model_config(const Model& model);

// Returns a text that states which of longrope's factors apply to samples of this length; "" for
// models without such factors.
std::string rope_factors_text(const Model& model, int sequence);

ModelDescription describe_model(const Model& model);
void check_model(const Model& model, const RecipeRules& rules, MicroBatch batch);
void build_model(const Model& model, Graph& graph, MicroBatch batch);  // Builds the graph, without its cuts.

}  // namespace reprise
