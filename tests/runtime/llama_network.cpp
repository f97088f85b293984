// See llama_network.h. Parameters have the names that Hugging Face's model of this kind gives them.
#include "tests/runtime/llama_network.h"

#include <algorithm>

namespace reprise {
namespace {

// Standard deviation of initial weights. The usual 0.02 would make the gradients of these narrow
// layers too small to measure.
constexpr float kInitStd = 0.2f;

class LlamaBuilder {
 public:
  LlamaBuilder(Graph& graph, const LlamaNetwork& llama) : g_(graph), llama_(llama) {}

  void build() {
    const Shape tokens = {llama_.batch, llama_.sequence}, table_shape = {llama_.vocabulary, llama_.width};
    g_.input = g_.add_value("tokens", ValueKind::kInput, tokens, DType::kI32);
    g_.labels = g_.add_value("labels", ValueKind::kLabels, tokens, DType::kI32);
    if (llama_.documents) g_.document_start = g_.add_value("document_start", ValueKind::kInput, tokens, DType::kI32);
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
    if (llama_.preference) g_.judge_pairs(*llama_.preference, llama_.batch);
    g_.loss_head(y, "lm_head",
                 llama_.tied ? table : g_.parameter("lm_head.weight", table_shape, InitKind::kNormal, kInitStd),
                 kNoValue);
    for (Value& value : g_.values) {
      if (llama_.rank != 0 && value.name.find(".lora_") == std::string::npos) value.trainable = false;
    }
  }

 private:
  ValueId norm(ValueId x, const std::string& name) {
    const ValueId y = g_.rms_norm(x, name, llama_.epsilon);
    g_.values[g_.nodes.back().parameters[0]].decays = false;
    return y;
  }
  ValueId linear(ValueId x, const std::string& name, uint32_t out_features) {
    if (llama_.rank == 0) return g_.linear(x, name, out_features, false, false, kInitStd);
    const ValueId hidden = g_.low_rank(x, name, llama_.rank, llama_.adapter_scale);
    const ValueId up = g_.parameter(name + ".lora_B.weight", {out_features, llama_.rank}, InitKind::kNormal, kInitStd);
    return g_.linear(x, name, out_features, false, false, kInitStd, hidden, up);
  }
  ValueId head_norm(ValueId x, const std::string& name) {
    if (!llama_.head_norms) return x;
    const ValueId y = g_.rms_norm(x, name, llama_.epsilon, llama_.head);
    g_.values[g_.nodes.back().parameters[0]].decays = false;
    return y;
  }

  ValueId attention_half(ValueId x, const std::string& block) {
    const std::string name = block + ".self_attn";
    const ValueId y = norm(x, block + ".input_layernorm");
    const ValueId q = head_norm(linear(y, name + ".q_proj", llama_.heads * llama_.head), name + ".q_norm");
    const ValueId k = head_norm(linear(y, name + ".k_proj", llama_.kv_heads * llama_.head), name + ".k_norm");
    const ValueId v = linear(y, name + ".v_proj", llama_.kv_heads * llama_.head);
    const RopeAttribute rope = {llama_.heads,      llama_.kv_heads, llama_.rotary,
                                llama_.neighbours, llama_.theta,    llama_.rope_scale};
    const ValueId rotated = g_.rope(q, k, v, name + ".rope", rope, g_.document_start, frequencies_);
    const ValueId mixed =
        g_.attention(rotated, name + ".core", {llama_.heads, llama_.kv_heads, 0.0f, 0}, g_.document_start);
    return linear(mixed, name + ".o_proj", llama_.width);
  }

  ValueId mlp_half(ValueId x, const std::string& block) {
    const std::string name = block + ".mlp";
    const ValueId y = norm(x, block + ".post_attention_layernorm");
    const ValueId gate = linear(y, name + ".gate_proj", llama_.hidden),
                  up = linear(y, name + ".up_proj", llama_.hidden);
    return linear(g_.swiglu(gate, up, name + ".act"), name + ".down_proj", llama_.width);
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

uint64_t TokenBatch::labelled() const {
  return static_cast<uint64_t>(
      std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label != kIgnoredLabel; }));
}

TokenBatch token_batch(const LlamaNetwork& llama, uint64_t step, uint32_t micro_batch) {
  TokenBatch batch;
  for (uint32_t b = 0; b < llama.batch; ++b) {
    uint64_t token = (7 * step + 3 * micro_batch + 11 * b) % llama.vocabulary;
    const auto starts = [&](uint32_t t) {
      return llama.documents && (t == 0 || (t + step + micro_batch + 2 * b) % 4 == 0);
    };
    uint32_t start = 0;
    for (uint32_t t = 0; t < llama.sequence; ++t) {
      if (starts(t)) start = t, token = (token + 2 * t) % llama.vocabulary;
      if (llama.documents) batch.document_start.push_back(static_cast<int32_t>(start));
      batch.tokens.push_back(static_cast<int32_t>(token));
      token = (5 * token + 3) % llama.vocabulary;
      batch.labels.push_back(starts(t + 1) ? kIgnoredLabel : static_cast<int32_t>(token));
    }
  }
  return batch;
}

BatchSource token_source(LlamaNetwork& llama) {
  return {&llama,
          [](void* state, uint64_t step, uint32_t micro_batch, BatchSink& sink) {
            const TokenBatch batch = token_batch(*static_cast<const LlamaNetwork*>(state), step, micro_batch);
            sink.add(batch.tokens.data(), batch.tokens.size() * sizeof(int32_t), batch.labels.data(),
                     batch.labels.size(), batch.document_start.empty() ? nullptr : batch.document_start.data());
            return ok_status();
          },
          [](void* state, uint64_t step) {
            const LlamaNetwork& own = *static_cast<const LlamaNetwork*>(state);
            uint64_t labelled = 0;
            for (uint32_t micro_batch = 0; micro_batch < own.micro_batches; ++micro_batch)
              labelled += token_batch(own, step, micro_batch).labelled();
            return labelled;
          }};
}

}  // namespace reprise
