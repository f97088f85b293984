// Tests the two judges, check and replay, on plans from the planner. Both must accept the plans of
// small recipes, of random recipes and of a Llama, under every strategy. They must reject mutants
// of these plans. Only plans from recipes contain all the recomputation, moves and sums that a
// judge could misjudge. A failure prints the case, strategy, share of memory, seed, program and
// row.
#include "tests/judges/replay.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "lib/check.h"
#include "lib/cpu/cpu_rules.h"
#include "tests/judges/directed_mutants.h"
#include "tests/judges/mutants.h"
#include "tests/judges/plan_edit.h"
#include "tests/judges/semantic_mutants.h"
#include "tests/planner/random_graph.h"
#include "tests/runtime/judged_network.h"
#include "tests/runtime/llama_network.h"
#include "tests/runtime/rearranged_net.h"
#include "tests/runtime/skip_network.h"
#include "tests/runtime/small_recipe.h"
#include "tests/runtime/squeeze_network.h"
#include "tests/runtime/training_harness.h"
#include "tools/plan/graph/cuts.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise::testing {
namespace {

// A network with its recipe. The network replaces the recipe's model.
struct NetworkCase {
  std::string name;
  Recipe recipe;
  Graph network;

  NetworkCase(const std::string& name, const std::string& recipe)
      : name(name), recipe(recipe_from(recipe)), network(build_stored_model(this->recipe, kCpuRules)) {}
  NetworkCase(const std::string& name, const Recipe& recipe, Graph network)
      : name(name), recipe(recipe), network(std::move(network)) {}
};

std::string imagenet_recipe(const std::string& extra) {
  return R"({"name": "imagenet-resnet", "model": {"family": "resnet", "block": "bottleneck", "units": [1, 2, 1, 1], "width": 4, "stem": "imagenet",
         "classes": 6, "image": [37, 41, 3]}, "batch": 2, "optimizer": {"name": "adamw", "no_decay": ["*.bias", "*bn*"]})" +
         extra + "}";
}
std::string untied_recipe(const std::string& extra, const std::string& optimizer = R"({"name": "sgd", "lr": 0.1})") {
  return R"({"name": "untied-gpt", "model": {"family": "gpt2", "vocab_size": 29, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2,
         "tie_word_embeddings": false, "resid_pdrop": 0.2, "embd_pdrop": 0, "attn_pdrop": 0.1},
         "batch": 2, "sequence": 9, "optimizer": )" +
         optimizer + extra + "}";
}

// The model is so wide that the planner offloads some moments, because that reduces the memory.
std::string offloaded_recipe(const std::string& extra, const std::string& optimizer) {
  return R"({"name": "offloaded-gpt", "model": {"family": "gpt2", "vocab_size": 1200, "n_positions": 8, "n_embd": 72, "n_layer": 2, "n_head": 2,
         "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0.1}, "data": {"kind": "synthetic"}, "batch": 2, "sequence": 5, "steps": 10, "seed": 4,
         "optimizer": {)" +
         optimizer + R"(, "offload": true})" + extra + "}";
}

// The model is so wide that the planner streams its matrices, because that reduces the memory.
std::string streamed_recipe(const std::string& extra, const std::string& stream = "true") {
  return R"({"name": "streamed-gpt", "model": {"family": "gpt2", "vocab_size": 40, "n_positions": 16, "n_embd": 32, "n_layer": 3, "n_head": 2,
         "tie_word_embeddings": false, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0.1}, "weights": {"stream": )" +
         stream + R"(},
         "batch": 2, "sequence": 9, "optimizer": {"name": "sgd", "lr": 0.1})" +
         extra + "}";
}

// Returns the recipe of a decoder of two blocks. In families that alternate two kinds of blocks,
// the second block's attention has a window.
std::string decoder_recipe(const std::string& family, const std::string& fields, const std::string& extra = "") {
  return R"({"name": "decoder", "model": {"family": ")" + family +
         R"(", "vocab_size": 31, "hidden_size": 16, "intermediate_size": 20,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32)" +
         fields + R"(}, "batch": 2, "sequence": 11, "optimizer": {"name": "adamw", "no_decay": ["*norm.weight"]})" +
         extra + "}";
}

NetworkCase llama_case() { return {"llama", llama_recipe("llama"), LlamaNetwork().build()}; }
NetworkCase frozen_llama_case() {
  Graph network = LlamaNetwork().build();
  for (Value& value : network.values) value.trainable = value.trainable && !value.decays;
  return {"llama, only norms train", llama_recipe("llama-norms"), network};
}
constexpr LlamaNetwork kAdapted = {
    .rope_scale = 0.5f, .head_norms = true, .rank = 3, .adapter_scale = 2, .documents = true};
NetworkCase adapted_llama_case() { return {"llama, adapters", llama_recipe("llama-adapters"), kAdapted.build()}; }
// Only the adapters of queries are trained. So in the first block only queries need a gradient, but
// the backward of rope also writes the gradients of keys and values.
NetworkCase few_adapters_case() {
  Graph network = kAdapted.build();
  for (Value& value : network.values)
    value.trainable = value.trainable && value.name.find("q_proj") != std::string::npos;
  return {"llama, adapters of q alone", llama_recipe("llama-few-adapters"), network};
}
constexpr PreferenceAttribute kKto = {static_cast<uint32_t>(PreferenceKind::kKto), 0.1, 0, 1.5, 0.5};
NetworkCase pairs_case() {
  return {"llama untied, pairs", llama_recipe("llama-pairs"),
          LlamaNetwork{.tied = false, .documents = true, .preference = PreferenceAttribute{0, 0.1, 0.25}}.build()};
}
NetworkCase adapted_pairs_case() {
  LlamaNetwork adapted = kAdapted;
  adapted.preference = kKto;
  Recipe recipe = llama_recipe("llama-adapters-pairs");
  recipe.dtype = Recipe::Dtype::kBf16;
  return {"llama, adapters, single answers, bf16", recipe, adapted.build(DType::kBf16)};
}
// In an encoder, attention is not causal: each position attends to the complete document.
NetworkCase encoder_case() {
  Graph network = LlamaNetwork{.documents = true}.build();
  for (AttentionAttribute& attention : network.attributes.of<AttentionAttribute>()) attention.causal = 0;
  return {"llama with attention that is not causal", llama_recipe("llama-encoder"), network};
}
// Returns a network with two texts in each row of tokens, and with an embedding of token types.
NetworkCase typed_case() {
  constexpr uint32_t kN = 2, kT = 5, kC = 4, kWords = 7, kTypes = 2, kClasses = 3;
  Graph g;
  g.input = g.add_value("tokens", ValueKind::kInput, {kN, kT}, DType::kI32);
  g.token_types = g.add_value("types", ValueKind::kInput, {kN, kT}, DType::kI32);
  g.document_start = g.add_value("document_start", ValueKind::kInput, {kN, kT}, DType::kI32);
  g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
  const auto table = [&g](const char* name, uint32_t rows) {
    return g.parameter(std::string(name) + ".weight", {rows, kC}, InitKind::kNormal, 0.5f);
  };
  const ValueId words = g.embedding(g.input, "words", table("words", kWords), table("positions", kT));
  const ValueId x =
      g.layer_norm(g.add(words, g.embedding(g.token_types, "kinds", table("kinds", kTypes), kNoValue), "sum"), "norm",
                   1e-5f);
  g.cut(x);
  const ValueId mixed =
      g.attention(g.linear(x, "qkv", 3 * kC, false, true, 0.3f), "core",
                  {.heads = 2, .kv_heads = 2, .dropout = 0, .stream = 0, .causal = 0}, g.document_start);
  const ValueId y = g.add(x, mixed, "half");
  g.cut(y);
  g.loss_head(g.global_pool(y, "pool", g.document_start), "head",
              g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.2f), kNoValue);
  return {"two texts in a row", llama_recipe("typed"), g};
}
// Returns a network whose attention is composed of products, a learned bias and softmax instead of
// one op. It attends first over positions, then over channels.
NetworkCase parts_case() {
  constexpr uint32_t kN = 3, kT = 6, kC = 4, kClasses = 4;
  Graph g;
  g.input = g.add_value("images", ValueKind::kInput, {kN, 2, 3, 3});
  g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
  const ValueId x = g.reshape(g.conv(g.input, "stem", kC, {1, 1, 1, 0}), "tokens", {kN, kT, kC});
  g.cut(x);
  const ValueId q = g.linear(x, "q", kC, false, true, 0.3f),
                scores = g.product(q, g.linear(x, "k", kC, false, true, 0.3f), "scores", {0, 1});
  const ValueId apart = g.learned_rows("apart", {7, kT}, {3, 0, 6, 3, 1, 2}, InitKind::kNormal, 1);
  const ValueId y = g.product(g.softmax(g.add(scores, apart, "biased"), "weights"), x, "mixed");
  g.cut(y);
  const ValueId channels = g.softmax(g.product(y, y, "channels", {1, 0}), "channels.weights");
  const ValueId both = g.product(channels, y, "both", {1, 1});
  const ValueId flat = g.reshape(both, "flat", {kN, kC * kT});
  g.loss_head(flat, "head", g.parameter("head.weight", {kClasses, kC * kT}, InitKind::kNormal, 0.2f), kNoValue);
  return {"attention in parts", llama_recipe("parts"), g};
}
NetworkCase rearranged_case() {
  return {"what only moves", llama_recipe("rearranged"), rearranged::network(DType::kF32)};
}
NetworkCase released_llama_case() {
  Recipe recipe = llama_released_recipe("llama-released");
  recipe.dtype = Recipe::Dtype::kBf16;
  const LlamaNetwork llama = {.rotary = 4, .neighbours = 1, .frequency = 0.25f, .tied = false};
  return {"llama untied by Lion, released, bf16", recipe, llama.build(DType::kBf16)};
}

NetworkCase network_case(const std::string& name, Graph network, bool (*trains)(const std::string& parameter),
                         bool released = false) {
  for (Value& value : network.values) value.trainable = value.trainable && trains(value.name);
  NetworkCase result = {name, small_clipped_recipe(name, network.stored()), network};
  if (released) result.recipe.gradient_release = true, result.recipe.accumulate = 1, result.recipe.clip_norm.reset();
  return result;
}
bool is_any(const std::string&) { return true; }
bool is_leaf(const std::string& parameter) { return parameter == "scale" || parameter == "positions"; }

NetworkCase judged_case(const std::string& name, JudgedNetwork::Ends ends, DType stored = DType::kF32) {
  return {name, small_recipe("judged", stored), JudgedNetwork::build(ends, stored)};
}

std::vector<NetworkCase> cases() {
  const std::string thrice = R"(, "accumulate": 3)", release = R"(, "gradient_release": true)";
  const std::string bf16 = R"(, "dtype": "bf16")";
  return {
      {"basic", resnet_recipe()},
      {"basic released", resnet_recipe(release)},
      {"basic of three ranks, twice each, clipped",
       resnet_recipe(R"(, "accumulate": 2, "clip_norm": 1.0, "parallel": {"ranks": 3})")},
      {"gpt of two ranks", gpt_recipe(R"(, "parallel": {"ranks": 2})")},
      {"basic of two ranks in two levels, twice each",
       resnet_recipe(R"(, "accumulate": 2, "parallel": {"ranks": 2, "order": "two-level"})")},
      {"basic of three ranks that keep momenta among them",
       resnet_recipe(R"(, "clip_norm": 1.0, "parallel": {"ranks": 3, "shard_optimizer": true})")},
      {"gpt of two ranks that keep moments among them",
       gpt_recipe(R"(, "parallel": {"ranks": 2, "shard_optimizer": true})")},
      {"gpt of three ranks that keep moments of matrices among them",
       untied_recipe(R"(, "parallel": {"ranks": 3, "shard_optimizer": true})",
                     R"({"name": "muon", "states": "bf16"})")},
      {"gpt of two ranks in two levels, thrice each",
       gpt_recipe(thrice + R"(, "parallel": {"ranks": 2, "order": "two-level"})")},
      {"gpt that knows of ranks, thrice", gpt_recipe(thrice + R"(, "parallel": {"ranks": 1})")},
      {"gpt of two ranks, adapters beside whole modules",
       untied_recipe(
           R"(, "parallel": {"ranks": 2}, "lora": {"r": 2, "dropout": 0.1, "targets": ["c_attn", "c_proj"], "modules_to_save": ["lm_head", "ln_?"]})")},
      {"bottleneck thrice clipped", resnet_recipe(thrice + R"(, "clip_norm": 1.0)", "bottleneck")},
      {"basic, stem and first stage frozen", resnet_recipe(R"(, "freeze": ["conv1*", "bn1*", "layer1*"])")},
      {"bottleneck, every batch-norm frozen",
       resnet_recipe(thrice + R"(, "freeze": ["*bn*", "*downsample.1*"])", "bottleneck")},
      {"basic, only biases train", resnet_recipe(R"(, "freeze": ["*.weight"])")},
      {"basic, only the head trains", resnet_recipe(R"(, "freeze": ["conv*", "bn*", "layer*"])")},
      {"imagenet stem", imagenet_recipe("")},
      {"imagenet stem thrice", imagenet_recipe(thrice + R"(, "clip_norm": 0.5, "freeze": ["*conv2*"])")},
      {"imagenet stem released, stem frozen", imagenet_recipe(release + R"(, "freeze": ["conv1.weight"])")},
      {"gpt with dropout", gpt_recipe()},
      {"gpt without dropout thrice clipped", gpt_recipe(thrice + R"(, "clip_norm": 1.0)", 0.0)},
      {"gpt released", gpt_recipe(release)},
      {"gpt, embedding and first block frozen", gpt_recipe(thrice + R"(, "freeze": ["*wte*", "*wpe*", "*h.0*"])")},
      {"gpt, only biases train", gpt_recipe(R"(, "freeze": ["*.weight"])")},
      {"gpt untied", untied_recipe("")},
      {"gpt untied released, table frozen", untied_recipe(release + R"(, "freeze": ["*wte*"])")},
      {"gpt untied thrice", untied_recipe(thrice)},
      {"gpt untied thrice, adapters beside whole modules",
       untied_recipe(
           thrice +
           R"(, "lora": {"r": 2, "dropout": 0.1, "targets": ["c_attn", "c_proj"], "rank_pattern": {"h.0.attn.*": 3},
                         "modules_to_save": ["lm_head", "ln_?", "h.1.mlp"]})")},
      {"gpt untied thrice, DoRA",
       untied_recipe(
           thrice +
           R"(, "lora": {"r": 2, "dora": true, "targets": ["c_attn", "c_fc", "h.1.mlp.c_proj"], "modules_to_save": ["ln_?"]})")},
      {"gpt, adapters beside streamed weights", streamed_recipe(thrice + R"(, "lora": {"r": 2, "dropout": 0.1})")},
      {"gpt, DoRA beside streamed weights, released",
       streamed_recipe(R"(, "gradient_release": true, "lora": {"r": 2, "dora": true})")},
      {"gpt, embeddings from the file",
       streamed_recipe(thrice + R"(, "lora": {"r": 2})", R"(false, "embedding": "from_file")")},
      {"gpt, embeddings from the file beside streamed weights, released",
       streamed_recipe(R"(, "gradient_release": true, "lora": {"r": 2})", R"(true, "embedding": "from_file")")},
      {"gpt, adapters beside weights that stream by plan, bf16",
       streamed_recipe(bf16 + R"(, "lora": {"r": 2, "targets": ["c_attn", "c_fc"]})", R"("auto")")},
      {"gpt untied, DoRA, bf16", untied_recipe(bf16 + R"(, "lora": {"r": 3, "dora": true})")},
      {"gpt untied by Adafactor", untied_recipe(thrice, R"({"name": "adafactor"})")},
      {"gpt untied by APOLLO-Mini, trained in bf16, released",
       untied_recipe(R"(, "gradient_release": true, "trained": {"storage": "bf16"})", R"({"name": "apollo_mini"})")},
      {"gpt untied by Muon in codes", untied_recipe("", R"({"name": "muon", "states": "8bit", "adamw_lr": 0.01})")},
      {"basic, bf16", resnet_recipe(bf16 + thrice)},
      {"imagenet stem released, bf16", imagenet_recipe(bf16 + release)},
      {"gpt, bf16", gpt_recipe(bf16)},
      {"mistral thrice", decoder_recipe("mistral", R"(, "sliding_window": 5)", thrice)},
      {"smollm3 released", decoder_recipe("smollm3", R"(, "no_rope_layers": [0, 1])", release)},
      {"phi3, half of a head turns",
       decoder_recipe("phi3", R"(, "sliding_window": 4, "rope_parameters": {"partial_rotary_factor": 0.5})", thrice)},
      {"phi3, adapters, bf16", decoder_recipe("phi3", "", bf16 + R"(, "lora": {"r": 2})")},
      {"gemma2",
       decoder_recipe("gemma2", R"(, "sliding_window": 4, "query_pre_attn_scalar": 5)", R"(, "clip_norm": 1.0)")},
      {"gemma3, adapters thrice", decoder_recipe("gemma3", R"(, "sliding_window": 4, "sliding_window_pattern": 2)",
                                                 thrice + R"(, "lora": {"r": 2})")},
      network_case("squeeze", SqueezeNetwork::build(), is_any),
      network_case("squeeze, bf16", SqueezeNetwork::build(DType::kBf16), is_any),
      network_case("squeeze, only leaves train", SqueezeNetwork::build(), is_leaf),
      network_case("squeeze, only the scale trains", SqueezeNetwork::build(),
                   [](const std::string& p) { return p == "scale"; }),
      network_case("squeeze, leaves and the stem frozen", SqueezeNetwork::build(),
                   [](const std::string& p) { return !is_leaf(p) && p != "stem.weight"; }),
      network_case("skips", SkipNetwork::build(), is_any),
      network_case("skips released", SkipNetwork::build(), is_any, true),
      network_case("skips, bf16", SkipNetwork::build(DType::kBf16), is_any),
      network_case("skips, first layers frozen", SkipNetwork::build(),
                   [](const std::string& p) {
                     return p.rfind("first", 0) != 0 && p.rfind("top", 0) != 0 && p.rfind("down", 0) != 0;
                   }),
      network_case("skips, only the top trains", SkipNetwork::build(),
                   [](const std::string& p) { return p.rfind("top", 0) == 0; }),
      network_case("skips, only the last layer trains", SkipNetwork::build(),
                   [](const std::string& p) { return p.rfind("last", 0) == 0; }),
      judged_case("numbers", JudgedNetwork::Ends::kNumbers),
      judged_case("labels, bf16", JudgedNetwork::Ends::kLabels, DType::kBf16),
      judged_case("pairs", JudgedNetwork::Ends::kPairs),
      judged_case("a map", JudgedNetwork::Ends::kMap),
      judged_case("a map, bf16", JudgedNetwork::Ends::kMap, DType::kBf16),
      llama_case(),
      frozen_llama_case(),
      adapted_llama_case(),
      few_adapters_case(),
      rearranged_case(),
      parts_case(),
      typed_case(),
      pairs_case(),
      adapted_pairs_case(),
      encoder_case(),
      released_llama_case(),
      {"gpt, moments on the host", offloaded_recipe(thrice + R"(, "clip_norm": 1.0)", R"("name": "adamw")")},
      {"gpt, moments in codes on the host, trained in bf16",
       offloaded_recipe(R"(, "trained": {"storage": "bf16"})", R"("name": "adamw", "states": "8bit")")},
      {"gpt by Muon, momenta on the host", offloaded_recipe("", R"("name": "muon")")}};
}

// Draws random recipes. They vary the model, batch, optimizer, types, accumulation, norm clip,
// gradient release, ranks and frozen parameters.
class RecipeDraw {
 public:
  explicit RecipeDraw(uint64_t seed) : random_(seed) {}

  std::string draw() { return one_in(2) ? resnet() : gpt(); }

 private:
  uint64_t below(uint64_t n) { return random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  std::string number(uint64_t minimum, uint64_t maximum) {
    return std::to_string(minimum + below(maximum - minimum + 1));
  }
  std::string pick(const std::vector<std::string>& choices) { return choices[below(choices.size())]; }

  std::string resnet() {
    const bool imagenet = one_in(3), four = one_in(3);
    std::string units = number(1, 3);
    for (int stage = 1; stage < (four ? 4 : 3); ++stage) units += ", " + number(1, 3);
    const std::string image = imagenet ? number(33, 47) + ", " + number(33, 47) : number(9, 17) + ", " + number(9, 17);
    return R"({"name": "random", "model": {"family": "resnet", "block": ")" + pick({"basic", "bottleneck"}) +
           R"(", "units": [)" + units + R"(], "width": )" + pick({"4", "8", "5"}) + R"(, "stem": ")" +
           (imagenet ? "imagenet" : "cifar") + R"(", "classes": )" + number(2, 9) + R"(, "image": [)" + image + ", " +
           number(1, 3) + "]}" +
           rest(R"("*.bias", "*bn*")",
                {"", "", R"("conv1.weight")", R"("conv1*", "bn1*")", R"("conv1*", "bn1*", "layer1*", "layer2.0*")",
                 R"("*bn*")", R"("fc*")", R"("layer2*")", R"("*.bias")", R"("*conv*")", R"("conv*", "bn*", "layer*")"});
  }

  std::string gpt() {
    const std::string sequence = number(3, 14);
    return R"({"name": "random", "model": {"family": "gpt2", "vocab_size": )" + number(7, 60) +
           R"(, "n_positions": 16, "n_embd": )" + pick({"8", "12", "24"}) + R"(, "n_layer": )" + number(1, 4) +
           R"(, "n_head": )" + pick({"1", "2", "4"}) + R"(, "tie_word_embeddings": )" + pick({"true", "false"}) +
           R"(, "resid_pdrop": )" + pick({"0", "0.1"}) + R"(, "embd_pdrop": )" + pick({"0", "0.2"}) +
           R"(, "attn_pdrop": )" + pick({"0", "0.3"}) + R"(}, "sequence": )" + sequence +
           rest(R"("*.bias", "*ln_*")",
                {"", "", R"("*wte*")", R"("*wpe*")", R"("*wte*", "*wpe*", "*h.0*")", R"("*ln_*")", R"("*.bias")",
                 R"("*mlp*")", R"("*attn*")", R"("*.weight")", R"("*ln_f*", "*c_proj*")"});
  }

  std::string rest(const std::string& no_decay, const std::vector<std::string>& freezes) {
    const bool release = one_in(3);
    std::string text =
        R"(, "batch": )" + number(2, 4) + R"(, "seed": )" + number(0, 99) + R"(, "optimizer": {"name": )" +
        pick({R"("sgd")", R"("sgd", "momentum": 0.9)", R"("sgd", "momentum": 0.9, "nesterov": true)", R"("adamw")",
              R"("lion")", R"("sgd", "momentum": 0.9, "states": "bf16")", R"("adamw", "states": "8bit")",
              R"("lion", "states": "8bit")", R"("adafactor")", R"("apollo", "rank": 2)", R"("apollo_mini")",
              R"("muon")", R"("muon", "states": "bf16", "adamw_lr": 0.01)"}) +
        R"(, "weight_decay": )" + pick({"0", "0.01"}) + (one_in(2) ? R"(, "no_decay": [)" + no_decay + "]" : "") + "}";
    const bool keeps = text.find(R"("sgd", "weight_decay")") == std::string::npos;
    if (release) text += R"(, "gradient_release": true)";
    if (!release) text += R"(, "accumulate": )" + pick({"1", "2", "3"}) + (one_in(2) ? R"(, "clip_norm": 1)" : "");
    if (one_in(4)) text += R"(, "dtype": "bf16")";
    if (one_in(4)) text += R"(, "trained": {"storage": "bf16"})";
    const std::string freeze = pick(freezes);
    if (!release && one_in(4))
      text += R"(, "parallel": {"ranks": )" + pick({"1", "2", "3"}) + R"(, "order": ")" + pick({"flat", "two-level"}) +
              R"(", "shard_optimizer": )" + (keeps && one_in(2) ? "true}" : "false}");
    return text + (freeze.empty() ? "" : R"(, "freeze": [)" + freeze + "]") + "}";
  }

  std::mt19937_64 random_;
};

struct Choice {
  const char* strategy;
  // Position of the budget between the smallest that fits (0) and the bytes for storing everything
  // (1). Negative: no budget.
  double share;
};
constexpr Choice kChoices[] = {{"none", -1},     {"every-k", 0},   {"every-k", 0.5},     {"sqrt", 0},
                               {"revolve", 0},   {"revolve", 0.4}, {"optimal", 0},       {"optimal", 0.3},
                               {"optimal", 0.7}, {"chen", 0},      {"chen-recursive", 0}, {"multistage", 0},
                               {"h-revolve", 0}, {"h-revolve", 0.2}};

constexpr DiskLevel kFastDisk = {uint64_t{1} << 30, 0.5, 0.25};  // so fast that schedules use it

// Makes plans of one network, which is solved once.
class Plans {
 public:
  explicit Plans(const NetworkCase& c) : model_(solve_network(c.recipe, c.network)) {}

  // Returns the plan for a choice of strategy and budget. Returns none if the strategy's smallest
  // budget exceeds the bytes for storing everything: there is then no range from which `share`
  // could select. Only optimal and h-revolve never need more (plan_placed).
  std::optional<PlannedModel> plan(const Choice& choice) {
    ScheduleRequest request = request_of(model_);
    request.strategy = choice.strategy;
    request.disk = chooses_for_disk(choice.strategy) ? kFastDisk : DiskLevel{};
    model_.recipe.budget_bytes.reset();
    if (choice.share >= 0) {
      const uint64_t minimum = smallest_budget(model_, request);
      if (minimum > model_.store_all_bytes) return std::nullopt;
      model_.recipe.budget_bytes =
          minimum + static_cast<uint64_t>(choice.share * static_cast<double>(model_.store_all_bytes - minimum));
    }
    return plan_model(model_, request);
  }

  OwnedPlan plan_that_holds_tapes() const {
    const Schedule schedule = schedule_that_holds_tapes(model_.chain);
    return lower_schedule(model_, schedule, layout_chain(model_.chain, schedule.actions));
  }

 private:
  SolvedModel model_;
};

Verdict check_plan(const Plan& plan) {
  std::vector<CheckMark> marks(check_marks(plan));
  return check(plan, marks.data(), kCpuRules);
}
std::string text_of(const Verdict& v) {
  return std::string(fault_text(v.fault)) + " (program " + std::to_string(v.program) + " row " + std::to_string(v.row) +
         " slot " + std::to_string(v.slot) + ")";
}
std::string text_of(const std::string& name, const Choice& choice) {
  return "case \"" + name + "\" strategy " + choice.strategy + " share " + std::to_string(choice.share);
}

void expect_accepted_by_both(const NetworkCase& c) {
  Replay replay(c.network, c.recipe);
  Plans plans(c);
  for (const Choice& choice : kChoices) {
    const std::optional<PlannedModel> planned = plans.plan(choice);
    if (!planned) continue;
    ASSERT_TRUE(planned->fits) << text_of(c.name, choice) << "\n" << canonical_recipe(c.recipe);
    const Plan plan = planned->plan.view();
    const Verdict checked = check_plan(plan);
    EXPECT_TRUE(checked.ok()) << text_of(c.name, choice) << "\ncheck: " << text_of(checked) << "\n"
                              << canonical_recipe(c.recipe);
    const ReplayVerdict replayed = replay.judge(plan);
    EXPECT_TRUE(replayed.ok) << text_of(c.name, choice) << "\nreplay: " << replayed.text() << "\n"
                             << canonical_recipe(c.recipe);
  }
}

TEST(Replay, AcceptsEveryPlan) {
  for (const NetworkCase& c : cases()) expect_accepted_by_both(c);
}

TEST(Replay, AcceptsTapesThatOutliveTheirInputs) {
  for (const NetworkCase& c : cases()) {
    const OwnedPlan plan = Plans(c).plan_that_holds_tapes();
    EXPECT_TRUE(check_plan(plan.view()).ok()) << c.name << ": " << text_of(check_plan(plan.view()));
    const ReplayVerdict replayed = Replay(c.network, c.recipe).judge(plan.view());
    EXPECT_TRUE(replayed.ok) << c.name << ": " << replayed.text();
  }
}

TEST(Replay, AcceptsRandomRecipes) {
  constexpr uint64_t kSeeds = 100;
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    expect_accepted_by_both({"random, seed " + std::to_string(seed), RecipeDraw(seed).draw()});
}

// These graphs have large blocks with cuts inside them. Values other than the boundary that cross
// such a cut are skips, which are kept.
TEST(Replay, AcceptsRandomGraphsWithSkipValues) {
  size_t skips = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Graph graph = random_graph(random, 40 + random() % 40, 20);
    graph.boundaries = find_cuts(graph);
    for (Value& value : graph.values) value.trainable = value.trainable && random() % 4 != 0;
    const NetworkCase c = network_case("random graph, seed " + std::to_string(seed), graph, is_any, random() % 2 == 0);
    expect_accepted_by_both(c);
    const SolvedModel model = solve_network(c.recipe, c.network);
    for (const Value& value : model.graph.values) skips += value.kind == ValueKind::kSkip;
  }
  EXPECT_GT(skips, 50u);
}

// A field that is listed as ignored must exist in the kernel's attribute; otherwise the entry has
// no effect.
TEST(Replay, IgnoredFieldsExist) {
  for (const IgnoredField& ignored : kIgnoredFields) {
    ASSERT_LT(ignored.kernel, kKernelCount) << ignored.field;
    AttributeKind kind = 0;
    bool found = false;
    for_each_pool(AttributeTables{}, [&](const auto& pool) {
      using Attribute = typename std::decay_t<decltype(pool)>::value_type;
      if (kind++ != kOps[ignored.kernel].attribute) return;
      Attribute{}.fields([&](const char* field, const auto&) { found = found || std::string(field) == ignored.field; });
    });
    EXPECT_TRUE(found) << kOps[ignored.kernel].name << " has no " << ignored.field;
  }
}

TEST(Replay, NoRowIsIdle) {
  for (const NetworkCase& c : cases()) {
    Plans plans(c);
    for (const Choice& choice : kChoices) {
      const std::optional<PlannedModel> planned = plans.plan(choice);
      if (!planned) continue;
      const OwnedPlan& plan = planned->plan;
      ReplayTrace trace;
      ASSERT_TRUE(Replay(c.network, c.recipe).judge(plan.view(), &trace).ok);
      for (uint32_t p = 0; p < kProgramCount; ++p) {
        const std::vector<uint32_t> idle = idle_rows(plan, static_cast<ProgramId>(p), trace);
        EXPECT_TRUE(idle.empty()) << text_of(c.name, choice) << ": nobody reads what " << idle.size()
                                  << " rows of program " << p << " compute, the first of them row " << idle.front();
      }
    }
  }
}

// Counts of mutants, summed over many plans. `own` counts the mutants of semantic_mutants.h,
// `semantic` and `unsafe` those of mutants.h (`unsafe` also directed ones). `unsafe_replayed`
// counts unsafe mutants that the replay also rejected. `neutral` counts mutants that change
// nothing.
struct Tally {
  int unsafe = 0, unsafe_replayed = 0, semantic = 0, own = 0, neutral = 0;
  // For each kind of unsafe mutant: the mutants made, and the mutants that the replay rejected.
  std::map<std::string, std::pair<int, int>> kinds;
  std::set<std::string> own_kinds, semantic_kinds;
};
std::string kind_of(const std::string& mutant) { return mutant.substr(0, mutant.find(" at program")); }

// Judges the mutants of mutants.h. check() must report an acceptable fault for each, and the replay
// must reject each semantic mutant. Skips semantic mutants that change nothing.
void judge_mutants(const std::string& name, const NetworkCase& c, const OwnedPlan& good, const ReplayTrace& trace,
                   uint64_t seed, Tally& tally) {
  Replay replay(c.network, c.recipe);
  for (const PlanMutant& mutant : make_mutants(good, seed)) {
    const std::string where = name + " seed " + std::to_string(seed) + "\nmutant: " + mutant.name;
    const Plan plan = mutant.plan.view();
    const Verdict checked = check_plan(plan);
    if (mutant.semantic && changes_nothing(good, mutant.plan, trace)) {
      ++tally.neutral;
      continue;
    }
    EXPECT_NE(std::find(mutant.acceptable.begin(), mutant.acceptable.end(), checked.fault), mutant.acceptable.end())
        << where << "\ncheck: " << text_of(checked);
    const ReplayVerdict replayed = replay.judge(plan);
    if (mutant.semantic) {
      ++tally.semantic;
      tally.semantic_kinds.insert(kind_of(mutant.name));
      EXPECT_FALSE(replayed.ok) << where << "\nthe replay accepts it";
    } else {
      ++tally.unsafe;
      tally.unsafe_replayed += replayed.ok ? 0 : 1;
      auto& [made, rejected] = tally.kinds[kind_of(mutant.name)];
      ++made;
      rejected += replayed.ok ? 0 : 1;
    }
  }
}

void judge_semantic_mutants(const std::string& name, const NetworkCase& c, const OwnedPlan& good,
                            const ReplayTrace& trace, uint64_t seed, Tally& tally) {
  Replay replay(c.network, c.recipe);
  for (const SemanticMutant& mutant : make_semantic_mutants(good, trace, seed)) {
    ++tally.own;
    tally.own_kinds.insert(kind_of(mutant.name));
    EXPECT_FALSE(replay.judge(mutant.plan.view()).ok)
        << name << " seed " << seed << "\nmutant: " << mutant.name << "\nthe replay accepts it";
  }
}

// Judges the mutants of directed_mutants.h. check() must report exactly the planted fault of each.
void judge_directed_mutants(const std::string& name, const OwnedPlan& good, Tally& tally) {
  for (const PlanMutant& mutant : make_directed_mutants(good)) {
    const Verdict checked = check_plan(mutant.plan.view());
    EXPECT_EQ(checked.fault, mutant.acceptable.at(0))
        << name << "\nmutant: " << mutant.name << "\ncheck: " << text_of(checked);
    ++tally.unsafe;
  }
}

TEST(Replay, BothJudgesRejectMutants) {
  constexpr Choice kMutated[] = {{"none", -1},     {"sqrt", 0},      {"revolve", 0},   {"optimal", 0},
                                 {"optimal", 0.4}, {"h-revolve", 0}, {"multistage", 0}};
  Tally tally;
  uint64_t seed = 0;
  for (const NetworkCase& c : cases()) {
    Plans plans(c);
    for (const Choice& choice : kMutated) {
      ++seed;
      const std::optional<PlannedModel> planned = plans.plan(choice);
      if (!planned) continue;
      ASSERT_TRUE(planned->fits);
      const OwnedPlan& good = planned->plan;
      ReplayTrace trace;
      ASSERT_TRUE(Replay(c.network, c.recipe).judge(good.view(), &trace).ok);
      const std::string name = text_of(c.name, choice);
      judge_mutants(name, c, good, trace, seed, tally);
      judge_semantic_mutants(name, c, good, trace, seed, tally);
      judge_directed_mutants(name, good, tally);
    }
  }
  EXPECT_EQ(tally.own_kinds.size(), 69u) << "a kind of semantic mutant found no place in any plan";
  for (const char* kind :
       {"nobody waits", "used before its wait", "source overwritten in flight", "reads another block",
        "a kernel reads the disk", "the forward's slot is read after its memory was filled again",
        "loads another weight", "a kernel reads the file of weights", "the spill file's carrier loads"}) {
    EXPECT_EQ(tally.semantic_kinds.count(kind), 1u) << kind << ": found no place in any plan";
  }
  const auto [overlaps, rejected_overlaps] = tally.kinds["two disk blocks overlap"];
  EXPECT_GT(overlaps, 0);
  EXPECT_EQ(rejected_overlaps, overlaps) << "the replay accepts a block that another one has overwritten";
  std::printf(
      "mutants: %d unsafe ones named by the checker (%d of them rejected by the replay too), %d semantic ones rejected "
      "by the replay\n",
      tally.unsafe, tally.unsafe_replayed, tally.semantic + tally.own);
  RecordProperty("unsafe_mutants", tally.unsafe);
  RecordProperty("unsafe_mutants_that_the_replay_rejects_too", tally.unsafe_replayed);
  RecordProperty("semantic_mutants_of_mutants_h", tally.semantic);
  RecordProperty("semantic_mutants", tally.own);
  RecordProperty("neutral_passed_over", tally.neutral);
  for (const auto& [kind, counts] : tally.kinds) {
    RecordProperty("replay rejects " + kind, std::to_string(counts.second) + " of " + std::to_string(counts.first));
  }
}

uint32_t first_reader(const OwnedPlan& plan, Op op, Pass pass) {
  const std::vector<Row>& rows = plan.program(ProgramId::kMicroFirst).rows;
  return static_cast<uint32_t>(
      std::find_if(rows.begin(), rows.end(), [=](const Row& r) { return r.op == op && r.pass == pass; }) -
      rows.begin());
}

// Both judges must accept that a weight of State, or the f32 sum that its update reads, is written
// to disk and read back. They must reject mutants of such plans.
TEST(Replay, BothJudgesFollowATransferOfAnything) {
  const NetworkCase c("gpt released", gpt_recipe(R"(, "gradient_release": true)"));
  const OwnedPlan plain = Plans(c).plan({"none", -1})->plan;
  struct {
    Op op;
    Pass pass;
    uint32_t argument;
  } const spilled[] = {{Op::kLinear, Pass::kForward, LinearForward::kW},
                       {Op::kGradNorm, Pass::kReduce, GradNormReduce::kGradients}};
  Tally tally;
  for (const auto& [op, pass, argument] : spilled) {
    OwnedPlan plan = plain;
    carry_argument(plan, ProgramId::kMicroFirst, first_reader(plan, op, pass), argument, Way::kDisk);
    EXPECT_TRUE(check_plan(plan.view()).ok()) << text_of(check_plan(plan.view()));
    ReplayTrace trace;
    const ReplayVerdict replayed = Replay(c.network, c.recipe).judge(plan.view(), &trace);
    ASSERT_TRUE(replayed.ok) << replayed.text();
    for (uint64_t seed = 0; seed < 8; ++seed) judge_mutants("a spilled argument", c, plan, trace, seed, tally);
    OwnedPlan wrong = plan;  // another weight of the same form goes to disk, which only the replay can detect
    const uint32_t start = first_reader(wrong, Op::kTransfer, Pass::kStart);
    OwnedProgram& p = wrong.program(ProgramId::kMicroFirst);
    const Ref source = ProgramEditor(p).arguments(start)[1];
    ASSERT_EQ(is_slot(source), op == Op::kGradNorm);
    if (is_slot(source)) continue;
    uint32_t other = ref_index(source) + 1;
    while (!same_shape(wrong.state[other].tensor, wrong.state[ref_index(source)].tensor)) ++other;
    for (uint32_t row : {start, start + 1}) ProgramEditor(p).set_argument(row, 1, make_ref(Region::kState, other));
    EXPECT_TRUE(check_plan(wrong.view()).ok());
    EXPECT_FALSE(Replay(c.network, c.recipe).judge(wrong.view()).ok) << "another weight is taken for the right one";
  }
  for (const char* kind : {"nobody waits", "used before its wait"})
    EXPECT_EQ(tally.semantic_kinds.count(kind), 1u) << kind;
}

}  // namespace
}  // namespace reprise::testing
