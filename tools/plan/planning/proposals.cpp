// Finds the proposals of proposals.h.
#include "tools/plan/planning/proposals.h"

#include <algorithm>
#include <utility>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/planning/storage_choices.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {
namespace {

using nlohmann::json;

struct Variant {
  std::string words;
  Recipe recipe;
};

// A function that returns variants of the recipe with one kind of change, the smallest change
// first. It returns none if the change does not apply to the recipe.
using Lever = std::vector<Variant> (*)(Recipe recipe);

std::vector<Variant> release_gradients(Recipe recipe) {
  if (recipe.gradient_release || recipe.clip_norm || recipe.accumulate > 1 || recipe.parallel ||
      recipe.feature_map_budget_bytes)
    return {};
  recipe.gradient_release = true;
  return {{"\"gradient_release\": true", recipe}};
}

std::vector<Variant> shrink_moments(Recipe recipe) {
  if (!keeps_moments_in_any_type(recipe.optimizer) || recipe.optimizer.states == DType::kDynamic8) return {};
  recipe.optimizer.states = DType::kDynamic8;
  return {{"\"states\": \"8bit\" of the optimizer", recipe}};
}

std::vector<Variant> drop_moments(Recipe recipe) {
  OptimizerRecipe plain;
  plain.lr = recipe.optimizer.lr;
  plain.weight_decay = recipe.optimizer.update == Op::kSgd ? recipe.optimizer.weight_decay : 0;
  plain.no_decay = recipe.optimizer.no_decay;
  if (recipe.optimizer == plain) return {};
  recipe.optimizer = plain;
  return {{"plain \"sgd\" without momentum", recipe}};
}

std::vector<Variant> shrink_batch(Recipe recipe) {
  std::vector<Variant> variants;
  while (recipe.batch > 1) {
    recipe.batch /= 2;
    variants.push_back({"\"batch\": " + std::to_string(recipe.batch), recipe});
  }
  return variants;
}

std::vector<Variant> halve_activations(Recipe recipe) {
  if (recipe.dtype == Recipe::Dtype::kBf16) return {};
  recipe.dtype = Recipe::Dtype::kBf16;
  return {{"\"dtype\": \"bf16\"", recipe}};
}

std::vector<Variant> store_in_fewer_bits(Recipe recipe) {
  std::vector<Variant> variants;
  if (!recipe.lora || recipe.weights.frozen == DType::kQ4_0) return {};
  for (const auto& [type, word] : {std::pair{DType::kQ8_0, "q8_0"}, {DType::kQ4_0, "q4_0"}}) {
    if (recipe.weights.frozen == type) continue;
    recipe.weights.frozen = type;
    variants.push_back({"\"frozen\": \"" + std::string(word) + "\" of the weights", recipe});
  }
  return variants;
}

std::vector<Variant> stream_weights(Recipe recipe) {
  if (!recipe.lora || recipe.weights.stream != WeightsRecipe::Stream::kNone) return {};
  recipe.weights.stream = WeightsRecipe::Stream::kByPlan;
  return {{"\"stream\": \"auto\" of the weights", recipe}};
}

constexpr Lever kLevers[] = {release_gradients,   shrink_moments, shrink_batch,     stream_weights,
                             store_in_fewer_bits, drop_moments,   halve_activations};

// Returns the keys of the recipe whose values differ, with the new values.
json change_between(const Recipe& before, const Recipe& after) {
  const json old_keys = json::parse(canonical_recipe(before)), new_keys = json::parse(canonical_recipe(after));
  json change = json::object();
  for (const auto& [key, value] : new_keys.items()) {
    if (!old_keys.contains(key) || old_keys[key] != value) change[key] = value;
  }
  return change;
}

class Proposer {
 public:
  Proposer(const SolvedModel& model, const FitsJudge& fits) : model_(model), fits_(fits) {}

  struct Tried {
    Recipe recipe;
    std::string words;
    uint64_t bytes;
    bool fits;
  };

  // Returns the first variant of the lever that fits, else the last that saves bytes; nothing if no
  // variant saves bytes.
  std::optional<Tried> pull(Lever lever, const Recipe& recipe, uint64_t bytes_before) const {
    std::optional<Tried> minimum;
    for (const Variant& variant : lever(recipe)) {
      const std::optional<Tried> tried = try_out(variant);
      if (!tried || tried->bytes >= bytes_before) continue;
      minimum = tried;
      if (tried->fits) break;
    }
    return minimum;
  }

  Proposal proposal(const Tried& tried) const {
    return {change_between(model_.recipe, tried.recipe), tried.words, tried.bytes, tried.fits};
  }

 private:
  // Solves the variant. Returns nothing if the variant conflicts with the model or with another key
  // of the recipe.
  std::optional<Tried> try_out(const Variant& variant) const {
    try {
      RecipeRules rules;
      rules.file = model_.recipe.name;
      check_recipe(variant.recipe, rules);
      const SolvedModel model = solve_model(variant.recipe, model_.measured);
      const uint64_t bytes = smallest_budget(model, request_of(model));
      if (bytes == 0) return std::nullopt;
      return Tried{variant.recipe, variant.words, bytes, fits_(model, bytes)};
    } catch (const UserError&) {
      return std::nullopt;
    }
  }

  const SolvedModel& model_;
  const FitsJudge& fits_;
};

}  // namespace

bool fits_own_budget(const SolvedModel& model, uint64_t smallest_budget_bytes) {
  const std::optional<uint64_t>& budget =
      model.recipe.budget_bytes ? model.recipe.budget_bytes : model.recipe.feature_map_budget_bytes;
  return !budget || smallest_budget_bytes <= *budget;
}

std::vector<Proposal> proposals_for(const SolvedModel& model, uint64_t smallest_budget_bytes, const FitsJudge& fits) {
  LongWork work("what would need less than " + model.recipe.name);
  const Proposer proposer(model, fits);
  std::vector<Proposal> proposals;
  bool one_fits = false;
  for (const Lever lever : kLevers) {
    const auto tried = proposer.pull(lever, model.recipe, smallest_budget_bytes);
    if (!tried) continue;
    proposals.push_back(proposer.proposal(*tried));
    one_fits |= tried->fits;
  }
  if (one_fits || proposals.size() < 2) return proposals;
  Proposer::Tried together = {model.recipe, "", smallest_budget_bytes, false};
  std::vector<std::pair<Lever, std::string>> words;
  for (const Lever lever : kLevers) {
    const auto tried = proposer.pull(lever, together.recipe, together.bytes);
    if (!tried) continue;
    // drop_moments leaves no moments that could be stored in fewer bits.
    if (lever == drop_moments) std::erase_if(words, [](const auto& each) { return each.first == shrink_moments; });
    words.push_back({lever, tried->words});
    together = *tried;
    if (together.fits) break;
  }
  together.words.clear();
  for (const auto& [lever, own] : words) together.words += (together.words.empty() ? "" : " and ") + own;
  proposals.push_back(proposer.proposal(together));
  return proposals;
}

std::string proposals_text(const std::vector<Proposal>& proposals) {
  std::string text;
  for (const Proposal& each : proposals) {
    text += (text.empty() ? "; with " : ", with ") + each.words + (text.empty() ? " it would be " : " ") +
            bytes_text(each.smallest_budget_bytes) + (each.fits ? " (fits)" : "");
  }
  return text;
}

json proposals_json(const std::vector<Proposal>& proposals) {
  json list = json::array();
  for (const Proposal& each : proposals)
    list.push_back({{"change", each.change}, {"smallest_budget", each.smallest_budget_bytes}, {"fits", each.fits}});
  return list;
}

}  // namespace reprise
