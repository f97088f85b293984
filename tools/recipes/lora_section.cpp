// A recipe's "lora".
#include "tools/recipes/sections.h"

namespace reprise {

using nlohmann::json;

namespace {

const char* const kAllLinear = "all-linear";

void read_targets(const JsonFields& fields, LoraSettings& lora) {
  const auto form = [] { return either_form(word_form({kAllLinear}), list_form(string_form())); };
  fields.note("targets", form, [] { return json(kAllLinear); },
              {"The linear layers that get an adapter, by the last part of their names (\"q_proj\") or more of it; \"all-linear\" is all but the head"});
  if (!fields.has("targets")) return;
  if (fields.at("targets") == kAllLinear) return;
  if (!fields.at("targets").is_array()) fields.refuse("targets", "must be " + form().words + ", not " + json_shown(fields.at("targets")));
  fields.read("targets", lora.targets);
  if (lora.targets.empty()) fields.refuse("targets", "must name one layer at least, or be \"all-linear\"");
}

}  // namespace

LoraSettings read_lora(const JsonFields& fields) {
  constexpr int kMostRank = 4096;
  fields.allow_only({"r", "alpha", "dropout", "targets", "rslora"});
  LoraSettings lora;
  fields.require("r", "give the rank of the adapters, as 8");
  fields.read("r", lora.r, 1, kMostRank, {"The rank of every adapter"});
  std::optional<double> alpha;
  fields.read("alpha", alpha, kPositive, {"What the adapter adds is multiplied by alpha / r", "", "r"});
  lora.alpha = alpha.value_or(lora.r);
  fields.read("dropout", lora.dropout, kBelowOne, {"The dropout of what an adapter reads"});
  read_targets(fields, lora);
  fields.read("rslora", lora.rslora, {"Multiplies by alpha / sqrt(r) instead (Kalajdzievski 2023)"});
  return lora;
}

json lora_json(const LoraSettings& lora) {
  return {{"r", lora.r},
          {"alpha", lora.alpha},
          {"dropout", lora.dropout},
          {"targets", lora.targets.empty() ? json(kAllLinear) : json(lora.targets)},
          {"rslora", lora.rslora}};
}

}  // namespace reprise
