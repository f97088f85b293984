// A recipe's "loss": how pairs of answers are judged. Names and defaults are trl's.
#include "tools/plan/recipes/sections.h"

namespace reprise {

namespace {

constexpr Word<PreferenceKind> kKinds[] = {{"dpo", PreferenceKind::kDpo},
                                           {"orpo", PreferenceKind::kOrpo},
                                           {"kto", PreferenceKind::kKto}};

PreferenceKind kind_of(const PreferenceAttribute& loss) { return static_cast<PreferenceKind>(loss.kind); }

}  // namespace

PreferenceAttribute read_loss(const JsonFields& fields) {
  fields.allow_only({"kind", "beta", "label_smoothing", "desirable_weight", "undesirable_weight"});
  fields.require("kind", "give \"dpo\", \"orpo\" or \"kto\"");
  PreferenceKind kind = PreferenceKind::kDpo;
  fields.read_choice("kind", kind, kKinds,
                     {"How pairs of answers are judged: Rafailov et al. 2023, Hong et al. 2024 (without a reference), "
                      "or single answers, Ethayarajh et al. 2024"});
  PreferenceAttribute loss = {.kind = static_cast<uint32_t>(kind), .beta = 0.1};
  fields.read(
      "beta", loss.beta, kPositive,
      {"What rewards are multiplied by: how near the model stays to its reference; of orpo the weight of the odds"});
  constexpr FieldRange kAtMostHalf = {0, 0.5}, kWeight = {0, 1e6};
  fields.read("label_smoothing", loss.label_smoothing, kAtMostHalf,
              {"The probability that a pair stands the wrong way round; of \"dpo\""});
  fields.read("desirable_weight", loss.desirable_weight, kWeight,
              {"The weight of answers whose label is true; of \"kto\""});
  fields.read("undesirable_weight", loss.undesirable_weight, kWeight,
              {"The weight of answers whose label is false; of \"kto\""});
  const auto refuse_of_others = [&](const char* key, PreferenceKind owner, bool is_changed) {
    if (kind != owner && is_changed)
      fields.refuse(key, std::string("leave it out: it is of \"kind\": \"") + word_of(kKinds, owner) + "\"");
  };
  refuse_of_others("label_smoothing", PreferenceKind::kDpo, loss.label_smoothing != 0);
  refuse_of_others("desirable_weight", PreferenceKind::kKto, loss.desirable_weight != 1);
  refuse_of_others("undesirable_weight", PreferenceKind::kKto, loss.undesirable_weight != 1);
  return loss;
}

void check_loss(const Recipe& recipe, const RecipeRules& rules) {
  if (!recipe.loss) return;
  const ModelDescription model = describe_model(recipe.model);
  rules.require(model.input == ModelDescription::Input::kTokens, "loss", "is for language models; leave it out");
  rules.require(model.packs, "loss",
                "cannot be with this family of models: both answers stand in one row, and its positions do not start "
                "anew within a row");
  const bool is_alone = kind_of(*recipe.loss) == PreferenceKind::kKto && recipe.batch < 2 && !recipe.data.pack;
  rules.require(!is_alone, "batch",
                "must be 2 at least with \"loss\": {\"kind\": \"kto\"}, which compares each answer with one to another "
                "prompt of its micro-batch");
}

nlohmann::json loss_json(const PreferenceAttribute& loss) {
  nlohmann::json value = {{"kind", word_of(kKinds, kind_of(loss))}, {"beta", loss.beta}};
  if (kind_of(loss) == PreferenceKind::kDpo) value["label_smoothing"] = loss.label_smoothing;
  if (kind_of(loss) == PreferenceKind::kKto)
    value.update({{"desirable_weight", loss.desirable_weight}, {"undesirable_weight", loss.undesirable_weight}});
  return value;
}

}  // namespace reprise
