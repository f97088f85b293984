// Tests answers that are generated token by token, with caches in the training's arena. The logits
// must equal those of an evaluation of the complete sequence. The program `generate` shares only
// weights and memory with the programs of the training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/cpu/cpu_rules.h"
#include "tests/runtime/llama_network.h"
#include "tests/runtime/training_harness.h"
#include "tools/plan/planning/answering_program.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/inference/generation.h"

namespace reprise {
namespace {

constexpr LlamaNetwork kNetwork = {
    .batch = 1, .sequence = 21, .vocabulary = 23, .layers = 2, .rope_scale = 1.25f, .head_norms = true};
constexpr uint32_t kAtOnce = 4;

OwnedPlan plan_with_generation(const LlamaNetwork& llama, DType stored = DType::kF32, uint64_t max_positions = 1000) {
  Recipe recipe = llama_recipe("generation");
  if (stored == DType::kBf16) recipe.dtype = Recipe::Dtype::kBf16;
  OwnedPlan plan = plan_run(recipe, llama.build(stored), "optimal", 0).planned.plan;
  LlamaNetwork one = llama;
  one.batch = 1, one.sequence = kAtOnce;
  const uint64_t before = plan.arena_bytes,
                 positions = add_generation(plan, one.build(stored), kCpuRules, WeightWindow{}, max_positions);
  EXPECT_EQ(plan.arena_bytes, before) << "an answer takes no more memory than a step";
  EXPECT_EQ(generation_limits(plan.view()).positions, positions);
  return plan;
}

class BoundPlan {
 public:
  explicit BoundPlan(const OwnedPlan& owned) : owned_(owned), plan_(owned_.view()), arena_(plan_.arena_bytes) {
    const Status bound = bind_plan(plan_, test::test_backend(), alone_, arena_.get(), trainer);
    EXPECT_TRUE(bound.ok()) << bound.message;
  }
  std::vector<float> logits_after(const std::vector<int32_t>& tokens, uint64_t position) {
    std::vector<float> logits(generation_limits(plan_).vocabulary);
    const Status status =
        generate(trainer, tokens.data(), static_cast<uint32_t>(tokens.size()), position, logits.data());
    EXPECT_TRUE(status.ok()) << status.message;
    return logits;
  }
  Trainer trainer;

 private:
  const OwnedPlan owned_;
  const Plan plan_;
  const TestArena arena_;
  const Workers alone_ = {.stack_bytes = 1 << 20};
};

double loss_of(const std::vector<float>& logits, int32_t label) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(label)]);
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                  const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << what << " logit " << i;
}

// Requires that generation gives the loss and the logits of an evaluation. `llama` has the batch,
// sequence and vocabulary of the plan. `tolerance` is the relative tolerance of the loss; that of a
// logit is ten times as large.
void expect_evaluations_loss(const OwnedPlan& plan, LlamaNetwork llama, double tolerance) {
  BoundPlan bound(plan);
  const TokenBatch batch = token_batch(llama, 0, 0);
  EvaluationReport report;
  ASSERT_TRUE(evaluate(bound.trainer, token_source(llama), 1, report).ok());
  std::vector<std::vector<float>> logits;
  double loss = 0;
  for (uint32_t t = 0; t < llama.sequence; ++t) {
    logits.push_back(bound.logits_after({batch.tokens[t]}, t));
    loss += loss_of(logits.back(), batch.labels[t]) / llama.sequence;
  }
  EXPECT_NEAR(loss, report.loss, tolerance * report.loss);
  EXPECT_GT(std::abs(loss - loss_of(logits[0], batch.labels[0])), 0.01)
      << "every token has the same loss: nothing is compared";
  // Passes several tokens at once, also at a position after earlier tokens.
  for (const uint32_t count : {2u, 3u, kAtOnce}) {
    for (uint32_t t = 0; t + count <= llama.sequence; t += count) {
      const std::vector<int32_t> piece(batch.tokens.begin() + t, batch.tokens.begin() + t + count);
      expect_close(bound.logits_after(piece, t), logits[t + count - 1], 10 * tolerance,
                   std::to_string(count) + " at " + std::to_string(t));
    }
  }
  expect_close(bound.logits_after({batch.tokens[7]}, 7), logits[7], 10 * tolerance, "from an earlier place");
}

void expect_evaluations_loss(LlamaNetwork llama, DType stored, double tolerance) {
  expect_evaluations_loss(plan_with_generation(llama, stored), llama, tolerance);
}

// Returns a plan of a published family of models. Weights are so large that scores and logits reach
// their caps.
OwnedPlan plan_of_family(const std::string& family, const std::string& fields) {
  const Recipe recipe = recipe_from(R"({"name": "generation", "model": {"family": ")" + family +
                                    R"(", "vocab_size": 23, "hidden_size": 16,
      "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
      "max_position_embeddings": 64, "initializer_range": 0.4)" +
                                    fields + R"(}, "batch": 1, "sequence": 21, "optimizer": {"name": "sgd"}})");
  OwnedPlan plan = plan_run(recipe, build_stored_model(recipe, kCpuRules), "optimal", 0).planned.plan;
  add_generation(plan, build_stored_model(recipe, kCpuRules, {.samples = 1, .sequence = static_cast<int>(kAtOnce)}),
                 kCpuRules, WeightWindow{}, 1000);
  return plan;
}

// Generation must treat windows shorter than the sequence, caps of scores and logits, norms and
// positions as the training does.
TEST(Generation, HasTheLossOfAnEvaluationInEveryFamily) {
  const std::pair<const char*, const char*> families[] = {
      {"mistral", R"(, "sliding_window": 5)"},
      {"smollm3", R"(, "no_rope_layers": [0, 1])"},
      {"phi3", R"(, "sliding_window": 6, "rope_parameters": {"partial_rotary_factor": 0.5})"},
      {"gemma2",
       R"(, "sliding_window": 4, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2, "query_pre_attn_scalar": 5)"},
      {"gemma3",
       R"(, "sliding_window": 4, "sliding_window_pattern": 2, "rope_theta": 100, "rope_local_base_freq": 10)"}};
  LlamaNetwork llama = kNetwork;
  llama.batch = 1, llama.sequence = 21, llama.vocabulary = 23;
  for (const auto& [family, fields] : families) {
    SCOPED_TRACE(family);
    expect_evaluations_loss(plan_of_family(family, fields), llama, 2e-6);
  }
}

TEST(Generation, HasTheLossOfAnEvaluation) { expect_evaluations_loss(kNetwork, DType::kF32, 1e-6); }

TEST(Generation, HasTheLossOfAnEvaluationWithAdapters) {
  LlamaNetwork llama = kNetwork;
  llama.head_norms = false, llama.rank = 2, llama.adapter_scale = 2, llama.tied = false, llama.neighbours = 1;
  expect_evaluations_loss(llama, DType::kF32, 1e-6);
}

// Values stored as bf16 have a relative error of up to 2^-9, and generation sums in another order.
TEST(Generation, HasTheLossOfAnEvaluationInBf16) { expect_evaluations_loss(kNetwork, DType::kBf16, 1e-2); }

// Each token must be generated at its own position. So tokens in another order must give other
// logits. If all positions were 0, rope would not distinguish the orders.
TEST(Generation, KnowsThePositionsOfItsTokens) {
  BoundPlan bound(plan_with_generation(kNetwork));
  (void)bound.logits_after({3, 9}, 0);
  const std::vector<float> first = bound.logits_after({5}, 2);
  (void)bound.logits_after({9, 3}, 0);
  const std::vector<float> second = bound.logits_after({5}, 2);
  double difference = 0;
  for (size_t i = 0; i < first.size(); ++i)
    difference = std::max(difference, std::abs(static_cast<double>(first[i] - second[i])));
  EXPECT_GT(difference, 1e-3);
}

// An answer that continues from the caches of known tokens must equal the answer without caches.
TEST(Generation, GoesOnFromKnownTokens) {
  const OwnedPlan plan = plan_with_generation(kNetwork);
  const std::vector<int32_t> asked = {3, 1, 4, 1, 5, 9};
  BoundPlan bound(plan);
  std::vector<int32_t> more = asked;
  const std::vector<int32_t> answer = generate_tokens(bound.trainer, asked, {.tokens = 5, .stop = {}, .never = {}});
  ASSERT_EQ(answer.size(), 5u);
  more.insert(more.end(), answer.begin(), answer.end());
  const uint64_t known = more.size() - 1;
  more.insert(more.end(), {2, 6, 5});
  const std::vector<int32_t> goes_on =
      generate_tokens(bound.trainer, more, {.tokens = 5, .stop = {}, .never = {}}, {}, known);
  BoundPlan anew(plan);
  EXPECT_EQ(goes_on, generate_tokens(anew.trainer, more, {.tokens = 5, .stop = {}, .never = {}}));
}

// Compares with the definition: among the k largest logits, a token is drawn from the smallest set
// of largest ones that has the share p of the probability of these k.
TEST(Generation, DrawsFromTheLikeliest) {
  uint64_t state = 1;
  for (int n = 0; n < 400; ++n) {
    std::vector<float> logits(1 + n % 40);
    for (float& logit : logits) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      logit = static_cast<float>(state >> 60);  // many logits are equal
    }
    if (n % 5 == 0) logits[static_cast<size_t>(n) % logits.size()] = -std::numeric_limits<float>::infinity();
    const GenerationOptions options = {.temperature = 0.5 + n % 3,
                                       .top_k = static_cast<uint32_t>(n % 7),
                                       .top_p = n % 4 == 0 ? 1 : 0.25 * (n % 4),
                                       .stop = {},
                                       .never = {}};
    std::vector<size_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    if (options.top_k > 0) order.resize(std::min<size_t>(order.size(), options.top_k));
    const auto weight = [&](size_t i) {
      return std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) / options.temperature);
    };
    double all = 0, kept = 0;
    for (const size_t i : order) all += weight(i);
    size_t count = 0;
    while (count < order.size() && (count == 0 || kept < options.top_p * all * (1 - 1e-12)))
      kept += weight(order[count++]);
    if (options.top_k == 0 && options.top_p >= 1) count = order.size();
    std::vector<float> wanted(logits.size(), -std::numeric_limits<float>::infinity()), got = logits;
    for (size_t i = 0; i < count; ++i) wanted[order[i]] = logits[order[i]];
    keep_likeliest(got, options);
    EXPECT_EQ(got, wanted) << n;
  }
}

TEST(Generation, RefusesWhatItsCachesDoNotHold) {
  LlamaNetwork llama = kNetwork;
  BoundPlan bound(plan_with_generation(llama, DType::kF32, 9));
  Trainer& trainer = bound.trainer;
  EXPECT_EQ(generation_limits(*trainer.plan).positions, 9u);
  EXPECT_EQ(generation_limits(*trainer.plan).tokens, kAtOnce);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  std::vector<float> logits(llama.vocabulary);
  const auto status = [&](uint32_t count, uint64_t position) {
    return generate(trainer, tokens.data(), count, position, logits.data());
  };
  EXPECT_EQ(status(1, 1).code, Code::kUnsupported) << "nothing has been put in";
  EXPECT_EQ(status(0, 0).code, Code::kUnsupported);
  EXPECT_EQ(status(5, 0).code, Code::kUnsupported) << "more than the input has";
  EXPECT_TRUE(status(4, 0).ok());
  EXPECT_EQ(status(1, 5).code, Code::kUnsupported) << "a position is left out";
  EXPECT_TRUE(status(4, 4).ok());
  EXPECT_EQ(status(2, 8).code, Code::kUnsupported) << "past the caches";
  EXPECT_TRUE(status(1, 8).ok());
  const std::vector<int32_t> wrong = {1, static_cast<int32_t>(llama.vocabulary)};
  const Status token = generate(trainer, wrong.data(), 2, 3, logits.data());
  EXPECT_EQ(token.code, Code::kIndexOutOfRange);
  EXPECT_EQ(token.detail, 1u);
  EXPECT_EQ(trainer.generated, 3u) << "what stood before it is still there";
  EXPECT_TRUE(status(1, 3).ok());
  StepReport report;
  EXPECT_TRUE(train_step(trainer, token_source(llama), report).ok());
  EXPECT_EQ(status(1, 4).code, Code::kUnsupported) << "a step has taken the caches' memory";
  EXPECT_TRUE(status(1, 0).ok());
}

TEST(Generation, IsLeftOutWhereItDoesNotFit) {
  OwnedPlan plan = plan_run(llama_recipe("generation"), kNetwork.build(), "optimal", 0).planned.plan;
  LlamaNetwork one = kNetwork;
  one.sequence = 4096;  // more tokens at once than fit the training's memory
  EXPECT_EQ(add_generation(plan, one.build(), kCpuRules, WeightWindow{}, 1u << 20), 0u);
  EXPECT_TRUE(plan.program(ProgramId::kGenerate).rows.empty());
  one.sequence = kAtOnce;
  const uint64_t positions = add_generation(plan, one.build(), kCpuRules, WeightWindow{}, 1u << 20);
  EXPECT_GT(positions, kNetwork.sequence);
  OwnedProgram& program = plan.program(ProgramId::kGenerate);
  const uint64_t space = plan.arena_bytes - plan.state_bytes - plan.carried_bytes;
  EXPECT_LE(program.bytes, space);
  EXPECT_GT(program.bytes + 4 * kAlignment * kNetwork.layers, space) << "as many positions as fit";
}

}  // namespace
}  // namespace reprise
