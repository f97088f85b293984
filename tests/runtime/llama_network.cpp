// The blocks and the tokens of llama_network.h. Names of parameters follow Hugging Face's where it has such a layer.
#include "tests/runtime/llama_network.h"

namespace reprise {
namespace {

constexpr float kInitStd = 0.2f;  // narrow layers need more than the usual 0.02 for a gradient that shows

class LlamaBuilder {
 public:
  LlamaBuilder(Graph& graph, const LlamaNetwork& llama) : g_(graph), llama_(llama) {}

  void build() {
    const Shape tokens = {llama_.batch, llama_.sequence}, table_shape = {llama_.vocabulary, llama_.width};
    g_.input = g_.add_value("tokens", ValueKind::kInput, tokens, DType::kI32);
    g_.labels = g_.add_value("labels", ValueKind::kLabels, tokens, DType::kI32);
    const ValueId table = g_.parameter("model.embed_tokens.weight", table_shape, InitKind::kNormal, kInitStd);
    if (llama_.frequency != 0) {
      frequencies_ = g_.add_value("model.rotary_emb.inv_freq", ValueKind::kBuffer, {llama_.rotary / 2});
      g_.values[frequencies_].init_scale = llama_.frequency;
    }
    ValueId x = g_.embedding(g_.input, "model.embed_tokens", table, kNoValue);
    g_.cut(x);
    for (uint32_t layer = 0; layer < llama_.layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer);
      x = g_.add(x, attention_half(x, name), name + ".attn");
      g_.cut(x);
      x = g_.add(x, mlp_half(x, name), name + ".mlp");
      g_.cut(x);
    }
    const ValueId y = norm(x, "model.norm");
    g_.loss_head(y, "lm_head", llama_.tied ? table : g_.parameter("lm_head.weight", table_shape, InitKind::kNormal, kInitStd), kNoValue);
  }

 private:
  ValueId norm(ValueId x, const std::string& name) {
    const ValueId y = g_.rms_norm(x, name, llama_.epsilon);
    g_.values[g_.nodes.back().parameters[0]].decays = false;
    return y;
  }
  ValueId linear(ValueId x, const std::string& name, uint32_t out_features) { return g_.linear(x, name, out_features, false, false, kInitStd); }

  ValueId attention_half(ValueId x, const std::string& name) {
    const uint32_t columns = (llama_.heads + 2 * llama_.kv_heads) * llama_.head;
    const ValueId qkv = linear(norm(x, name + ".input_layernorm"), name + ".self_attn.qkv_proj", columns);
    const RopeAttribute rope = {llama_.heads, llama_.kv_heads, llama_.rotary, llama_.neighbours, llama_.theta};
    const ValueId turned = g_.rope(qkv, name + ".self_attn.rope", rope, kNoValue, frequencies_);
    const ValueId mixed = g_.attention(turned, name + ".self_attn.core", llama_.heads, llama_.kv_heads, 0.0f);
    return linear(mixed, name + ".self_attn.o_proj", llama_.width);
  }

  ValueId mlp_half(ValueId x, const std::string& name) {
    const ValueId gate_up = linear(norm(x, name + ".post_attention_layernorm"), name + ".mlp.gate_up_proj", 2 * llama_.hidden);
    return linear(g_.swiglu(gate_up, name + ".mlp.act"), name + ".mlp.down_proj", llama_.width);
  }

  Graph& g_;
  const LlamaNetwork& llama_;
  ValueId frequencies_ = kNoValue;
};

}  // namespace

Graph LlamaNetwork::build(DType stored) const {
  Graph graph(stored);
  LlamaBuilder(graph, *this).build();
  return graph;
}

Recipe llama_recipe(const std::string& name) {
  Recipe recipe;
  recipe.name = name;
  recipe.accumulate = 2;
  recipe.clip_norm = 1;
  recipe.seed = 5;
  recipe.optimizer.update = Op::kAdamW;
  recipe.optimizer.lr = 0.01;
  recipe.optimizer.weight_decay = 0.01;
  return recipe;
}

Recipe llama_released_recipe(const std::string& name) {
  Recipe recipe = llama_recipe(name);
  recipe.accumulate = 1;
  recipe.clip_norm.reset();
  recipe.gradient_release = true;
  recipe.optimizer.update = Op::kLion;
  recipe.optimizer.beta2 = 0.99;
  recipe.optimizer.lr = 0.003;
  return recipe;
}

TokenBatch token_batch(const LlamaNetwork& llama, uint64_t step, uint32_t micro_batch) {
  TokenBatch batch;
  for (uint32_t b = 0; b < llama.batch; ++b) {
    uint64_t token = (7 * step + 3 * micro_batch + 11 * b) % llama.vocabulary;
    for (uint32_t t = 0; t < llama.sequence; ++t) {
      batch.tokens.push_back(static_cast<int32_t>(token));
      token = (5 * token + 3) % llama.vocabulary;
      batch.labels.push_back(static_cast<int32_t>(token));
    }
  }
  return batch;
}

BatchSource token_source(LlamaNetwork& llama) {
  return {&llama, [](void* state, uint64_t step, uint32_t micro_batch, BatchSink& sink) {
            const TokenBatch batch = token_batch(*static_cast<const LlamaNetwork*>(state), step, micro_batch);
            sink.add(batch.tokens.data(), batch.tokens.size() * sizeof(int32_t), batch.labels.data(), batch.labels.size());
            return ok_status();
          }};
}

}  // namespace reprise
