// A recipe's "weights" and "trained": how frozen weights and trained weights are stored in memory.
#include "tools/plan/recipes/sections.h"

namespace reprise {

using nlohmann::json;

namespace {

using Frozen = std::optional<DType>;
constexpr Word<Frozen> kFrozen[] = {{"as_stored", std::nullopt}, {"f32", DType::kF32},
                                    {"f16", DType::kF16},        {"bf16", DType::kBf16},
                                    {"q8_0", DType::kQ8_0},      {"q5_1", DType::kQ5_1},
                                    {"q5_0", DType::kQ5_0},      {"q4_1", DType::kQ4_1},
                                    {"q4_0", DType::kQ4_0},      {"q4_k", DType::kQ4_K},
                                    {"nf4", DType::kNF4},        {"nf4_double", DType::kNF4Double}};

constexpr Word<DType> kTrained[] = {{"f32", DType::kF32}, {"bf16", DType::kBf16}};

constexpr Word<bool> kEmbedding[] = {{"in_state", false}, {"from_file", true}};

using Stream = WeightsRecipe::Stream;
const char* const kByPlan = "auto";

void read_stream(const JsonFields& fields, WeightsRecipe& weights) {
  const auto form = [] { return either_form(bool_form(), word_form({kByPlan})); };
  fields.note("stream", form, [] { return json(false); },
              {"Frozen matrices lie in a file and come into memory each time that they are wanted, ahead of the rows "
               "that read them; \"auto\": as many "
               "as the budget asks for, where that costs less time than recomputation"});
  if (!fields.has("stream")) return;
  const json& given = fields.at("stream");
  if (!given.is_boolean() && given != kByPlan)
    fields.refuse("stream", "must be " + form().words + ", not " + json_shown(given));
  weights.stream = given == kByPlan ? Stream::kByPlan : given.get<bool>() ? Stream::kAll : Stream::kNone;
}

}  // namespace

WeightsRecipe read_weights(const JsonFields& fields) {
  fields.allow_only({"frozen", "embedding", "stream"});
  WeightsRecipe weights;
  fields.read_choice("frozen", weights.frozen, kFrozen,
                     {"How frozen matrices lie in memory: \"as_stored\" as the model's file has them, else quantised, "
                      "or widened, while they are read"});
  fields.read_choice("embedding", weights.embedding_from_file, kEmbedding,
                     {"Where the embeddings lie: \"from_file\" reads the rows of a micro-batch's tokens from a file, "
                      "and leaves the others there"});
  read_stream(fields, weights);
  return weights;
}

void check_weights(const Recipe& recipe, const RecipeRules& rules) {
  const Frozen& frozen = recipe.weights.frozen;
  rules.require(
      recipe.weights.stream == Stream::kNone || recipe.lora, "weights.stream",
      "needs \"lora\": what is streamed must be frozen, and a snapshot of the whole model holds what is in memory");
  rules.require(!recipe.weights.embedding_from_file || recipe.lora, "weights.embedding",
                "\"from_file\" needs \"lora\": what stays in the file must be frozen, and a snapshot of the whole "
                "model holds what is in memory");
  rules.require(!frozen || recipe.lora || !recipe.freeze.empty(), "weights.frozen",
                "nothing is frozen: give \"lora\" or \"freeze\", or leave it out");
  rules.require(!frozen || recipe.lora || dtype_info(*frozen).block_elements == 1, "weights.frozen",
                std::string("\"") + word_of(kFrozen, frozen) +
                    "\" needs \"lora\": a snapshot of the whole model cannot hold blocks");
}

TrainedRecipe read_trained(const JsonFields& fields) {
  fields.allow_only({"storage"});
  TrainedRecipe trained;
  fields.read_choice("storage", trained.storage, kTrained,
                     {"How trained matrices lie in memory: \"bf16\" without a copy in f32; what an update changes is "
                      "rounded at random, from the seed"});
  return trained;
}

nlohmann::json trained_json(const TrainedRecipe& trained) { return {{"storage", word_of(kTrained, trained.storage)}}; }

json weights_json(const WeightsRecipe& weights) {
  json value = {{"frozen", word_of(kFrozen, weights.frozen)}};
  if (weights.embedding_from_file) value["embedding"] = word_of(kEmbedding, true);
  if (weights.stream != Stream::kNone) value["stream"] = weights.stream == Stream::kAll ? json(true) : json(kByPlan);
  return value;
}

}  // namespace reprise
