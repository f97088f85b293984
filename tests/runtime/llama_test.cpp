// Tests a small Llama as a whole. Its gradients are compared with a forward in double precision,
// and it must train with the same bits under every schedule. Other tests check each op alone; this
// one checks their combination.
#include "tests/runtime/llama_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "tests/runtime/expect_same.h"

namespace reprise {
namespace {

// ---- the whole network in double ----

using Numbers = std::vector<double>;
using Parameters = std::map<std::string, Numbers>;

// The forward, written from the papers. All matrices are [rows, columns], and all weights [out,
// in].
class Reference {
 public:
  Reference(const LlamaNetwork& llama, const Parameters& parameters, const TokenBatch& batch)
      : llama_(llama), parameters_(parameters), batch_(batch), tokens_(batch.tokens.size()) {}

  // Returns the sum of the losses of the labelled tokens.
  double sum_of_losses() const {
    const Numbers& table = parameters_.at("model.embed_tokens.weight");
    Numbers x(tokens_ * llama_.width);
    for (size_t m = 0; m < tokens_; ++m) {
      for (size_t c = 0; c < llama_.width; ++c)
        x[m * llama_.width + c] = table[static_cast<size_t>(batch_.tokens[m]) * llama_.width + c];
    }
    for (uint32_t layer = 0; layer < llama_.layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer);
      add(x, attention_half(norm(x, name + ".input_layernorm"), name + ".self_attn"));
      add(x, mlp_half(norm(x, name + ".post_attention_layernorm"), name + ".mlp"));
    }
    return loss(linear(norm(x, "model.norm"), llama_.tied ? "model.embed_tokens" : "lm_head"));
  }

 private:
  static void add(Numbers& x, const Numbers& y) {
    std::transform(x.begin(), x.end(), y.begin(), x.begin(), std::plus<>());
  }

  Numbers attention_half(const Numbers& x, const std::string& name) const {
    const Numbers q = rotated(head_norm(linear(x, name + ".q_proj"), name + ".q_norm"));
    const Numbers k = rotated(head_norm(linear(x, name + ".k_proj"), name + ".k_norm"));
    return linear(attention(q, k, linear(x, name + ".v_proj")), name + ".o_proj");
  }
  Numbers mlp_half(const Numbers& x, const std::string& name) const {
    return linear(swiglu(linear(x, name + ".gate_proj"), linear(x, name + ".up_proj")), name + ".down_proj");
  }

  // Returns x W^T, plus s (x A^T) B^T if the layer has an adapter.
  Numbers linear(const Numbers& x, const std::string& name) const {
    Numbers y = product(x, parameters_.at(name + ".weight"));
    const auto down = parameters_.find(name + ".lora_A.weight");
    if (down == parameters_.end()) return y;
    const Numbers adapted = product(product(x, down->second), parameters_.at(name + ".lora_B.weight"));
    for (size_t i = 0; i < y.size(); ++i) y[i] += static_cast<double>(llama_.adapter_scale) * adapted[i];
    return y;
  }
  Numbers product(const Numbers& x, const Numbers& w) const {
    const size_t C = x.size() / tokens_, K = w.size() / C;
    Numbers y(tokens_ * K);
    for (size_t m = 0; m < tokens_; ++m) {
      for (size_t k = 0; k < K; ++k) {
        for (size_t c = 0; c < C; ++c) y[m * K + k] += x[m * C + c] * w[k * C + c];
      }
    }
    return y;
  }

  Numbers head_norm(const Numbers& x, const std::string& name) const { return llama_.head_norms ? norm(x, name) : x; }

  // Normalises rows. A row has as many elements as gamma.
  Numbers norm(const Numbers& x, const std::string& name) const {
    const Numbers& gamma = parameters_.at(name + ".weight");
    const size_t C = gamma.size();
    Numbers y(x.size());
    for (size_t m = 0; m < x.size() / C; ++m) {
      double squares = 0;
      for (size_t c = 0; c < C; ++c) squares += x[m * C + c] * x[m * C + c];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + static_cast<double>(llama_.epsilon));
      for (size_t c = 0; c < C; ++c) y[m * C + c] = x[m * C + c] * rstd * gamma[c];
    }
    return y;
  }

  double frequency(size_t i) const {
    if (llama_.frequency != 0) return static_cast<double>(llama_.frequency);
    return std::pow(static_cast<double>(llama_.theta), -2.0 * static_cast<double>(i) / llama_.rotary);
  }

  // Returns the first token of the document that contains token m.
  size_t first_of_document(size_t m) const {
    const size_t sequence = m / llama_.sequence * llama_.sequence;
    return sequence + (llama_.documents ? static_cast<size_t>(batch_.document_start[m]) : 0);
  }

  // Returns x with rotated pairs. As a complex number, each pair of every head is multiplied by
  // scale * e^(i position frequency).
  Numbers rotated(Numbers x) const {
    const size_t D = llama_.head, columns = x.size() / tokens_, pairs = llama_.rotary / 2;
    const double scale = static_cast<double>(llama_.rope_scale);
    for (size_t m = 0; m < tokens_; ++m) {
      for (size_t h = 0; h < columns / D; ++h) {
        double* head = x.data() + m * columns + h * D;
        for (size_t i = 0; i < pairs; ++i) {
          double& real = head[llama_.neighbours != 0 ? 2 * i : i];
          double& imaginary = head[llama_.neighbours != 0 ? 2 * i + 1 : i + pairs];
          const double angle = static_cast<double>(m - first_of_document(m)) * frequency(i);
          const double before = real;
          real = scale * (before * std::cos(angle) - imaginary * std::sin(angle));
          imaginary = scale * (before * std::sin(angle) + imaginary * std::cos(angle));
        }
      }
    }
    return x;
  }

  Numbers attention(const Numbers& q, const Numbers& k, const Numbers& v) const {
    const size_t D = llama_.head, C = llama_.heads * D, shared_columns = llama_.kv_heads * D;
    Numbers y(tokens_ * C), weights(llama_.sequence);
    for (size_t m = 0; m < tokens_; ++m) {
      const size_t start = first_of_document(m);
      for (size_t h = 0; h < llama_.heads; ++h) {
        const size_t shared = h / (llama_.heads / llama_.kv_heads) * D;
        double sum = 0;
        for (size_t s = start; s <= m; ++s) {
          double score = 0;
          for (size_t d = 0; d < D; ++d) score += q[m * C + h * D + d] * k[s * shared_columns + shared + d];
          sum += weights[s - start] = std::exp(score / std::sqrt(static_cast<double>(D)));
        }
        for (size_t s = start; s <= m; ++s) {
          for (size_t d = 0; d < D; ++d)
            y[m * C + h * D + d] += weights[s - start] / sum * v[s * shared_columns + shared + d];
        }
      }
    }
    return y;
  }

  static Numbers swiglu(const Numbers& gate, const Numbers& up) {
    Numbers y(gate.size());
    for (size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return y;
  }

  double loss(const Numbers& logits) const {
    const size_t V = llama_.vocabulary;
    double total = 0;
    for (size_t m = 0; m < tokens_; ++m) {
      if (batch_.labels[m] == kIgnoredLabel) continue;
      double sum = 0;
      for (size_t v = 0; v < V; ++v) sum += std::exp(logits[m * V + v]);
      total += std::log(sum) - logits[m * V + static_cast<size_t>(batch_.labels[m])];
    }
    return total;
  }

  const LlamaNetwork& llama_;
  const Parameters& parameters_;
  const TokenBatch& batch_;
  const size_t tokens_;
};

Parameters parameters_of(const OwnedPlan& plan, const RunResult& result) {
  Parameters parameters;
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kParameter) continue;
    const std::vector<float> values = state_values(plan, result, state.name);
    parameters[state.name] = Numbers(values.begin(), values.end());
  }
  return parameters;
}

// Central differences in double precision have an error below 1e-7 of the largest gradient here. A
// gradient in f32 has passed through about sixty kernels that round sums of up to 32 terms: 2^-24 *
// sqrt(60 * 32) is 3e-6.
void expect_right_gradients(LlamaNetwork llama) {
  const Recipe recipe = llama_recipe("llama-gradients");
  const PlannedRun run = plan_run(recipe, llama.build(), "optimal", 0);
  const OwnedPlan& plan = run.planned.plan;
  const RunResult before = train_plan(plan, token_source(llama), {.steps = 0}),
                  after = train_plan(plan, token_source(llama), {.steps = 1});
  Parameters parameters = parameters_of(plan, before);
  const TokenBatch batches[] = {token_batch(llama, 0, 0), token_batch(llama, 0, 1)};
  const auto labelled = static_cast<double>(batches[0].labelled() + batches[1].labelled());
  const auto sum_of = [&](const TokenBatch& batch) { return Reference(llama, parameters, batch).sum_of_losses(); };
  const auto loss = [&] { return (sum_of(batches[0]) + sum_of(batches[1])) / labelled; };
  EXPECT_NEAR(after.losses[0], loss(), 1e-6 * loss());
  EXPECT_NEAR(before.evaluation.loss, sum_of(batches[0]) / static_cast<double>(batches[0].labelled()), 1e-6 * loss());
  for (auto& [name, values] : parameters) {
    if (llama.rank != 0 && name.find(".lora_") == std::string::npos) continue;  // frozen, so it has no gradient
    const std::vector<float> gradient = gradient_values(plan, after, name);
    ASSERT_EQ(gradient.size(), values.size());
    constexpr double kStep = 1e-4;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = loss();
      values[i] = value - kStep;
      const double slope = (above - loss()) / (2 * kStep);
      values[i] = value;
      largest = std::max(largest, std::abs(slope));
      worst = std::max(worst, std::abs(slope - static_cast<double>(gradient[i])));
    }
    EXPECT_GT(largest, 1e-4) << name << " hardly matters: nothing is compared";
    EXPECT_LE(worst, 3e-6 * largest) << name;
  }
}

constexpr LlamaNetwork kTiny = {.sequence = 6,
                                .vocabulary = 11,
                                .layers = 2,
                                .width = 8,
                                .hidden = 6,
                                .heads = 4,
                                .kv_heads = 2,
                                .head = 4,
                                .rotary = 4,
                                .theta = 100};

TEST(Llama, GradientsAreThoseOfTheWholeNetwork) { expect_right_gradients(kTiny); }

// In this network, rope rotates neighbouring channels, only some channels of each head, and at
// frequencies from a table.
TEST(Llama, GradientsAreThoseOfAnotherWholeNetwork) {
  LlamaNetwork llama = kTiny;
  llama.frequency = 0.5f;
  llama.tied = false;
  llama.neighbours = 1;
  llama.head = 6;  // head size; four of the six channels are rotated
  llama.heads = 3;
  llama.kv_heads = 1;
  expect_right_gradients(llama);
}

TEST(Llama, GradientsAreThoseOfANetworkWithNormalisedHeadsAndDocuments) {
  LlamaNetwork llama = kTiny;
  llama.head_norms = true;
  llama.documents = true;
  llama.rope_scale = 1.25f;
  expect_right_gradients(llama);
}

TEST(Llama, GradientsAreThoseOfItsAdapters) {
  LlamaNetwork llama = kTiny;
  llama.rank = 2;
  llama.adapter_scale = 1.5f;
  llama.documents = true;
  expect_right_gradients(llama);
}

// ---- training ----

// Requires that trainings under several schedules have the same bits.
void expect_same_bits(const Recipe& recipe, LlamaNetwork llama, DType stored) {
  constexpr int kSteps = 12;
  const Graph network = llama.build(stored);
  const PlannedRun all = plan_run(recipe, network, "none");
  const RunResult expected = train_plan(all.planned.plan, token_source(llama), {.steps = kSteps});
  EXPECT_LT(expected.losses.back(), 0.8 * expected.losses.front()) << recipe.name;
  const std::pair<const char*, double> schedules[] = {{"every-k", 0},  {"revolve", 0},   {"revolve", 0.5},
                                                      {"optimal", 0},  {"optimal", 0.2}, {"optimal", 0.6},
                                                      {"h-revolve", 0}};
  for (const auto& [strategy, share] : schedules) {
    const std::string what = recipe.name + " " + strategy + " share " + std::to_string(share);
    const PlannedRun run = plan_run(recipe, network, strategy, share);
    EXPECT_LT(run.planned.plan.arena_bytes, all.planned.plan.arena_bytes) << what;
    EXPECT_EQ(run.planned.packed_bytes, run.planned.schedule.peak_bytes)
        << what << ": packed must be the schedule's bound";
    expect_same(expected, train_plan(run.planned.plan, token_source(llama), {.steps = kSteps, .workers = 2}), what);
    expect_same(expected,
                train_plan(run.planned.plan, token_source(llama), {.steps = kSteps, .workers = 3, .poison = true}),
                what + " poisoned");
  }
}

TEST(Llama, TrainsWithTheSameBitsUnderEverySchedule) { expect_same_bits(llama_recipe("llama"), {}, DType::kF32); }

TEST(Llama, TrainsInBf16WithTheSameBitsUnderEverySchedule) {
  Recipe recipe = llama_recipe("llama-bf16");
  recipe.dtype = Recipe::Dtype::kBf16;
  expect_same_bits(recipe, {.neighbours = 1, .frequency = 0.25f, .tied = false}, DType::kBf16);
}

TEST(Llama, TrainsAdaptersWithTheSameBitsUnderEverySchedule) {
  Recipe recipe = llama_recipe("llama-adapters");
  recipe.optimizer.lr = 0.05;
  expect_same_bits(recipe, {.head_norms = true, .rank = 3, .adapter_scale = 2, .documents = true}, DType::kF32);
}

TEST(Llama, TrainsAdaptersInBf16WithTheSameBitsUnderEverySchedule) {
  Recipe recipe = llama_recipe("llama-adapters-bf16");
  recipe.dtype = Recipe::Dtype::kBf16;
  recipe.optimizer.lr = 0.05;
  expect_same_bits(recipe, {.rank = 3, .adapter_scale = 2}, DType::kBf16);
}

TEST(Llama, TrainsByLionWithReleasedGradients) {
  expect_same_bits(llama_released_recipe("llama-released"), {.rotary = 4, .micro_batches = 1}, DType::kF32);
}

// Every link except the first and the last must offer residues. A residue lets a link run again
// from some of its inner values.
TEST(Llama, LinksOfferResidues) {
  const SolvedModel model = solve_network(llama_recipe("llama"), LlamaNetwork().build());
  const std::vector<Link>& links = model.chain.links;
  // The first link, the embedding, and the last, the head, are skipped.
  for (size_t i = 1; i + 1 < links.size(); ++i) EXPECT_GT(links[i].residues.size(), 1u) << links[i].name;
}

}  // namespace
}  // namespace reprise
