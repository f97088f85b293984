// A recipe's "lora".
#include "tools/plan/recipes/sections.h"

namespace reprise {

using nlohmann::json;

namespace {

const char* const kAllLinear = "all-linear";

void read_targets(const JsonFields& fields, LoraSettings& lora) {
  const auto form = [] { return either_form(word_form({kAllLinear}), list_form(string_form())); };
  fields.note("targets", form, [] { return json(kAllLinear); },
              {"The linear layers that get an adapter, by the ends of their names (\"q_proj\", "
               "\"layers.0.self_attn.q_proj\"), in which * and ? may stand; "
               "\"all-linear\" is all but the head"});
  if (!fields.has("targets")) return;
  if (fields.at("targets") == kAllLinear) return;
  if (!fields.at("targets").is_array())
    fields.refuse("targets", "must be " + form().words + ", not " + json_shown(fields.at("targets")));
  fields.read("targets", lora.targets);
  if (lora.targets.empty()) fields.refuse("targets", "must name one layer at least, or be \"all-linear\"");
}

constexpr int kMaxLoraRank = 4096;

// Reads an object {"PATTERN": number}. Calls `read` with the object's fields, a pattern and its
// number.
template <typename Number, typename Read>
void read_patterns(const JsonFields& fields, const std::string& key, std::map<std::string, Number>& patterns,
                   const ValueForm& number, const KeyText& text, const Read& read) {
  const auto form = [&] {
    return ValueForm{"an object of patterns of layers, each with " + number.words, {{"type", "object"}}};
  };
  fields.note(key, form, [] { return json::object(); }, text);
  if (!fields.has(key)) return;
  const JsonFields object = fields.object(key);
  for (const auto& [pattern, value] : fields.at(key).items()) {
    if (pattern.empty()) fields.refuse(key, "\"\" is no pattern; must be the end of a layer's name");
    patterns[pattern] = read(object, pattern, value);
  }
}

}  // namespace

LoraSettings read_lora(const JsonFields& fields) {
  fields.allow_only({"r", "alpha", "dropout", "targets", "rslora", "lr_ratio", "dora", "rank_pattern", "alpha_pattern",
                     "modules_to_save"});
  LoraSettings lora;
  fields.require("r", "give the rank of the adapters, as 8");
  fields.read("r", lora.r, 1, kMaxLoraRank, {"The rank of every adapter"});
  std::optional<double> alpha;
  fields.read("alpha", alpha, kPositive, {"What the adapter adds is multiplied by alpha / r", "", "r"});
  lora.alpha = alpha.value_or(lora.r);
  fields.read("dropout", lora.dropout, kBelowOne, {"The dropout of what an adapter reads"});
  read_targets(fields, lora);
  fields.read("rslora", lora.rslora, {"Multiplies by alpha / sqrt(r) instead (Kalajdzievski 2023)"});
  fields.read("lr_ratio", lora.lr_ratio, kPositive,
              {"The learning rate of an adapter's B over that of its A (LoRA+, Hayou et al. 2024)"});
  fields.read("dora", lora.dora, {"Trains the length of each row of the adapted weight, too (DoRA, Liu et al. 2024)"});
  if (lora.dora && lora.dropout > 0)
    fields.refuse("dora", "does not go with \"dropout\"; must be false, or \"dropout\" 0");
  read_patterns(fields, "rank_pattern", lora.rank_pattern, integer_form(1, kMaxLoraRank),
                {"Another rank than r for some layers: {\"PATTERN\": rank}, patterns as those of targets; of several "
                 "that match, the longest"},
                [](const JsonFields& object, const std::string& pattern, const json& value) {
                  return static_cast<int>(object.integer_in(pattern, value, 1, kMaxLoraRank));
                });
  read_patterns(fields, "alpha_pattern", lora.alpha_pattern, number_form(kPositive),
                {"Another alpha for some layers, in the same way"},
                [](const JsonFields& object, const std::string& pattern, const json& value) {
                  return object.number_in(pattern, value, kPositive);
                });
  fields.read("modules_to_save", lora.modules_to_save,
              {"Modules that are trained whole beside the adapters (\"lm_head\", \"embed_tokens\", \"layers.0.mlp\"), "
               "by patterns as those of targets"});
  return lora;
}

json lora_json(const LoraSettings& lora) {
  json value = {{"r", lora.r},
                {"alpha", lora.alpha},
                {"dropout", lora.dropout},
                {"targets", lora.targets.empty() ? json(kAllLinear) : json(lora.targets)},
                {"rslora", lora.rslora}};
  // Written only if set: snapshots of earlier versions do not have them.
  if (lora.lr_ratio != 1) value["lr_ratio"] = lora.lr_ratio;
  if (lora.dora) value["dora"] = true;
  if (!lora.rank_pattern.empty()) value["rank_pattern"] = lora.rank_pattern;
  if (!lora.alpha_pattern.empty()) value["alpha_pattern"] = lora.alpha_pattern;
  if (!lora.modules_to_save.empty()) value["modules_to_save"] = lora.modules_to_save;
  return value;
}

}  // namespace reprise
