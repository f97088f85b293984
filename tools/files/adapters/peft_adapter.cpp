// See peft_adapter.h. Source: github.com/huggingface/peft, LoraConfig and save_pretrained.
#include "tools/files/adapters/peft_adapter.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tools/files/adapters/peft_pattern.h"
#include "tools/files/formats/json_fields.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/tied_head.h"

namespace reprise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const std::string kPrefix = "base_model.model.";
constexpr int kMaxRank = 1 << 20;
constexpr const char *kConfig = "adapter_config.json", *kWeights = "adapter_model.safetensors";

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

// True if the tensor is in a module that modules_to_save names. As in PEFT, it is enough that the
// module's name ends with the entry, even in the middle of a part.
bool is_saved_by(const std::vector<std::string>& modules_to_save, const std::string& tensor) {
  for (std::string module = module_of(tensor);; module = module_of(module)) {
    if (std::any_of(modules_to_save.begin(), modules_to_save.end(),
                    [&](const std::string& end) { return module.ends_with(end); }))
      return true;
    if (module.find('.') == std::string::npos) return false;
  }
}

// The tensors of PEFT's file, with its prefix removed from the names.
class PeftWeights : public WeightSource {
 public:
  PeftWeights(std::unique_ptr<WeightSource> file, const std::vector<std::string>& modules_to_save)
      : file_(std::move(file)) {
    for (const std::string& name : file_->names()) {
      const bool is_ours = name.starts_with(kPrefix) &&
                           (is_adapter_tensor(name) || is_saved_by(modules_to_save, name.substr(kPrefix.size())));
      if (!is_ours)
        throw UserError(path() + ": tensor " + json_shown(name) + ": is none of a LoRA, which is " + kPrefix +
                        "NAME.lora_A.weight, lora_B or lora_magnitude_vector, or of modules_to_save");
      names_[name.substr(kPrefix.size())] = name;
    }
  }
  const std::string& path() const override { return file_->path(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, there] : names_) names.push_back(name);
    return names;
  }
  const StoredWeight* find(const std::string& name) const override {
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : file_->find(found->second);
  }

 private:
  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    file_->read_exact(names_.at(name), first, count, to);
  }
  std::unique_ptr<WeightSource> file_;
  std::map<std::string, std::string> names_;  // our name -> the file's name
};

// Throws if a setting changes what the LoRA computes in a way that is not supported here.
void refuse_other_kinds(const JsonFields& fields) {
  const auto is_empty = [](const json& value) {
    return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty());
  };
  for (const char* key :
       {"use_qalora", "use_bdlora", "lora_bias", "layer_replication", "trainable_token_indices", "target_parameters",
        "alora_invocation_tokens", "arrow_config", "megatron_config", "kasa_config", "monteclora_config"}) {
    if (fields.has(key) && !is_empty(fields.at(key)))
      fields.refuse(key, json_shown(fields.at(key)) + " is not supported; must be empty, null or false");
  }
  // With these settings PEFT subtracts an initial product from the base's weights each time it
  // loads the adapter.
  if (fields.has("init_lora_weights") && fields.at("init_lora_weights").is_string()) {
    std::string init;
    fields.read("init_lora_weights", init);
    if (init != "gaussian" && init != "eva" && init != "orthogonal") {
      fields.refuse("init_lora_weights", json_shown(init) +
                                             " is not supported: it changes the base's weights; convert the adapter "
                                             "(PEFT's path_initial_model_for_weight_conversion)");
    }
  }
  std::string bias = "none";
  fields.read("bias", bias);
  if (bias != "none") fields.refuse("bias", json_shown(bias) + " is not supported; must be \"none\"");
}

LoraSettings read_settings(const JsonFields& fields) {
  std::string type = "LORA";
  fields.read("peft_type", type);
  if (type != "LORA") fields.refuse("peft_type", json_shown(type) + " is not supported; must be \"LORA\"");
  refuse_other_kinds(fields);
  LoraSettings settings;
  fields.require("r", "an adapter has a rank");
  fields.read("r", settings.r, 1, kMaxRank);
  settings.alpha = 8;  // PEFT's default
  fields.read("lora_alpha", settings.alpha, kPositive);
  fields.read("lora_dropout", settings.dropout, kBelowOne);
  fields.read("use_rslora", settings.rslora);
  fields.read("use_dora", settings.dora);
  if (fields.has_value("modules_to_save")) fields.read("modules_to_save", settings.modules_to_save);
  if (fields.has("target_modules") && fields.at("target_modules").is_array())
    fields.read("target_modules", settings.targets);
  return settings;
}

// The entries of rank_pattern or alpha_pattern in the order of the file. If several keys match a
// layer, PEFT uses the first one.
template <typename Number>
struct PeftNumbers {
  std::vector<std::pair<PeftPattern, Number>> patterns;
  Number of(const std::string& layer, Number otherwise) const {
    const auto first =
        std::find_if(patterns.begin(), patterns.end(), [&](const auto& entry) { return entry.first.matches(layer); });
    return first == patterns.end() ? otherwise : first->second;
  }
};

// Reads the patterns of `key`. read(object, key, value) returns the number of an entry. `file` is
// the whole config with its keys in the file's order.
template <typename Number, typename Read>
PeftNumbers<Number> read_numbers(const JsonFields& fields, const ordered_json& file, const std::string& key,
                                 const Read& read) {
  PeftNumbers<Number> numbers;
  if (!fields.has_value(key)) return numbers;
  const JsonFields object = fields.object(key);
  for (const auto& entry : file.at(key).items()) {
    const std::optional<PeftPattern> pattern = PeftPattern::parse(entry.key());
    if (!pattern)
      object.refuse(entry.key(),
                    "is a regular expression that is not taken; must be a layer's name, the end of one, or one with . "
                    "\\. \\d * + ? (a|b) ^ or $");
    numbers.patterns.emplace_back(*pattern, read(object, entry.key(), fields.at(key).at(entry.key())));
  }
  return numbers;
}

void read_patterns(const JsonFields& fields, const std::string& text, const WeightSource& weights,
                   LoraSettings& settings) {
  const ordered_json file = ordered_json::parse(text, nullptr, false, true);
  const auto ranks = read_numbers<int>(fields, file, "rank_pattern",
                                       [](const JsonFields& object, const std::string& key, const json& value) {
                                         return static_cast<int>(object.integer_in(key, value, 1, kMaxRank));
                                       });
  const auto alphas = read_numbers<double>(fields, file, "alpha_pattern",
                                           [](const JsonFields& object, const std::string& key, const json& value) {
                                             return object.number_in(key, value, kPositive);
                                           });
  std::vector<LayerNumbers> layers;
  for (const std::string& layer : adapted_layers(weights))
    layers.push_back({layer, ranks.of(layer, settings.r), alphas.of(layer, settings.alpha)});
  set_patterns(settings, std::move(layers));
}

// Returns target_modules, the names by which PEFT finds the layers. PEFT does not interpret * and
// ?. For a language model the names are the recipe's targets if these contain no wildcards. If the
// recipe has no targets, they are the last parts of the layers' names. In all other cases they are
// the complete names of the layers.
std::vector<std::string> target_modules(const Adapter& adapter) {
  const std::vector<std::string>& targets = adapter.settings.targets;
  const auto is_name = [](const std::string& target) { return target.find_first_of("*?[\\") == std::string::npos; };
  // In other nets the last part of a name is often a number, which many layers share.
  if (adapter.is_of_language && !targets.empty() && std::all_of(targets.begin(), targets.end(), is_name))
    return targets;
  std::set<std::string> parts;
  if (!targets.empty() || !adapter.is_of_language) {
    for (const AdapterLayer& layer : adapter.layers) parts.insert(layer.name);
    return {parts.begin(), parts.end()};
  }
  for (const AdapterLayer& layer : adapter.layers) parts.insert(layer.name.substr(layer.name.rfind('.') + 1));
  return {parts.begin(), parts.end()};
}

}  // namespace

const std::vector<std::string>& peft_files() {
  static const std::vector<std::string> names = {kConfig, kWeights};
  return names;
}

Adapter open_peft_adapter(const std::string& folder) {
  const std::string config = folder + "/" + kConfig, text = read_file(config);
  const json value = parse_json(text, config);
  const JsonFields fields(value, {config, &text}, "");
  LoraSettings settings = read_settings(fields);
  bool fan_in_fan_out = false;
  fields.read("fan_in_fan_out", fan_in_fan_out);
  std::error_code ignored;
  if (!std::filesystem::exists(folder + "/" + kWeights, ignored) &&
      std::filesystem::exists(folder + "/adapter_model.bin", ignored)) {
    throw UserError(folder + "/adapter_model.bin: is not read; save the adapter as " + kWeights);
  }
  std::vector<std::string> modules = settings.modules_to_save;
  bool ties = false;  // true: the file also has a head that modules_to_save omits; PEFT ties it to the saved embeddings
  fields.read("ensure_weight_tying", ties);
  if (ties) modules.push_back(module_of(kHead));
  const auto weights = std::make_shared<PeftWeights>(open_weights(folder + "/" + kWeights), modules);
  read_patterns(fields, text, *weights, settings);
  return find_adapter(weights, settings, fan_in_fan_out);
}

namespace {

// Returns the patterns, longest first. PEFT uses the first pattern that matches, so a long name
// must precede a shorter name that is its end.
template <typename Number>
ordered_json longest_first(const std::map<std::string, Number>& patterns) {
  std::vector<std::pair<std::string, Number>> entries(patterns.begin(), patterns.end());
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  ordered_json object = ordered_json::object();
  for (const auto& [pattern, number] : entries) object[pattern] = number;
  return object;
}

// Returns the adapter's settings with complete layer names as patterns. PEFT accepts these, too.
LoraSettings settings_by_names(const Adapter& adapter) {
  LoraSettings settings = adapter.settings;
  std::vector<LayerNumbers> layers;
  for (const AdapterLayer& layer : adapter.layers)
    layers.push_back({layer.name, static_cast<int>(layer.rank), settings.alpha_of(layer.name)});
  set_patterns(settings, std::move(layers));
  return settings;
}

// Returns the tensors that were trained directly: name in the written file -> name in the adapter.
std::map<std::string, std::string> saved_names(const Adapter& adapter) {
  std::map<std::string, std::string> names;
  const std::string table = adapter.is_tied ? find_embeddings(*adapter.weights) : "";
  for (const std::string& name : adapter.saved) {
    names[name] = name;
    if (name == table) names[kHead] = name;
  }
  return names;
}

ordered_json adapter_config(const Adapter& adapter, const std::string& base,
                            const std::map<std::string, std::string>& saved) {
  const LoraSettings settings = settings_by_names(adapter);
  ordered_json config = {{"alpha_pattern", longest_first(settings.alpha_pattern)},
                         {"base_model_name_or_path", adapter.is_of_language ? ordered_json(base) : ordered_json()},
                         {"bias", "none"},
                         {"fan_in_fan_out", adapter.fan_in_fan_out},
                         {"inference_mode", true},
                         {"lora_alpha", settings.alpha},
                         {"lora_dropout", settings.dropout},
                         {"peft_type", "LORA"},
                         {"r", settings.r},
                         {"rank_pattern", longest_first(settings.rank_pattern)},
                         {"target_modules", target_modules(adapter)},
                         {"task_type", adapter.is_of_language ? ordered_json("CAUSAL_LM") : ordered_json()},
                         {"use_dora", settings.dora},
                         {"use_rslora", settings.rslora}};
  if (saved.empty()) return config;
  std::set<std::string> modules;  // complete names: a shorter name could also be the end of another module's name
  for (const auto& [name, ours] : saved) modules.insert(module_of(name));
  config["modules_to_save"] = modules;
  if (saved.size() > adapter.saved.size()) config["ensure_weight_tying"] = true;
  return config;
}

void write_whole(const WeightSource& weights, const std::string& name, SafetensorsWriter& writer) {
  constexpr uint64_t kPiece = uint64_t{1} << 16;
  const std::vector<uint64_t>& shape = weights.find(name)->shape;
  const uint64_t elements = std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
  std::vector<float> numbers(std::min(kPiece, elements));
  for (uint64_t at = 0; at < elements; at += numbers.size()) {
    const uint64_t count = std::min<uint64_t>(numbers.size(), elements - at);
    weights.read(name, at, count, numbers.data());
    writer.write(numbers.data(), count * sizeof(float));
  }
}

}  // namespace

void write_peft_adapter(const Adapter& adapter, const std::string& base, const PeftNames& to) {
  const std::map<std::string, std::string> saved = saved_names(adapter);
  write_file(to.config,
             adapter_config(adapter, base, saved).dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  SafetensorsWriter writer(to.weights);
  writer.add_metadata("format", "pt");
  for (const AdapterLayer& layer : adapter.layers) {
    for (const std::string& name : {layer.down(), layer.up()})
      writer.declare(kPrefix + name, StoredType::kF32, adapter.weights->find(name)->shape);
    if (adapter.settings.dora) writer.declare(kPrefix + layer.magnitude(), StoredType::kF32, {layer.out});
  }
  for (const auto& [name, ours] : saved)
    writer.declare(kPrefix + name, StoredType::kF32, adapter.weights->find(ours)->shape);
  for (const AdapterLayer& layer : adapter.layers) {
    for (const std::string& name : {layer.down(), layer.up()}) write_whole(*adapter.weights, name, writer);
    if (adapter.settings.dora) write_whole(*adapter.weights, layer.magnitude(), writer);
  }
  for (const auto& [name, ours] : saved) write_whole(*adapter.weights, ours, writer);
  writer.finish();
}

}  // namespace reprise
