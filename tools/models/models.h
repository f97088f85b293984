// The networks a recipe can name, as graphs.
// Names and shapes follow torchvision (ResNet) and Hugging Face (GPT-2), so that weights travel both ways.
// It must not know optimizers, schedules or data.
#pragma once

#include <string>

#include "tools/formats/recipe.h"
#include "tools/graph/graph.h"

namespace reprise {

// The graph of the recipe's model for one micro-batch, with its loss, its cuts, and frozen and undecayed parameters marked.
Graph build_model(const Recipe& recipe);

}  // namespace reprise
