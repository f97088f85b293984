// Builds a ResNet's graph.
// Here so that models.cpp can choose among families.
// It must not know recipes beyond the model.
#pragma once

#include "tools/formats/recipe.h"
#include "tools/graph/graph.h"

namespace reprise {

void build_resnet(Graph& graph, const ResNetModel& model, uint32_t batch);

}  // namespace reprise
