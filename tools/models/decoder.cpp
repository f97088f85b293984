// The fields, the limits and the graph of decoder.h.
#include "tools/models/decoder.h"

#include <algorithm>

#include "lib/op.h"
#include "tools/formats/json_fields.h"
#include "tools/graph/graph.h"

namespace reprise {
namespace {

class DecoderBuilder {
 public:
  DecoderBuilder(Graph& graph, const DecoderModel& model, const DecoderTraits& traits)
      : g_(graph), model_(model), norms_heads_(traits.norms_heads), qkv_bias_(traits.biased_qkv || model.attention_bias),
        std_(static_cast<float>(model.initializer_range)), epsilon_(static_cast<float>(model.rms_norm_eps)),
        attention_{.heads = static_cast<uint32_t>(model.num_attention_heads),
                   .kv_heads = static_cast<uint32_t>(model.num_key_value_heads),
                   .dropout = static_cast<float>(model.attention_dropout),
                   .stream = 0,
                   .window = static_cast<uint32_t>(model.sliding_window)} {}

  void build(MicroBatch batch) {
    const Shape tokens = {static_cast<uint32_t>(batch.samples), static_cast<uint32_t>(batch.sequence)};
    const uint32_t vocabulary = static_cast<uint32_t>(model_.vocab_size), width = static_cast<uint32_t>(model_.hidden_size);
    g_.input = g_.add_value("tokens", ValueKind::kInput, tokens, DType::kI32);
    g_.labels = g_.add_value("labels", ValueKind::kLabels, tokens, DType::kI32);
    if (batch.documents) g_.document_start = g_.add_value("document_start", ValueKind::kInput, tokens, DType::kI32);
    const ValueId table = g_.parameter("model.embed_tokens.weight", {vocabulary, width}, InitKind::kNormal, std_);
    add_frequencies(batch.sequence);
    ValueId x = g_.embedding(g_.input, "model.embed_tokens", table, kNoValue);
    for (int layer = 0; layer < model_.num_hidden_layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer);
      x = g_.add(x, attention_half(x, name), name + ".attn");
      x = g_.add(x, mlp_half(x, name), name + ".mlp");
    }
    const ValueId y = g_.rms_norm(x, "model.norm", epsilon_);
    const ValueId head = model_.tie_word_embeddings ? table : g_.parameter("lm_head.weight", {vocabulary, width}, InitKind::kNormal, std_);
    g_.loss_head(y, "lm_head", head, kNoValue);
  }

 private:
  void add_frequencies(int sequence) {
    RopeTable table = rope_table(model_.rope, model_.head_dim, model_.max_position_embeddings, sequence);
    rope_ = {.heads = attention_.heads, .kv_heads = attention_.kv_heads,
             .rotary = static_cast<uint32_t>(2 * table.frequencies.size()), .neighbours = 0, .theta = 1, .scale = table.scale};
    frequencies_ = g_.table("model.rotary_emb.inv_freq", std::move(table.frequencies));
  }

  ValueId linear(ValueId x, const std::string& name, int out_features, bool bias) {
    return g_.linear(x, name, static_cast<uint32_t>(out_features), false, bias, std_);
  }
  ValueId heads(ValueId x, const std::string& name, const std::string& part, int count) {
    const ValueId y = linear(x, name + "." + part + "_proj", count * model_.head_dim, qkv_bias_);
    return norms_heads_ && part != "v" ? g_.rms_norm(y, name + "." + part + "_norm", epsilon_, static_cast<uint32_t>(model_.head_dim)) : y;
  }

  ValueId attention_half(ValueId x, const std::string& block) {
    const std::string name = block + ".self_attn";
    const ValueId normal = g_.rms_norm(x, block + ".input_layernorm", epsilon_);
    const ValueId q = heads(normal, name, "q", model_.num_attention_heads);
    const ValueId k = heads(normal, name, "k", model_.num_key_value_heads);
    const ValueId v = heads(normal, name, "v", model_.num_key_value_heads);
    const ValueId qkv = g_.rope(q, k, v, name + ".rope", rope_, g_.document_start, frequencies_);
    const ValueId mixed = g_.attention(qkv, name + ".core", attention_, g_.document_start);
    return linear(mixed, name + ".o_proj", model_.hidden_size, model_.attention_bias);
  }

  ValueId mlp_half(ValueId x, const std::string& block) {
    const std::string name = block + ".mlp";
    const ValueId normal = g_.rms_norm(x, block + ".post_attention_layernorm", epsilon_);
    const ValueId gate = linear(normal, name + ".gate_proj", model_.intermediate_size, model_.mlp_bias);
    const ValueId up = linear(normal, name + ".up_proj", model_.intermediate_size, model_.mlp_bias);
    return linear(g_.swiglu(gate, up, name + ".act"), name + ".down_proj", model_.hidden_size, model_.mlp_bias);
  }

  Graph& g_;
  const DecoderModel& model_;
  const bool norms_heads_, qkv_bias_;
  const float std_, epsilon_;
  const AttentionAttribute attention_;
  RopeAttribute rope_ = {};
  ValueId frequencies_ = kNoValue;
};

// Whether the folder's matrices are bitsandbytes' NF4, which tools/weights/bitsandbytes_weights.h reads.
bool is_nf4(const nlohmann::json& quantization) {
  if (!quantization.is_object()) return false;
  const auto is = [&](const char* key, const nlohmann::json& value) { return quantization.value(key, nlohmann::json()) == value; };
  return is("quant_method", "bitsandbytes") && is("load_in_4bit", true) && is("bnb_4bit_quant_type", "nf4");
}

// Variants of the mathematics that a config can switch on: silently ignoring one would train another model.
void refuse_decoder_variants(const JsonFields& fields, const DecoderTraits& traits, int window) {
  const auto refuse_given = [&](const char* key, const char* what) {
    if (fields.has_value(key)) fields.refuse(key, std::string("is not available: ") + what);
  };
  if (traits.sliding_window < 0) {
    bool slides = !fields.has("use_sliding_window") && fields.has_value("sliding_window");  // Qwen's has the width even where it is off
    fields.read("use_sliding_window", slides, {"A sliding window of the attention, which is not available: leave it out"});
    if (slides) fields.refuse(fields.has("use_sliding_window") ? "use_sliding_window" : "sliding_window", "is not available: this attention sees every earlier position");
  }
  if (fields.has_value("layer_types")) {
    const std::string right = window > 0 ? "sliding_attention" : "full_attention";
    for (const nlohmann::json& type : fields.list_at("layer_types")) {
      if (type != right) fields.refuse("layer_types", "must be " + json_shown(right) + " everywhere, not " + json_shown(type), &type);
    }
  }
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"}) refuse_given(key, "a mixture of experts");
  if (fields.has_value("quantization_config") && !is_nf4(fields.at("quantization_config"))) {
    refuse_given("quantization_config", "weights that another tool has quantised; give bitsandbytes' NF4, a GGUF file, or the weights as they were published");
  }
  std::string activation = "silu";
  fields.read("hidden_act", activation, {"The activation of the gate", "", "", {"silu"}});
  if (activation != "silu") fields.refuse("hidden_act", "must be \"silu\", the one available, not " + json_shown(activation));
  bool is_causal = true;
  fields.read("is_causal", is_causal, {"A variant of the attention that is not available: leave it out"});
  if (!is_causal) fields.refuse("is_causal", "must be true: transformers 4 takes it for true, and 5 attends to later positions too");
  int pretraining_tp = 1;
  fields.read("pretraining_tp", pretraining_tp, 1, 1, {"Of an older way to train on several cards; must be 1"});
}

}  // namespace

void DecoderModel::read(const JsonFields& fields, const DecoderTraits& traits) {
  fields.read("vocab_size", vocab_size, 2, kMostCount, {"How many different tokens there are"});
  fields.read("hidden_size", hidden_size, 1, kMostCount, {"The width of the residual stream", "channels"});
  fields.read("intermediate_size", intermediate_size, 1, kMostCount, {"The width of the MLP", "channels"});
  fields.read("num_hidden_layers", num_hidden_layers, 1, kMostCount, {"The depth; each block is an attention and an MLP", "blocks"});
  fields.read("num_attention_heads", num_attention_heads, 1, kMostCount, {"The heads of the queries"});
  std::optional<int> kv_heads, head;
  fields.read("num_key_value_heads", kv_heads, 1, kMostCount, {"The heads of keys and of values, a divisor of num_attention_heads", "", "num_attention_heads"});
  num_key_value_heads = kv_heads.value_or(num_attention_heads);
  if (num_attention_heads % num_key_value_heads != 0) {
    fields.refuse("num_key_value_heads", "must divide num_attention_heads (" + std::to_string(num_attention_heads) + "), not " + std::to_string(num_key_value_heads));
  }
  fields.read("head_dim", head, 2, kMostCount,
              {"The channels of a head, even", "channels", traits.head_dim != 0 ? std::to_string(traits.head_dim) : "hidden_size / num_attention_heads"});
  head_dim = head.value_or(traits.head_dim != 0 ? traits.head_dim : hidden_size / num_attention_heads);
  if (head_dim % 2 != 0 || head_dim < 2) fields.refuse(head ? "head_dim" : "num_attention_heads", "a head must have an even number of channels, not " + std::to_string(head_dim));
  fields.read("max_position_embeddings", max_position_embeddings, 1, kMostCount, {"The longest sample", "tokens"});
  fields.read("rms_norm_eps", rms_norm_eps, kEpsilon, {"Added to the mean of squares"});
  rope = RopeParameters::read(fields, 10000);
  const auto require_divisors = [&](const std::vector<double>& divisors, const char* key) {
    const size_t pairs = static_cast<size_t>(rotary_channels(rope, head_dim) / 2);
    if (divisors.empty() || divisors.size() == pairs) return;
    fields.refuse(std::string("rope_parameters.") + key, "must have a number for each of the " + std::to_string(pairs) + " pairs of a head's channels, not " + std::to_string(divisors.size()));
  };
  require_divisors(rope.short_factor, "short_factor");
  require_divisors(rope.long_factor, "long_factor");
  require_divisors(rope.divisors, "divisors");
  if (traits.has_attention_bias) fields.read("attention_bias", attention_bias, {"Whether the linear layers of the attention have biases"});
  if (traits.has_mlp_bias) fields.read("mlp_bias", mlp_bias, {"Whether those of the MLP have"});
  fields.read("attention_dropout", attention_dropout, kBelowOne, {"The dropout of the attention's weights"});
  fields.read("initializer_range", initializer_range, kPositive, {"The standard deviation of the initial weights"});
  fields.read("tie_word_embeddings", tie_word_embeddings, {"Whether the head's weights are the embedding's"});
  read_window(fields, traits);
  refuse_decoder_variants(fields, traits, sliding_window);
}

void DecoderModel::read_window(const JsonFields& fields, const DecoderTraits& traits) {
  if (traits.sliding_window < 0) return;
  std::optional<int> window;
  fields.read("sliding_window", window, 1, kMostCount,
              {"A position sees at most so many, itself the last of them; null: all before it", "tokens", std::to_string(traits.sliding_window)});
  sliding_window = window.value_or(fields.has("sliding_window") ? 0 : traits.sliding_window);
}

nlohmann::json DecoderModel::example() {
  return {{"vocab_size", 256}, {"hidden_size", 128}, {"intermediate_size", 352}, {"num_hidden_layers", 4}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 32}, {"max_position_embeddings", 128}, {"rope_parameters", {{"rope_theta", 10000}}},
          {"tie_word_embeddings", true}};
}

nlohmann::json DecoderModel::write(const DecoderTraits& traits) const {
  nlohmann::json value = {{"vocab_size", vocab_size},
                          {"hidden_size", hidden_size},
                          {"intermediate_size", intermediate_size},
                          {"num_hidden_layers", num_hidden_layers},
                          {"num_attention_heads", num_attention_heads},
                          {"num_key_value_heads", num_key_value_heads},
                          {"head_dim", head_dim},
                          {"hidden_act", "silu"},
                          {"max_position_embeddings", max_position_embeddings},
                          {"rms_norm_eps", rms_norm_eps},
                          {"rope_parameters", rope.write()},
                          {"attention_dropout", attention_dropout},
                          {"initializer_range", initializer_range},
                          {"tie_word_embeddings", tie_word_embeddings}};
  if (traits.has_attention_bias) value["attention_bias"] = attention_bias;
  if (traits.has_mlp_bias) value["mlp_bias"] = mlp_bias;
  if (traits.sliding_window >= 0) value["sliding_window"] = sliding_window == 0 ? nlohmann::json() : nlohmann::json(sliding_window);
  return value;
}

ModelDescription DecoderModel::describe() const {
  return {.input = ModelDescription::Input::kTokens, .vocabulary = vocab_size, .longest_sequence = max_position_embeddings, .packs = true};
}

void DecoderModel::check(const RecipeRules& rules, MicroBatch batch) const {
  rules.require(batch.sequence <= max_position_embeddings, "sequence",
                "must be at most the model's max_position_embeddings (" + std::to_string(max_position_embeddings) + "), not " + std::to_string(batch.sequence));
  const double tokens = double(batch.samples) * batch.sequence, q = double(num_attention_heads) * head_dim;
  const double widest = std::max({double(hidden_size), double(intermediate_size), q + 2.0 * num_key_value_heads * head_dim});
  rules.require_elements(tokens * widest, "batch", "a micro-batch of activations");
  rules.require_elements(double(vocab_size) * hidden_size, "model.vocab_size", "the embedding");
  rules.require_elements(widest * hidden_size, "model.hidden_size", "a layer's weight");
  constexpr int kMostHead = kAttentionMaxHead;
  rules.require(head_dim <= kMostHead, "model.head_dim", "must be at most " + std::to_string(kMostHead) + ", not " + std::to_string(head_dim));
  rules.require(num_hidden_layers <= kMostBlocks, "model.num_hidden_layers",
                "must be at most " + std::to_string(kMostBlocks) + ", not " + std::to_string(num_hidden_layers));
  const bool is_dynamic = rope.type == RopeParameters::Type::kDynamic;
  rules.require(rotary_channels(rope, head_dim) >= (is_dynamic ? 4 : 2), "model.rope_parameters", "too few of a head's channels turn");
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

}  // namespace reprise
