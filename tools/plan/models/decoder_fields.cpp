// The fields of decoder.h's families: reads them from a config, refuses unavailable ones by name,
// and writes them again.
#include "tools/plan/models/decoder.h"

#include <cmath>

#include "tools/files/formats/json_fields.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr FieldRange kAtLeastOne = {1, 1e12, false, false};
const char* const kFullAttention = "full_attention";
const char* const kSlidingAttention = "sliding_attention";

// True if the config states that its matrices are bitsandbytes' NF4, which
// tools/files/weights/bitsandbytes_weights.h reads.
bool is_nf4(const json& quantization) {
  if (!quantization.is_object()) return false;
  const auto is = [&](const char* key, const json& value) { return quantization.value(key, json()) == value; };
  return is("quant_method", "bitsandbytes") && is("load_in_4bit", true) && is("bnb_4bit_quant_type", "nf4");
}

// Refuses a window if the family has none. If the family's layers must all be equal, also refuses a
// "layer_types" with another type than `window` requires.
void refuse_window(const JsonFields& fields, const DecoderTraits& traits, int window) {
  if (traits.sliding_window < 0) {
    // Qwen's configs have the width even if the window is off.
    bool slides = !fields.has("use_sliding_window") && fields.has_value("sliding_window");
    fields.read("use_sliding_window", slides,
                {"A sliding window of the attention, which is not available: leave it out"});
    if (slides)
      fields.refuse(fields.has("use_sliding_window") ? "use_sliding_window" : "sliding_window",
                    "is not available: this attention sees every earlier position");
  }
  if (traits.full_every != 0 || !fields.has_value("layer_types")) return;
  const std::string right = window > 0 ? kSlidingAttention : kFullAttention;
  for (const json& type : fields.list_at("layer_types")) {
    if (type != right)
      fields.refuse("layer_types", "must be " + json_shown(right) + " everywhere, not " + json_shown(type), &type);
  }
}

// Refuses variants of the mathematics that a config can switch on. If a variant were ignored, a
// different model would be trained.
void refuse_decoder_variants(const JsonFields& fields, const DecoderTraits& traits) {
  const auto refuse_given = [&](const char* key, const char* what) {
    if (fields.has_value(key)) fields.refuse(key, std::string("is not available: ") + what);
  };
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"})
    refuse_given(key, "a mixture of experts");
  if (fields.has_value("quantization_config") && !is_nf4(fields.at("quantization_config"))) {
    refuse_given("quantization_config",
                 "weights that another tool has quantised; give bitsandbytes' NF4, a GGUF file, or the weights as they "
                 "were published");
  }
  // Gemma's hidden_act is an older name, which nothing reads.
  const char* const key = traits.is_gemma ? "hidden_activation" : "hidden_act";
  const std::string right = traits.is_gemma ? "gelu_pytorch_tanh" : "silu";
  std::string activation = right;
  fields.read(key, activation, {"The activation of the gate", "", "", {right}});
  if (activation != right)
    fields.refuse(key, "must be " + json_shown(right) + ", the one available, not " + json_shown(activation));
  for (const char* dropout : {"resid_pdrop", "embd_pdrop"}) {
    if (traits.fused && fields.has_value(dropout) && fields.at(dropout) != 0)
      fields.refuse(dropout, "must be 0: such a dropout is not available");
  }
  if (fields.has_value("use_bidirectional_attention") && fields.at("use_bidirectional_attention") != false) {
    fields.refuse("use_bidirectional_attention", "must be false: this attention sees earlier positions alone");
  }
  bool is_causal = true;
  fields.read("is_causal", is_causal, {"A variant of the attention that is not available: leave it out"});
  if (!is_causal)
    fields.refuse("is_causal", "must be true: transformers 4 takes it for true, and 5 attends to later positions too");
  int pretraining_tp = 1;
  const int maximum = traits.skips_rope ? kMaxCount : 1;  // SmolLM3's published config has 2, which nothing reads
  fields.read("pretraining_tp", pretraining_tp, 1, maximum, {"Of an older way to train on several cards; must be 1"});
}

}  // namespace

void DecoderModel::read_sizes(const JsonFields& fields, const DecoderTraits& traits) {
  fields.read("vocab_size", vocab_size, 2, kMaxCount, {"How many different tokens there are"});
  fields.read("hidden_size", hidden_size, 1, kMaxCount, {"The width of the residual stream", "channels"});
  fields.read("intermediate_size", intermediate_size, 1, kMaxCount, {"The width of the MLP", "channels"});
  fields.read("num_hidden_layers", num_hidden_layers, 1, kMaxCount,
              {"The depth; each block is an attention and an MLP", "blocks"});
  fields.read("num_attention_heads", num_attention_heads, 1, kMaxCount, {"The heads of the queries"});
  std::optional<int> kv_heads, head;
  fields.read("num_key_value_heads", kv_heads, 1, kMaxCount,
              {"The heads of keys and of values, a divisor of num_attention_heads", "", "num_attention_heads"});
  num_key_value_heads = kv_heads.value_or(num_attention_heads);
  if (num_attention_heads % num_key_value_heads != 0) {
    fields.refuse("num_key_value_heads", "must divide num_attention_heads (" + std::to_string(num_attention_heads) +
                                             "), not " + std::to_string(num_key_value_heads));
  }
  fields.read("head_dim", head, 2, kMaxCount,
              {"The channels of a head, even", "channels",
               traits.head_dim != 0 ? std::to_string(traits.head_dim) : "hidden_size / num_attention_heads"});
  head_dim = head.value_or(traits.head_dim != 0 ? traits.head_dim : hidden_size / num_attention_heads);
  if (head_dim % 2 != 0 || head_dim < 2)
    fields.refuse(head ? "head_dim" : "num_attention_heads",
                  "a head must have an even number of channels, not " + std::to_string(head_dim));
  fields.read("max_position_embeddings", max_position_embeddings, 1, kMaxCount, {"The longest sample", "tokens"});
}

void DecoderModel::read_window(const JsonFields& fields, const DecoderTraits& traits) {
  if (traits.sliding_window < 0) return;
  std::optional<int> window;
  const std::string otherwise = traits.sliding_window == 0 ? "none" : std::to_string(traits.sliding_window);
  fields.read("sliding_window", window, 1, kMaxCount,
              {"A position sees at most so many, itself the last of them; null: all before it", "tokens", otherwise});
  sliding_window = window.value_or(fields.has("sliding_window") ? 0 : traits.sliding_window);
  if (traits.full_every == 0) return;
  int every = traits.full_every;
  // Older configs of Gemma 3 have the first name, newer ones the second.
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (fields.has_value(key)) fields.read(key, every, 1, kMaxCount);
  }
  std::vector<std::string> types;
  if (!fields.has("layer_types") || fields.has_value("layer_types")) fields.read("layer_types", types,
              {"Of each block \"sliding_attention\", whose positions see the window, or \"full_attention\"", "",
               "every " + std::to_string(traits.full_every) + " blocks a full one, the last of them"});
  if (!types.empty() && types.size() != static_cast<size_t>(num_hidden_layers)) {
    fields.refuse("layer_types", "must have a word for each of the " + std::to_string(num_hidden_layers) +
                                     " blocks, not " + std::to_string(types.size()));
  }
  for (int layer = 0; layer < num_hidden_layers; ++layer) {
    const bool slides = (layer + 1) % every != 0;
    const std::string type =
        types.empty() ? (slides ? kSlidingAttention : kFullAttention) : types[static_cast<size_t>(layer)];
    if (type != kSlidingAttention && type != kFullAttention) {
      fields.refuse("layer_types", "must be \"sliding_attention\" or \"full_attention\", not " + json_shown(type));
    }
    windowed.push_back(type == kSlidingAttention);
  }
}

void DecoderModel::read_rope(const JsonFields& fields, const DecoderTraits& traits) {
  rope = traits.local_theta == 0 ? RopeParameters::read(fields, traits.theta)
                                 : RopeParameters::read_two(fields, traits.theta, traits.local_theta, local_rope);
  const auto require_divisors = [&](const RopeParameters& of, const std::vector<double>& divisors, const char* key) {
    const size_t pairs = static_cast<size_t>(rotary_channels(of, head_dim) / 2);
    if (divisors.empty() || divisors.size() == pairs) return;
    fields.refuse(std::string("rope_parameters.") + key, "must have a number for each of the " + std::to_string(pairs) +
                                                             " pairs of a head's channels, not " +
                                                             std::to_string(divisors.size()));
  };
  for (const RopeParameters* each : {&rope, &local_rope}) {
    require_divisors(*each, each->short_factor, "short_factor");
    require_divisors(*each, each->long_factor, "long_factor");
    require_divisors(*each, each->divisors, "divisors");
  }
  if (!traits.skips_rope) return;
  int interval = 4;
  if (fields.has_value("no_rope_layer_interval")) fields.read("no_rope_layer_interval", interval, 1, kMaxCount);
  if (fields.has("no_rope_layers") && !fields.has_value("no_rope_layers")) return fill_rope_layers(interval);
  fields.read("no_rope_layers", no_rope_layers, 0, 1,
              {"Of each block, 1 where its queries and keys turn and 0 where they have no positions", "",
               "every fourth 0"});
  if (no_rope_layers.empty()) return fill_rope_layers(interval);
  if (no_rope_layers.size() != static_cast<size_t>(num_hidden_layers)) {
    fields.refuse("no_rope_layers", "must have a number for each of the " + std::to_string(num_hidden_layers) +
                                        " blocks, not " + std::to_string(no_rope_layers.size()));
  }
}

void DecoderModel::fill_rope_layers(int interval) {
  for (int layer = 0; layer < num_hidden_layers; ++layer) no_rope_layers.push_back((layer + 1) % interval != 0 ? 1 : 0);
}

void DecoderModel::read_caps(const JsonFields& fields, const DecoderTraits& traits) {
  if (!traits.is_gemma) return;
  query_pre_attn_scalar = 256;
  fields.read("query_pre_attn_scalar", query_pre_attn_scalar, kAtLeastOne, {"Scores are divided by its root"});
  const auto read_cap = [&](const char* key, double otherwise, const char* meaning) {
    std::optional<double> cap;
    fields.read(key, cap, kPositive,
                {meaning, "", otherwise == 0 ? "none" : std::to_string(static_cast<int>(otherwise))});
    return cap.value_or(fields.has(key) ? 0 : otherwise);
  };
  attn_logit_softcapping =
      read_cap("attn_logit_softcapping", traits.attention_cap, "Scores s become cap * tanh(s / cap); null: they stay");
  final_logit_softcapping = read_cap("final_logit_softcapping", traits.logit_cap, "The same of the logits");
}

void DecoderModel::read(const JsonFields& fields, const DecoderTraits& traits) {
  read_sizes(fields, traits);
  fields.read("rms_norm_eps", rms_norm_eps, kEpsilon, {"Added to the mean of squares"});
  read_rope(fields, traits);
  if (traits.has_attention_bias)
    fields.read("attention_bias", attention_bias, {"Whether the linear layers of the attention have biases"});
  if (traits.has_mlp_bias) fields.read("mlp_bias", mlp_bias, {"Whether those of the MLP have"});
  fields.read("attention_dropout", attention_dropout, kBelowOne, {"The dropout of the attention's weights"});
  fields.read("initializer_range", initializer_range, kPositive, {"The standard deviation of the initial weights"});
  tie_word_embeddings = traits.tied;
  fields.read("tie_word_embeddings", tie_word_embeddings, {"Whether the head's weights are the embedding's"});
  read_window(fields, traits);
  read_caps(fields, traits);
  refuse_window(fields, traits, sliding_window);
  refuse_decoder_variants(fields, traits);
}

namespace {

// Returns the number as an integer if it is whole, else as a float: transformers 5 refuses 256.0
// for an integer, and an integer for a float.
json whole_or_float(double number) {
  return number == std::floor(number) ? json(static_cast<int64_t>(number)) : json(number);
}

}  // namespace

json DecoderModel::write(const DecoderTraits& traits) const {
  const auto or_null = [](auto number) { return number == 0 ? json() : json(number); };
  json value = {{"vocab_size", vocab_size},
                {"hidden_size", hidden_size},
                {"intermediate_size", intermediate_size},
                {"num_hidden_layers", num_hidden_layers},
                {"num_attention_heads", num_attention_heads},
                {"num_key_value_heads", num_key_value_heads},
                {"head_dim", head_dim},
                {traits.is_gemma ? "hidden_activation" : "hidden_act", traits.is_gemma ? "gelu_pytorch_tanh" : "silu"},
                {"max_position_embeddings", max_position_embeddings},
                {"rms_norm_eps", rms_norm_eps},
                {"rope_parameters", rope.write()},
                {"attention_dropout", attention_dropout},
                {"initializer_range", initializer_range},
                {"tie_word_embeddings", tie_word_embeddings}};
  if (traits.has_attention_bias) value["attention_bias"] = attention_bias;
  if (traits.has_mlp_bias) value["mlp_bias"] = mlp_bias;
  if (traits.sliding_window >= 0) value["sliding_window"] = or_null(sliding_window);
  if (traits.full_every != 0) {
    for (const bool slides : windowed) value["layer_types"].push_back(slides ? kSlidingAttention : kFullAttention);
  }
  if (traits.local_theta != 0)
    value["rope_parameters"] = {{kFullAttention, rope.write()}, {kSlidingAttention, local_rope.write()}};
  if (traits.skips_rope) value["no_rope_layers"] = no_rope_layers;
  if (traits.is_gemma) {
    value["query_pre_attn_scalar"] = whole_or_float(query_pre_attn_scalar);
    value["attn_logit_softcapping"] = or_null(attn_logit_softcapping);
    value["final_logit_softcapping"] = or_null(final_logit_softcapping);
  }
  return value;
}

}  // namespace reprise
