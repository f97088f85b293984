// Tests that loss and gradients of a step depend only on its labelled tokens, and not on how these
// are distributed over micro-batches and sequences. Each distribution has a plan of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/runtime/llama_network.h"
#include "tests/runtime/training_harness.h"

namespace reprise {
namespace {

constexpr LlamaNetwork kNetwork = {.batch = 2, .sequence = 9, .vocabulary = 23, .layers = 2, .head_norms = true};

// Returns the content of micro-batch `micro_batch` of the step.
using Deal = std::function<TokenBatch(uint32_t micro_batch)>;
struct DealtSource {
  Deal deal;
  uint64_t labelled;
};
BatchSource source_of(DealtSource& dealt) {
  return {&dealt,
          [](void* state, uint64_t, uint32_t micro_batch, BatchSink& sink) {
            const TokenBatch batch = static_cast<const DealtSource*>(state)->deal(micro_batch);
            sink.add(batch.tokens.data(), batch.tokens.size() * sizeof(int32_t), batch.labels.data(),
                     batch.labels.size(), batch.document_start.empty() ? nullptr : batch.document_start.data());
            return ok_status();
          },
          [](void* state, uint64_t) { return static_cast<const DealtSource*>(state)->labelled; }};
}

struct Step {
  OwnedPlan plan;
  RunResult result;
  double labelled;
};
Step run_step(const LlamaNetwork& llama, uint64_t micro_batches, const Deal& deal) {
  Recipe recipe = llama_recipe("dealt");
  recipe.accumulate = static_cast<int>(micro_batches);
  recipe.clip_norm.reset();
  DealtSource dealt = {deal, 0};
  for (uint32_t u = 0; u < micro_batches; ++u) dealt.labelled += deal(u).labelled();
  OwnedPlan plan = plan_run(recipe, llama.build(), "optimal", 0).planned.plan;
  RunResult result = train_plan(plan, source_of(dealt), {.steps = 1});
  return {std::move(plan), std::move(result), static_cast<double>(dealt.labelled)};
}

// Relative tolerance. Steps that distribute tokens differently add in different orders: about sixty
// kernels round by 2^-24 each, and terms of a gradient may cancel.
constexpr double kRounding = 3e-6;

// Requires that the gradients of `got` are the weighted sum of those of the steps in `expected`.
void expect_gradients(const Step& got, const std::vector<std::pair<const Step*, double>>& expected) {
  for (const StateTensor& state : got.plan.state) {
    if (state.kind != StateKind::kParameter) continue;
    const std::vector<float> gradient = gradient_values(got.plan, got.result, state.name);
    std::vector<double> want(gradient.size());
    for (const auto& [step, weight] : expected) {
      const std::vector<float> part = gradient_values(step->plan, step->result, state.name);
      ASSERT_EQ(part.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) want[i] += weight * static_cast<double>(part[i]);
    }
    double largest = 0, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      worst = std::max(worst, std::abs(want[i] - static_cast<double>(gradient[i])));
    }
    EXPECT_GT(largest, 1e-5) << state.name;
    EXPECT_LE(worst, kRounding * largest) << state.name;
  }
}

// Returns `count` rows of a batch, from row `first` on.
TokenBatch rows_of(const TokenBatch& all, uint32_t sequence, uint32_t first, uint32_t count) {
  const auto part = [&](const std::vector<int32_t>& values) {
    return values.empty()
               ? values
               : std::vector<int32_t>(values.begin() + first * sequence, values.begin() + (first + count) * sequence);
  };
  return {part(all.tokens), part(all.labels), part(all.document_start)};
}

// A step of four micro-batches, one of which has no label, must equal a step of one micro-batch
// that is four times as large. The loss is divided by the labels of the step, not by those of a
// micro-batch.
TEST(StepOfUnequalMasks, IsThatOfOneMicroBatchWithAllItsRows) {
  LlamaNetwork large = kNetwork;
  large.batch = 4 * kNetwork.batch;
  TokenBatch all = token_batch(large, 0, 0);
  const uint32_t labels_of_row[] = {9, 1, 0, 0, 3, 9, 2, 5};
  for (size_t i = 0; i < all.labels.size(); ++i) {
    if (i % large.sequence >= labels_of_row[i / large.sequence]) all.labels[i] = kIgnoredLabel;
  }
  const Step whole = run_step(large, 1, [&](uint32_t) { return all; });
  const Step parts = run_step(kNetwork, 4, [&](uint32_t u) {
    return rows_of(all, large.sequence, u * kNetwork.batch, kNetwork.batch);
  });
  EXPECT_EQ(whole.labelled, 29);
  EXPECT_NEAR(parts.result.losses[0], whole.result.losses[0], 1e-6 * whole.result.losses[0]);
  expect_gradients(parts, {{&whole, 1}});
}

// A sequence with two documents must give the results of the two documents in separate sequences,
// weighted by their labels. No position may attend to the other document, and both documents begin
// at position 0.
TEST(PackedDocuments, GiveWhatTheyGiveApart) {
  constexpr uint32_t kFirst = 5;
  LlamaNetwork packed = kNetwork;
  packed.batch = 1, packed.documents = true;
  TokenBatch both = {{3, 18, 1, 8, 20, 7, 15, 9, 2},
                     {18, 1, 8, 20, kIgnoredLabel, 15, kIgnoredLabel, 2, 13},
                     {0, 0, 0, 0, 0, 5, 5, 5, 5}};
  const auto alone = [&](uint32_t first, uint32_t count) {
    LlamaNetwork one = kNetwork;
    one.batch = 1, one.sequence = count;
    return run_step(one, 1, [&both, first, count](uint32_t) {
      const auto part = [&](const std::vector<int32_t>& values) {
        return std::vector<int32_t>(values.begin() + first, values.begin() + first + count);
      };
      return TokenBatch{part(both.tokens), part(both.labels), {}};
    });
  };
  const Step a = alone(0, kFirst), b = alone(kFirst, packed.sequence - kFirst),
             together = run_step(packed, 1, [&](uint32_t) { return both; });
  ASSERT_EQ(together.labelled, a.labelled + b.labelled);
  const double of_a = a.labelled / together.labelled, of_b = b.labelled / together.labelled;
  const double loss = of_a * a.result.losses[0] + of_b * b.result.losses[0];
  EXPECT_NEAR(together.result.losses[0], loss, 1e-6 * loss);
  expect_gradients(together, {{&a, of_a}, {&b, of_b}});

  // A wrong batch, in which both documents count as one. The loss must differ.
  both.document_start.assign(both.document_start.size(), 0);
  const Step wrong = run_step(packed, 1, [&](uint32_t) { return both; });
  EXPECT_GT(std::abs(wrong.result.losses[0] - loss), 1e-3 * loss);
}

// ---- rules for sources of batches ----

struct Promise {
  uint64_t labelled;
  bool documents;
};
Status step_with(const LlamaNetwork& llama, const Promise& promise) {
  const OwnedPlan owned = plan_run(llama_recipe("promise"), llama.build(), "none").planned.plan;
  const Plan plan = owned.view();
  const TestArena arena(plan.arena_bytes);
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  EXPECT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer).ok());
  struct Given {
    const LlamaNetwork& llama;
    const Promise& promise;
  } given = {llama, promise};
  const BatchSource source = {&given,
                              [](void* state, uint64_t, uint32_t, BatchSink& sink) {
                                const Given& own = *static_cast<const Given*>(state);
                                const TokenBatch batch = token_batch(own.llama, 0, 0);
                                const std::vector<int32_t> starts(batch.labels.size(), 0);
                                sink.add(batch.tokens.data(), batch.tokens.size() * sizeof(int32_t),
                                         batch.labels.data(), batch.labels.size(),
                                         own.promise.documents ? starts.data() : nullptr);
                                return ok_status();
                              },
                              [](void* state, uint64_t) { return static_cast<const Given*>(state)->promise.labelled; }};
  StepReport report;
  const std::vector<float> before = floats_of(trainer, kFirstTrained);
  const Status status = train_step(trainer, source, report);
  EXPECT_EQ(trainer.step, status.ok() ? 1u : 0u);
  EXPECT_TRUE(status.ok() || before == floats_of(trainer, kFirstTrained))
      << "a step that was refused has changed a weight";
  return status;
}

TEST(BatchSource, MustGiveTheLabelsThatItSays) {
  const uint64_t labelled = 2 * kNetwork.batch * kNetwork.sequence;  // labels in the two micro-batches of a step
  EXPECT_TRUE(step_with(kNetwork, {labelled, false}).ok());
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{1}, labelled - 1, labelled + 1}) {
    const Status status = step_with(kNetwork, {wrong, false});
    EXPECT_EQ(status.code, Code::kUnsupported) << wrong;
    EXPECT_EQ(status.detail, 1u) << "names the step";
  }
}

TEST(BatchSource, GivesStartsOfDocumentsWhereThePlanHasAPlaceForThem) {
  LlamaNetwork documents = kNetwork;
  documents.documents = true;
  const uint64_t labelled = 2 * token_batch(documents, 0, 0).labelled();
  EXPECT_TRUE(step_with(documents, {labelled, true}).ok());
  EXPECT_EQ(step_with(documents, {labelled, false}).code, Code::kUnsupported);
  EXPECT_EQ(step_with(kNetwork, {2 * kNetwork.batch * kNetwork.sequence, true}).code, Code::kUnsupported);
}

}  // namespace
}  // namespace reprise
