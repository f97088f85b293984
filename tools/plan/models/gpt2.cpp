// GPT-2 (Radford et al. 2019) with Hugging Face's names: pre-norm blocks, gelu_new, a head tied to
// the token table.
#include "tools/plan/models/gpt2.h"

#include <algorithm>
#include <cmath>

#include "lib/op.h"
#include "tools/files/formats/json_fields.h"
#include "tools/plan/graph/graph.h"

namespace reprise {

namespace {

class Gpt2Builder {
 public:
  Gpt2Builder(Graph& graph, const Gpt2Model& model)
      : g_(graph), model_(model), std_(static_cast<float>(model.initializer_range)),
        projection_std_(std_ / std::sqrt(2.0f * static_cast<float>(model.n_layer))),
        epsilon_(static_cast<float>(model.layer_norm_epsilon)) {}

  void build(uint32_t batch, uint32_t sequence) {
    const uint32_t vocabulary = static_cast<uint32_t>(model_.vocab_size), width = static_cast<uint32_t>(model_.n_embd);
    g_.input = g_.add_value("tokens", ValueKind::kInput, {batch, sequence}, DType::kI32);
    g_.labels = g_.add_value("labels", ValueKind::kLabels, {batch, sequence}, DType::kI32);
    const ValueId table = g_.parameter("transformer.wte.weight", {vocabulary, width}, InitKind::kNormal, std_);
    const ValueId positions = g_.parameter("transformer.wpe.weight", {static_cast<uint32_t>(model_.n_positions), width},
                                           InitKind::kNormal, std_);
    ValueId x =
        dropped(g_.embedding(g_.input, "transformer.wte", table, positions), "transformer.drop", model_.embd_pdrop);
    for (int layer = 0; layer < model_.n_layer; ++layer) {
      const std::string name = "transformer.h." + std::to_string(layer);
      x = g_.add(attention_half(x, name), x, name + ".attn");  // the sum is written over its first input
      x = g_.add(mlp_half(x, name), x, name + ".mlp");
    }
    const ValueId y = g_.layer_norm(x, "transformer.ln_f", epsilon_);
    const ValueId head = model_.tie_word_embeddings
                             ? table
                             : g_.parameter("lm_head.weight", {vocabulary, width}, InitKind::kNormal, std_);
    g_.loss_head(y, "lm_head", head, kNoValue);
  }

 private:
  ValueId dropped(ValueId x, const std::string& name, double probability) {
    return probability > 0 ? g_.dropout(x, name, static_cast<float>(probability)) : x;
  }

  ValueId attention_half(ValueId x, const std::string& name) {
    const uint32_t width = static_cast<uint32_t>(model_.n_embd);
    const ValueId normal = g_.layer_norm(x, name + ".ln_1", epsilon_);
    const ValueId qkv = g_.linear(normal, name + ".attn.c_attn", 3 * width, true, true, std_);
    const uint32_t heads = static_cast<uint32_t>(model_.n_head);
    const ValueId mixed = g_.attention(
        qkv, name + ".attn.core",
        {.heads = heads, .kv_heads = heads, .dropout = static_cast<float>(model_.attn_pdrop), .stream = 0});
    const ValueId out = g_.linear(mixed, name + ".attn.c_proj", width, true, true, projection_std_);
    return dropped(out, name + ".attn.resid_dropout", model_.resid_pdrop);
  }

  ValueId mlp_half(ValueId x, const std::string& name) {
    const ValueId normal = g_.layer_norm(x, name + ".ln_2", epsilon_);
    const ValueId hidden =
        g_.linear(normal, name + ".mlp.c_fc", static_cast<uint32_t>(model_.n_inner), true, true, std_);
    const ValueId active = g_.gelu(hidden, name + ".mlp.act", true);
    const ValueId out =
        g_.linear(active, name + ".mlp.c_proj", static_cast<uint32_t>(model_.n_embd), true, true, projection_std_);
    return dropped(out, name + ".mlp.dropout", model_.resid_pdrop);
  }

  Graph& g_;
  const Gpt2Model& model_;
  const float std_, projection_std_, epsilon_;
};

// Reads a field that has two names in GPT2Config.
void read_size(const JsonFields& fields, const std::string& name, const std::string& alias, int& target,
               const KeyText& text) {
  int aliased = target;
  fields.read(alias, aliased, 1, kMaxCount, {text.meaning + "; in gpt2 the other name of " + name, text.unit});
  if (!fields.has(name)) target = aliased;
  fields.read(name, target, 1, kMaxCount, text);
  if (fields.has(alias) && aliased != target)
    fields.refuse(alias, "contradicts \"" + name + "\", its other name; give one");
}

// Refuses variants of GPT-2's mathematics that a config can switch on. If a variant were ignored, a
// different model would be trained.
void refuse_gpt2_variants(const JsonFields& fields) {
  const auto must_be = [&](const char* key, bool right) {
    bool value = right;
    fields.read(key, value, {"A variant of the mathematics that is not available yet: leave it out"});
    if (value != right) fields.refuse(key, std::string("is not available yet; must be ") + (right ? "true" : "false"));
  };
  must_be("scale_attn_weights", true);
  must_be("scale_attn_by_inverse_layer_idx", false);
  must_be("add_cross_attention", false);
  // These are three names of one function.
  constexpr Word<bool> kNamesOfGeluNew[] = {{"gelu_new", true}, {"gelu_pytorch_tanh", true}, {"gelu_fast", true}};
  bool gelu_new = true;
  fields.read_choice("activation_function", gelu_new, kNamesOfGeluNew,
                     {"Three names of one function, the only one available"});
}

}  // namespace

// Ignores other keys: a config.json has many that do not concern training.
Gpt2Model Gpt2Model::read(const JsonFields& fields) {
  Gpt2Model model;
  fields.read("vocab_size", model.vocab_size, 2, kMaxCount, {"How many different tokens there are; 256 for bytes"});
  read_size(fields, "n_positions", "max_position_embeddings", model.n_positions, {"The longest sample", "tokens"});
  read_size(fields, "n_embd", "hidden_size", model.n_embd,
            {"The width of the residual stream, a multiple of n_head", "channels"});
  read_size(fields, "n_layer", "num_hidden_layers", model.n_layer,
            {"The depth; each block is an attention and an MLP", "blocks"});
  read_size(fields, "n_head", "num_attention_heads", model.n_head, {"The heads of each attention"});
  if (model.n_embd % model.n_head != 0) {
    fields.refuse("n_embd", "must be a multiple of n_head (" + std::to_string(model.n_head) + "), not " +
                                std::to_string(model.n_embd));
  }
  std::optional<int> inner;
  fields.read("n_inner", inner, 1, kMaxCount, {"The width of the MLP", "channels", "4 n_embd"});
  if (inner) {
    model.n_inner = *inner;
  } else if (model.n_embd > kMaxCount / 4) {
    fields.refuse("n_embd",
                  "must be at most " + std::to_string(kMaxCount / 4) + ", not " + std::to_string(model.n_embd));
  } else {
    model.n_inner = 4 * model.n_embd;
  }
  refuse_gpt2_variants(fields);
  fields.read("resid_pdrop", model.resid_pdrop, kBelowOne, {"The dropout of what attention and MLP add"});
  fields.read("embd_pdrop", model.embd_pdrop, kBelowOne, {"The dropout of the embedding"});
  fields.read("attn_pdrop", model.attn_pdrop, kBelowOne, {"The dropout of the attention's weights"});
  fields.read("layer_norm_epsilon", model.layer_norm_epsilon, kEpsilon, {"Added to the variance"});
  fields.read("initializer_range", model.initializer_range, kPositive,
              {"The standard deviation of the initial weights"});
  fields.read("tie_word_embeddings", model.tie_word_embeddings, {"Whether the head's weights are the embedding's"});
  return model;
}

nlohmann::json Gpt2Model::example() {
  return {{"vocab_size", 256}, {"n_positions", 128}, {"n_embd", 128}, {"n_layer", 4}, {"n_head", 4},
          {"resid_pdrop", 0.1}, {"embd_pdrop", 0.1}, {"attn_pdrop", 0.1}};
}

nlohmann::json Gpt2Model::write() const {
  return {{"vocab_size", vocab_size},
          {"n_positions", n_positions},
          {"n_embd", n_embd},
          {"n_layer", n_layer},
          {"n_head", n_head},
          {"n_inner", n_inner},
          {"activation_function", "gelu_new"},
          {"resid_pdrop", resid_pdrop},
          {"embd_pdrop", embd_pdrop},
          {"attn_pdrop", attn_pdrop},
          {"layer_norm_epsilon", layer_norm_epsilon},
          {"initializer_range", initializer_range},
          {"tie_word_embeddings", tie_word_embeddings}};
}

ModelDescription Gpt2Model::describe() const {
  return {.input = ModelDescription::Input::kTokens,
          .vocabulary = vocab_size,
          .longest_sequence = n_positions,
          .input_major = true};
}

void Gpt2Model::check(const RecipeRules& rules, MicroBatch batch) const {
  rules.require(batch.sequence <= n_positions, "sequence",
                "must be at most the model's n_positions (" + std::to_string(n_positions) + "), not " +
                    std::to_string(batch.sequence));
  const double tokens = double(batch.samples) * batch.sequence, widest = std::max(3.0 * n_embd, double(n_inner));
  rules.require_elements(tokens * widest, "batch", "a micro-batch of activations");
  rules.require_elements(double(vocab_size) * n_embd, "model.vocab_size", "the embedding");
  rules.require_elements(double(n_positions) * n_embd, "model.n_positions", "the position embedding");
  rules.require_elements(widest * n_embd, "model.n_embd", "a layer's weight");
  constexpr int kMaxHead = kAttentionMaxHead;
  rules.require(n_embd / n_head <= kMaxHead, "model.n_head",
                "too few: a head has at most " + std::to_string(kMaxHead) + " of the " + std::to_string(n_embd) +
                    " channels of n_embd, so at least " + std::to_string((n_embd + kMaxHead - 1) / kMaxHead));
  rules.require(n_layer <= kMaxBlocks, "model.n_layer",
                "must be at most " + std::to_string(kMaxBlocks) + ", not " + std::to_string(n_layer));
}

void Gpt2Model::build(Graph& graph, MicroBatch batch) const {
  Gpt2Builder(graph, *this).build(static_cast<uint32_t>(batch.samples), static_cast<uint32_t>(batch.sequence));
}

}  // namespace reprise
