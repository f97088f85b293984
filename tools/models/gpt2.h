// Builds a GPT-2's graph.
// Here so that models.cpp can choose among families.
// It must not know recipes beyond the model.
#pragma once

#include "tools/formats/recipe.h"
#include "tools/graph/graph.h"

namespace reprise {

void build_gpt2(Graph& graph, const Gpt2Model& model, uint32_t batch, uint32_t sequence);

}  // namespace reprise
