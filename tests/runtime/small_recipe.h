// A recipe without a model, for networks of a few kilobytes that belong to no family.
#pragma once

#include <string>

#include "tools/plan/recipes/recipe.h"

namespace reprise {

inline Recipe small_recipe(const std::string& name, DType stored) {
  Recipe recipe;
  recipe.name = name;
  recipe.accumulate = 2;
  recipe.seed = 5;
  recipe.dtype = stored == DType::kBf16 ? Recipe::Dtype::kBf16 : Recipe::Dtype::kF32;
  recipe.optimizer.update = Op::kAdamW;
  recipe.optimizer.lr = 0.02;
  return recipe;
}
inline Recipe small_clipped_recipe(const std::string& name, DType stored) {
  Recipe recipe = small_recipe(name, stored);
  recipe.clip_norm = 100;
  return recipe;
}

}  // namespace reprise
