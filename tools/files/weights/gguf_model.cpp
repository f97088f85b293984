// See gguf_model.h.
#include "tools/files/weights/gguf_model.h"

#include <algorithm>
#include <cmath>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const GgufFile& file, const std::string& key, const std::string& reason) {
  throw UserError(file.path() + ": metadata " + json_shown(key) + ": " + reason);
}

[[noreturn]] void refuse_tensor(const GgufFile& file, const GgufTensor& tensor, const std::string& reason) {
  throw UserError(file.path() + ": tensor " + json_shown(tensor.name) + ": " + reason);
}

// Reads the settings of the file's architecture, for example "llama.block_count".
class Settings {
 public:
  explicit Settings(const GgufFile& file) : file_(file), architecture_(gguf_architecture(file)) {}

  const std::string& architecture() const { return architecture_; }
  std::string key(const std::string& key) const { return architecture_ + "." + key; }
  uint64_t count(const std::string& key, std::optional<uint64_t> fallback = std::nullopt) const {
    const std::optional<uint64_t> value = file_.unsigned_integer(this->key(key));
    if (!value && !fallback) refuse(file_, this->key(key), "missing; the model needs it");
    const uint64_t count = value.value_or(fallback.value_or(0));
    if (count == 0 || count > INT32_MAX)
      refuse(file_, this->key(key), std::to_string(count) + " must be at least 1 and below 2^31");
    return count;
  }
  double number(const std::string& key, std::optional<double> fallback = std::nullopt) const {
    const std::optional<double> value = file_.number(this->key(key));
    if (!value && !fallback) refuse(file_, this->key(key), "missing; the model needs it");
    if (value && !std::isfinite(*value)) refuse(file_, this->key(key), "must be finite");
    return value.value_or(fallback.value_or(0));
  }
  // Returns the attention window in tokens; 0 if there is none.
  uint64_t window() const { return file_.unsigned_integer(key("attention.sliding_window")).value_or(0); }
  void refuse_above_zero(const std::string& key, const std::string& what) const {
    const std::optional<double> value = file_.number(this->key(key));
    if (value && *value != 0) refuse(file_, this->key(key), what);
  }

 private:
  const GgufFile& file_;
  std::string architecture_;
};

uint64_t rows_of(const GgufTensor& tensor) { return tensor.shape.empty() ? 1 : tensor.shape.front(); }

GgufPlace place_in(const GgufFile& file, const GgufTensor& tensor, const GgufName& name, const GgufHeads& heads) {
  if (tensor.shape.size() > 2)
    refuse_tensor(file, tensor, "has " + std::to_string(tensor.shape.size()) + " dimensions, must have one or two");
  GgufPlace place{&tensor, 0, rows_of(tensor), name.order};
  if (name.order == GgufOrder::kTransposed && tensor.shape.size() != 2)
    refuse_tensor(file, tensor, "must have two dimensions");
  if (name.part != GgufPart::kWhole) {
    const uint64_t query = heads.heads * heads.head, key = heads.kv_heads * heads.head;
    if (place.rows != query + 2 * key) {
      refuse_tensor(file, tensor,
                    "has " + std::to_string(place.rows) + " rows; those of q, k and v together would be " +
                        std::to_string(query + 2 * key));
    }
    place.first_row = name.part == GgufPart::kQuery ? 0 : name.part == GgufPart::kKey ? query : query + key;
    place.rows = name.part == GgufPart::kQuery ? query : key;
  }
  if (name.order == GgufOrder::kPairs && (heads.head % 2 != 0 || place.rows % heads.head != 0)) {
    refuse_tensor(file, tensor,
                  "its " + std::to_string(place.rows) + " rows are no whole heads of " + std::to_string(heads.head) +
                      ", or these no pairs");
  }
  return place;
}

bool has_tensor(const GgufFile& file, const char* name) { return file.find_tensor(name) != nullptr; }

// Returns the numbers of a small tensor that contains a setting, for example rotation factors.
// Throws if it does not have `elements` numbers.
std::vector<float> small_tensor(const GgufFile& file, const GgufTensor& tensor, uint64_t elements) {
  if (tensor.elements() != elements) {
    refuse_tensor(file, tensor,
                  "has " + std::to_string(tensor.elements()) + " numbers, must have " + std::to_string(elements) +
                      ", one for each pair of channels");
  }
  std::vector<float> numbers(elements);
  file.read(tensor, 0, elements, numbers.data());
  const auto is_divisor = [](float number) { return std::isfinite(number) && number > 0; };
  if (!std::all_of(numbers.begin(), numbers.end(), is_divisor))
    refuse_tensor(file, tensor, "its numbers must be finite and above 0");
  return numbers;
}

// Returns the settings of YaRN. The attention factor is YaRN's own, 1 + ln(factor) / 10, multiplied
// by the two attention factors in the file, as in llama.cpp.
json yarn_parameters(const GgufFile& file, const Settings& settings, double factor) {
  json rope = {{"rope_type", "yarn"}, {"factor", factor}};
  settings.refuse_above_zero("rope.scaling.yarn_log_multiplier", "must be 0: no other yarn is computed here");
  if (settings.number("rope.scaling.yarn_ext_factor", 1) != 1)
    refuse(file, settings.key("rope.scaling.yarn_ext_factor"), "must be 1: no other yarn is computed here");
  const double attention =
      settings.number("rope.scaling.attn_factor", 1) * settings.number("rope.scaling.yarn_attn_factor", 1);
  if (attention != 1) rope["attention_factor"] = attention * (factor <= 1 ? 1 : 1 + 0.1 * std::log(factor));
  rope["beta_fast"] = settings.number("rope.scaling.yarn_beta_fast", 32);
  rope["beta_slow"] = settings.number("rope.scaling.yarn_beta_slow", 1);
  return rope;
}

json longrope_parameters(const GgufFile& file, const Settings& settings, uint64_t pairs) {
  const GgufTensor *longer = file.find_tensor("rope_factors_long.weight"),
                   *shorter = file.find_tensor("rope_factors_short.weight");
  if (longer == nullptr || shorter == nullptr) {
    refuse(file, settings.key("rope.scaling.type"),
           "\"longrope\" needs the tensors rope_factors_long.weight and rope_factors_short.weight");
  }
  return {{"rope_type", "longrope"},
          {"long_factor", small_tensor(file, *longer, pairs)},
          {"short_factor", small_tensor(file, *shorter, pairs)},
          {"attention_factor", settings.number("rope.scaling.attn_factor", 1)}};
}

// Returns the settings of the rotation. `channels` is the number of rotated channels in a head.
json rope_parameters(const GgufFile& file, const Settings& settings, uint64_t channels) {
  const GgufTensor* divisors = file.find_tensor("rope_freqs.weight");
  const std::string key = settings.key("rope.scaling.type");
  const double factor = settings.number("rope.scaling.factor", settings.number("rope.scale_linear", 0));
  const std::string type = file.text(key).value_or(has_tensor(file, "rope_factors_long.weight") ? "longrope"
                                                   : factor > 0 && factor != 1                  ? "linear"
                                                                                                : "none");
  json rope = {{"rope_type", "default"}};
  if (type == "linear") {
    if (factor <= 0)
      refuse(file, settings.key("rope.scaling.factor"), "missing or not above 0; linear scaling needs it");
    rope = {{"rope_type", "linear"}, {"factor", factor}};
  } else if (type == "yarn") {
    if (factor <= 0) refuse(file, settings.key("rope.scaling.factor"), "missing or not above 0; yarn needs it");
    rope = yarn_parameters(file, settings, factor);
  } else if (type == "longrope") {
    rope = longrope_parameters(file, settings, channels / 2);
  } else if (type != "none") {
    refuse(file, key, json_shown(type) + " is not supported; none, linear, yarn and longrope are");
  }
  if (divisors != nullptr) {
    if (rope["rope_type"] != "default")
      refuse(file, key, json_shown(type) + " cannot go with the tensor rope_freqs.weight");
    rope = {{"rope_type", "divisors"}, {"divisors", small_tensor(file, *divisors, channels / 2)}};
  }
  rope["rope_theta"] = settings.number("rope.freq_base", 10000);
  if (const auto original = file.unsigned_integer(settings.key("rope.scaling.original_context_length"));
      original && *original > 0) {
    rope["original_max_position_embeddings"] = *original;
  }
  return rope;
}

// Returns the number of rows of the token table. Throws if the list of tokens is longer.
uint64_t vocabulary_of(const GgufFile& file) {
  const GgufTensor* table = file.find_tensor("token_embd.weight");
  if (table == nullptr) throw UserError(file.path() + ": tensor \"token_embd.weight\": missing; a model needs it");
  const json* tokens = file.strings("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->size() > rows_of(*table)) {
    refuse(file, "tokenizer.ggml.tokens",
           std::to_string(tokens->size()) + " tokens are more than the " + std::to_string(rows_of(*table)) +
               " rows of token_embd.weight");
  }
  return rows_of(*table);
}

void add_token_ids(const GgufFile& file, json& config) {
  const auto id = [&](const char* key) { return file.unsigned_integer(std::string("tokenizer.ggml.") + key); };
  if (const auto bos = id("bos_token_id")) config["bos_token_id"] = *bos;
  if (const auto eos = id("eos_token_id")) config["eos_token_id"] = *eos;
  if (const auto pad = id("padding_token_id")) config["pad_token_id"] = *pad;
}

json gpt2_config(const GgufFile& file, const Settings& settings) {
  const uint64_t width = settings.count("embedding_length"), inner = settings.count("feed_forward_length");
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", vocabulary_of(file)},
          {"n_positions", settings.count("context_length")},
          {"n_embd", width},
          {"n_layer", settings.count("block_count")},
          {"n_head", settings.count("attention.head_count")},
          {"n_inner", inner},
          {"layer_norm_epsilon", settings.number("attention.layer_norm_epsilon")},
          {"activation_function", "gelu_new"},
          {"tie_word_embeddings", true}};
}

// The model type and class name that config.json has for a GGUF's architecture. A llama with an
// attention window becomes a Mistral.
struct DecoderNames {
  const char *model_type, *architecture;
};
DecoderNames names_of(const Settings& settings) {
  static const std::map<std::string, DecoderNames> kNames = {{"llama", {"llama", "LlamaForCausalLM"}},
                                                             {"qwen2", {"qwen2", "Qwen2ForCausalLM"}},
                                                             {"qwen3", {"qwen3", "Qwen3ForCausalLM"}},
                                                             {"smollm3", {"smollm3", "SmolLM3ForCausalLM"}},
                                                             {"phi3", {"phi3", "Phi3ForCausalLM"}},
                                                             {"gemma2", {"gemma2", "Gemma2ForCausalLM"}},
                                                             {"gemma3", {"gemma3_text", "Gemma3ForCausalLM"}}};
  if (settings.architecture() == "llama" && settings.window() > 0) return {"mistral", "MistralForCausalLM"};
  return kNames.at(settings.architecture());
}

// Adds Gemma's settings to `config`. Files omit settings that llama.cpp fixes for all Gemma models;
// such a setting gets llama.cpp's value.
void add_gemma(const GgufFile& file, const Settings& settings, const GgufHeads& heads, json& config) {
  const bool is_second = settings.architecture() == "gemma2";
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["sliding_window"] =
      settings.count("attention.sliding_window", is_second ? std::optional<uint64_t>(4096) : std::nullopt);
  if (const std::string key = settings.key("attention.sliding_window_pattern"); file.find_value(key) != nullptr) {
    if (!file.unsigned_integer(key)) refuse(file, key, "must be a number: every so-manieth block sees all before it");
    config["sliding_window_pattern"] = settings.count("attention.sliding_window_pattern");
  }
  // True for the model with 27 billion parameters
  const bool is_largest = settings.count("block_count") == (is_second ? 46u : 62u);
  config["query_pre_attn_scalar"] =
      is_largest ? static_cast<double>(settings.count("embedding_length")) / static_cast<double>(heads.heads)
                 : static_cast<double>(heads.head);
  const auto cap = [&](const char* key, double otherwise) {
    const double number = settings.number(key, otherwise);
    return number == 0 ? json() : json(number);
  };
  config["attn_logit_softcapping"] = cap("attn_logit_softcapping", is_second ? 50 : 0);
  config["final_logit_softcapping"] = cap("final_logit_softcapping", is_second ? 30 : 0);
  if (is_second) return;
  const json local = {{"rope_type", "default"}, {"rope_theta", settings.number("rope.freq_base_swa", 10000)}};
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]}, {"sliding_attention", local}};
}

json decoder_config(const GgufFile& file, const Settings& settings) {
  const std::string& architecture = settings.architecture();
  const GgufHeads heads = gguf_heads(file);
  const uint64_t rotary = settings.count("rope.dimension_count", heads.head);
  if (rotary > heads.head || (rotary != heads.head && architecture != "phi3")) {
    refuse(file, settings.key("rope.dimension_count"),
           std::to_string(rotary) + " must be the " + std::to_string(heads.head) + " channels of a head");
  }
  const DecoderNames names = names_of(settings);
  json config = {{"architectures", {names.architecture}},
                 {"model_type", names.model_type},
                 {"vocab_size", vocabulary_of(file)},
                 {"hidden_size", settings.count("embedding_length")},
                 {"intermediate_size", settings.count("feed_forward_length")},
                 {"num_hidden_layers", settings.count("block_count")},
                 {"num_attention_heads", heads.heads},
                 {"num_key_value_heads", heads.kv_heads},
                 {"head_dim", heads.head},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", settings.count("context_length")},
                 {"rms_norm_eps", settings.number("attention.layer_norm_rms_epsilon")},
                 {"rope_parameters", rope_parameters(file, settings, rotary)},
                 {"tie_word_embeddings", !has_tensor(file, "output.weight")}};
  if (rotary != heads.head)
    config["rope_parameters"]["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(heads.head);
  const bool has_window = names.model_type == std::string("mistral") || architecture == "phi3";
  if (has_window) config["sliding_window"] = settings.window() == 0 ? json() : json(settings.window());
  const bool biased = has_tensor(file, "blk.0.attn_q.bias") || has_tensor(file, "blk.0.attn_qkv.bias");
  if (biased && has_window) throw UserError(file.path() + ": tensor \"blk.0.attn_q.bias\": such a model has no biases");
  if (architecture != "qwen2" && !has_window) config["attention_bias"] = biased;
  if ((architecture == "llama" && !has_window) || architecture == "smollm3")
    config["mlp_bias"] = has_tensor(file, "blk.0.ffn_gate.bias");
  if (architecture == "gemma2" || architecture == "gemma3") add_gemma(file, settings, heads, config);
  return config;
}

}  // namespace

std::vector<uint64_t> GgufPlace::shape() const {
  std::vector<uint64_t> shape = tensor->shape;
  if (!shape.empty()) shape.front() = rows;
  if (order == GgufOrder::kTransposed) std::swap(shape[0], shape[1]);
  return shape;
}

std::string gguf_architecture(const GgufFile& file) {
  if (file.text("general.type").value_or("model") != "model") {
    refuse(file, "general.type", json_shown(*file.text("general.type")) + " must be \"model\"");
  }
  if (const auto files = file.unsigned_integer("split.count"); files && *files > 1) {
    refuse(file, "split.count", "is one of " + std::to_string(*files) + " files; join them into one first");
  }
  const std::optional<std::string> architecture = file.text("general.architecture");
  if (!architecture) refuse(file, "general.architecture", "missing; must be " + either_of(gguf_architectures()));
  const auto& known = gguf_architectures();
  if (std::find(known.begin(), known.end(), *architecture) == known.end()) {
    refuse(file, "general.architecture", json_shown(*architecture) + " is not supported; must be " + either_of(known));
  }
  return *architecture;
}

GgufHeads gguf_heads(const GgufFile& file) {
  const Settings settings(file);
  GgufHeads heads;
  heads.heads = settings.count("attention.head_count");
  heads.kv_heads = settings.count("attention.head_count_kv", heads.heads);
  const uint64_t width = settings.count("embedding_length");
  if (!file.find_value(settings.key("attention.key_length")) && width % heads.heads != 0) {
    refuse(file, settings.key("attention.head_count"),
           std::to_string(heads.heads) + " heads do not divide the width " + std::to_string(width));
  }
  heads.head = settings.count("attention.key_length", width / heads.heads);
  const uint64_t value = settings.count("attention.value_length", heads.head);
  if (value != heads.head) {
    refuse(file, settings.key("attention.value_length"),
           std::to_string(value) + " must be attention.key_length, " + std::to_string(heads.head));
  }
  return heads;
}

std::map<std::string, GgufPlace> gguf_places(const GgufFile& file) {
  const std::string architecture = gguf_architecture(file);
  const GgufHeads heads = gguf_heads(file);
  std::map<std::string, GgufPlace> places;
  for (const GgufTensor& tensor : file.tensors()) {
    for (const GgufName& name : published_names(architecture, tensor.name)) {
      if (places.emplace(name.name, place_in(file, tensor, name, heads)).second) continue;
      refuse_tensor(file, tensor, "gives " + json_shown(name.name) + " a second time");
    }
  }
  return places;
}

json gguf_config(const GgufFile& file) {
  const Settings settings(file);
  settings.refuse_above_zero("expert_count", "a mixture of experts is not supported");
  const std::string& architecture = settings.architecture();
  if (architecture == "qwen2" || architecture == "qwen3" || architecture == "smollm3" || architecture == "gpt2") {
    settings.refuse_above_zero("attention.sliding_window", "a sliding window is not supported");
  }
  json config = settings.architecture() == "gpt2" ? gpt2_config(file, settings) : decoder_config(file, settings);
  add_token_ids(file, config);
  return config;
}

}  // namespace reprise
