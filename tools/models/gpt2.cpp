// GPT-2 (Radford et al. 2019) with Hugging Face's names: pre-norm blocks, gelu_new, a head tied to the token table.
// Each half of a block is a link: the residual stream between attention and MLP is a boundary too.
// It must not know tokenizers.
#include "tools/models/gpt2.h"

#include <cmath>

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
    const ValueId positions =
        g_.parameter("transformer.wpe.weight", {static_cast<uint32_t>(model_.n_positions), width}, InitKind::kNormal, std_);
    ValueId x = dropped(g_.embedding(g_.input, "transformer.wte", table, positions), "transformer.drop", model_.embd_pdrop);
    g_.cut(x);
    for (int layer = 0; layer < model_.n_layer; ++layer) {
      const std::string name = "transformer.h." + std::to_string(layer);
      x = g_.add(x, attention_half(x, name), name + ".attn");
      g_.cut(x);
      x = g_.add(x, mlp_half(x, name), name + ".mlp");
      g_.cut(x);
    }
    const ValueId y = g_.layer_norm(x, "transformer.ln_f", epsilon_);
    const ValueId head = model_.tie_word_embeddings ? table : g_.parameter("lm_head.weight", {vocabulary, width}, InitKind::kNormal, std_);
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
    const ValueId mixed =
        g_.attention(qkv, name + ".attn.core", static_cast<uint32_t>(model_.n_head), static_cast<float>(model_.attn_pdrop));
    const ValueId out = g_.linear(mixed, name + ".attn.c_proj", width, true, true, projection_std_);
    return dropped(out, name + ".attn.resid_dropout", model_.resid_pdrop);
  }

  ValueId mlp_half(ValueId x, const std::string& name) {
    const ValueId normal = g_.layer_norm(x, name + ".ln_2", epsilon_);
    const ValueId hidden = g_.linear(normal, name + ".mlp.c_fc", static_cast<uint32_t>(model_.n_inner), true, true, std_);
    const ValueId active = g_.gelu(hidden, name + ".mlp.act", true);
    const ValueId out = g_.linear(active, name + ".mlp.c_proj", static_cast<uint32_t>(model_.n_embd), true, true, projection_std_);
    return dropped(out, name + ".mlp.dropout", model_.resid_pdrop);
  }

  Graph& g_;
  const Gpt2Model& model_;
  const float std_, projection_std_, epsilon_;
};

}  // namespace

void build_gpt2(Graph& graph, const Gpt2Model& model, uint32_t batch, uint32_t sequence) {
  Gpt2Builder(graph, model).build(batch, sequence);
}

}  // namespace reprise
