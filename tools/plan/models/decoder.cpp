// Builds the graphs of decoder.h's families. The fields are read and written in decoder_fields.cpp.
#include "tools/plan/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "lib/op.h"
#include "tools/files/formats/json_fields.h"
#include "tools/plan/graph/graph.h"

namespace reprise {
namespace {

class DecoderBuilder {
 public:
  DecoderBuilder(Graph& graph, const DecoderModel& model, const DecoderTraits& traits)
      : g_(graph),
        model_(model),
        traits_(traits),
        qkv_bias_(traits.biased_qkv || model.attention_bias),
        std_(static_cast<float>(model.initializer_range)),
        epsilon_(static_cast<float>(model.rms_norm_eps)),
        norm_offset_(traits.is_gemma ? 1.0f : 0.0f),
        width_(static_cast<uint32_t>(model.hidden_size)) {}

  void build(MicroBatch batch) {
    const Shape tokens = {static_cast<uint32_t>(batch.samples), static_cast<uint32_t>(batch.sequence)};
    const uint32_t vocabulary = static_cast<uint32_t>(model_.vocab_size);
    g_.input = g_.add_value("tokens", ValueKind::kInput, tokens, DType::kI32);
    g_.labels = g_.add_value("labels", ValueKind::kLabels, tokens, DType::kI32);
    if (batch.documents) g_.document_start = g_.add_value("document_start", ValueKind::kInput, tokens, DType::kI32);
    const ValueId table = g_.parameter("model.embed_tokens.weight", {vocabulary, width_}, InitKind::kNormal, std_);
    rotates_ = rotates_by(model_.rope, "model.rotary_emb.inv_freq", batch.sequence);
    if (traits_.local_theta != 0)
      local_rotates_ = rotates_by(model_.local_rope, "model.rotary_emb_local.inv_freq", batch.sequence);
    const float scale = traits_.is_gemma ? static_cast<float>(std::sqrt(static_cast<double>(width_))) : 1.0f;
    ValueId x = g_.embedding(g_.input, "model.embed_tokens", table, kNoValue, scale);
    for (int layer = 0; layer < model_.num_hidden_layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer);
      x = g_.add(x, attention_half(x, name, static_cast<size_t>(layer)), name + ".attn");
      x = g_.add(x, mlp_half(x, name), name + ".mlp");
    }
    const ValueId y = norm(x, "model.norm");
    const ValueId head = model_.tie_word_embeddings
                             ? table
                             : g_.parameter("lm_head.weight", {vocabulary, width_}, InitKind::kNormal, std_);
    g_.loss_head(y, "lm_head", head, kNoValue, static_cast<float>(model_.final_logit_softcapping));
  }

 private:
  // The rotation of a layer's q and k: its attribute, and the table of its frequencies.
  struct Rotates {
    RopeAttribute rope = {};
    ValueId frequencies = kNoValue;
  };
  Rotates rotates_by(const RopeParameters& parameters, const std::string& name, int sequence) {
    RopeTable table = rope_table(parameters, model_.head_dim, model_.max_position_embeddings, sequence);
    const RopeAttribute rope = {.heads = heads(model_.num_attention_heads),
                                .kv_heads = heads(model_.num_key_value_heads),
                                .rotary = static_cast<uint32_t>(2 * table.frequencies.size()),
                                .neighbours = 0,
                                .theta = 1,
                                .scale = table.scale};
    return {rope, g_.table(name, std::move(table.frequencies))};
  }
  bool has_window(size_t layer) const {
    return model_.sliding_window > 0 && (model_.windowed.empty() || model_.windowed[layer]);
  }
  Rotates turns_of(size_t layer) const {
    Rotates turns = traits_.local_theta != 0 && has_window(layer) ? local_rotates_ : rotates_;
    if (!model_.no_rope_layers.empty() && model_.no_rope_layers[layer] == 0)
      turns.rope.rotary = 0, turns.rope.scale = 1, turns.frequencies = kNoValue;
    return turns;
  }
  AttentionAttribute attention_of(size_t layer) const {
    const double divisor = model_.query_pre_attn_scalar;
    return {.heads = heads(model_.num_attention_heads),
            .kv_heads = heads(model_.num_key_value_heads),
            .dropout = static_cast<float>(model_.attention_dropout),
            .stream = 0,
            .window = has_window(layer) ? static_cast<uint32_t>(model_.sliding_window) : 0,
            .softcap = static_cast<float>(model_.attn_logit_softcapping),
            .scale = divisor == 0 || divisor == model_.head_dim ? 0.0f : static_cast<float>(1 / std::sqrt(divisor))};
  }
  static uint32_t heads(int count) { return static_cast<uint32_t>(count); }

  ValueId norm(ValueId x, const std::string& name, uint32_t columns = 0) {
    return g_.rms_norm(x, name, epsilon_, columns, norm_offset_);
  }
  ValueId linear(ValueId x, const std::string& name, int out_features, bool bias) {
    return g_.linear(x, name, static_cast<uint32_t>(out_features), false, bias, std_);
  }

  struct Heads {
    ValueId q, k, v;
  };
  Heads heads_of(ValueId x, const std::string& name) {
    const int q = model_.num_attention_heads * model_.head_dim, k = model_.num_key_value_heads * model_.head_dim;
    if (traits_.fused) {
      const ValueId all = linear(x, name + ".qkv_proj", q + 2 * k, qkv_bias_);
      const auto part = [&](const char* which, int first, int count) {
        return g_.columns(all, name + which, static_cast<uint32_t>(first), static_cast<uint32_t>(count));
      };
      return {part(".q", 0, q), part(".k", q, k), part(".v", q + k, k)};
    }
    const auto part = [&](const std::string& which, int columns) {
      const ValueId y = linear(x, name + "." + which + "_proj", columns, qkv_bias_);
      return traits_.norms_heads && which != "v"
                 ? norm(y, name + "." + which + "_norm", static_cast<uint32_t>(model_.head_dim))
                 : y;
    };
    const ValueId queries = part("q", q), keys = part("k", k), values = part("v", k);
    return {queries, keys, values};
  }

  ValueId attention_half(ValueId x, const std::string& block, size_t layer) {
    const std::string name = block + ".self_attn";
    const auto [q, k, v] = heads_of(norm(x, block + ".input_layernorm"), name);
    const auto [rope, frequencies] = turns_of(layer);
    const ValueId qkv = g_.rope(q, k, v, name + ".rope", rope, g_.document_start, frequencies);
    const ValueId mixed = g_.attention(qkv, name + ".core", attention_of(layer), g_.document_start);
    const ValueId out = linear(mixed, name + ".o_proj", model_.hidden_size, model_.attention_bias);
    return traits_.is_gemma ? norm(out, block + ".post_attention_layernorm") : out;
  }

  // Returns activation(gate) * up. Here gate and up are two linear layers of x, or the two halves
  // of one layer if the family fuses them.
  ValueId gated(ValueId x, const std::string& name) {
    const int inner = model_.intermediate_size;
    if (traits_.fused) {
      const ValueId both = linear(x, name + ".gate_up_proj", 2 * inner, model_.mlp_bias);
      const uint32_t columns = static_cast<uint32_t>(inner);
      const ValueId gate = g_.columns(both, name + ".gate", 0, columns),
                    up = g_.columns(both, name + ".up", columns, columns);
      return g_.swiglu(gate, up, name + ".act");
    }
    const ValueId gate = linear(x, name + ".gate_proj", inner, model_.mlp_bias),
                  up = linear(x, name + ".up_proj", inner, model_.mlp_bias);
    return traits_.is_gemma ? g_.geglu(gate, up, name + ".act") : g_.swiglu(gate, up, name + ".act");
  }

  ValueId mlp_half(ValueId x, const std::string& block) {
    const std::string name = block + ".mlp";
    const ValueId normal =
        norm(x, block + (traits_.is_gemma ? ".pre_feedforward_layernorm" : ".post_attention_layernorm"));
    const ValueId out = linear(gated(normal, name), name + ".down_proj", model_.hidden_size, model_.mlp_bias);
    return traits_.is_gemma ? norm(out, block + ".post_feedforward_layernorm") : out;
  }

  Graph& g_;
  const DecoderModel& model_;
  const DecoderTraits& traits_;
  const bool qkv_bias_;
  const float std_, epsilon_, norm_offset_;
  const uint32_t width_;
  Rotates rotates_, local_rotates_;
};

}  // namespace

nlohmann::json DecoderModel::example() {
  return {{"vocab_size", 256},
          {"hidden_size", 128},
          {"intermediate_size", 352},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 32},
          {"max_position_embeddings", 128},
          {"rope_parameters", {{"rope_theta", 10000}}},
          {"tie_word_embeddings", true}};
}

nlohmann::json Gemma3Model::example() {
  nlohmann::json fields = DecoderModel::example();
  fields["rope_parameters"] = {{"full_attention", {{"rope_theta", 1000000}}},
                               {"sliding_attention", {{"rope_theta", 10000}}}};
  return fields;
}

ModelDescription DecoderModel::describe() const {
  return {.input = ModelDescription::Input::kTokens,
          .vocabulary = vocab_size,
          .longest_sequence = max_position_embeddings,
          .packs = true};
}

void DecoderModel::check(const RecipeRules& rules, MicroBatch batch) const {
  rules.require(batch.sequence <= max_position_embeddings, "sequence",
                "must be at most the model's max_position_embeddings (" + std::to_string(max_position_embeddings) +
                    "), not " + std::to_string(batch.sequence));
  const double tokens = double(batch.samples) * batch.sequence, q = double(num_attention_heads) * head_dim;
  const double widest =
      std::max({double(hidden_size), double(intermediate_size), q + 2.0 * num_key_value_heads * head_dim});
  rules.require_elements(tokens * widest, "batch", "a micro-batch of activations");
  rules.require_elements(double(vocab_size) * hidden_size, "model.vocab_size", "the embedding");
  rules.require_elements(widest * hidden_size, "model.hidden_size", "a layer's weight");
  constexpr int kMaxHead = kAttentionMaxHead;
  rules.require(head_dim <= kMaxHead, "model.head_dim",
                "must be at most " + std::to_string(kMaxHead) + ", not " + std::to_string(head_dim));
  rules.require(num_hidden_layers <= kMaxBlocks, "model.num_hidden_layers",
                "must be at most " + std::to_string(kMaxBlocks) + ", not " + std::to_string(num_hidden_layers));
  const bool is_dynamic = rope.type == RopeParameters::Type::kDynamic;
  const int rotated = std::min(rotary_channels(rope, head_dim), rotary_channels(local_rope, head_dim));
  rules.require(rotated >= (is_dynamic ? 4 : 2), "model.rope_parameters", "too few of a head's channels are rotated");
}

void DecoderModel::build(Graph& graph, MicroBatch batch, const DecoderTraits& traits) const {
  DecoderBuilder(graph, *this, traits).build(batch);
}

template <typename Family>
Family DecoderFamily<Family>::read(const JsonFields& fields) {
  Family model;
  model.DecoderModel::read(fields, Family::kTraits);
  return model;
}
template <typename Family>
nlohmann::json DecoderFamily<Family>::write() const {
  return DecoderModel::write(Family::kTraits);
}
template <typename Family>
void DecoderFamily<Family>::build(Graph& graph, MicroBatch batch) const {
  DecoderModel::build(graph, batch, Family::kTraits);
}
template struct DecoderFamily<LlamaModel>;
template struct DecoderFamily<MistralModel>;
template struct DecoderFamily<Qwen2Model>;
template struct DecoderFamily<Qwen3Model>;
template struct DecoderFamily<SmolLm3Model>;
template struct DecoderFamily<Phi3Model>;
template struct DecoderFamily<Gemma2Model>;
template struct DecoderFamily<Gemma3Model>;

}  // namespace reprise
