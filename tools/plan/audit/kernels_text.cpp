// See kernels_text.h.
#include "tools/plan/audit/kernels_text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <sstream>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/plan/costs/backends.h"

namespace reprise {

using nlohmann::json;

namespace {

const char* role_word(Role role) {
  switch (role) {
    case Role::kNone: break;
    case Role::kOutput: return "output";
    case Role::kUpdated: return "updated";
    case Role::kInput: return "input";
    case Role::kScratch: return "scratch";
  }
  return "";
}

const char* storage_word(Storage storage) {
  switch (storage) {
    case Storage::kF32: return "f32";
    case Storage::kF64: return "f64";
    case Storage::kI32: return "i32";
    case Storage::kI64: return "i64";
    case Storage::kU8: return "u8";
    case Storage::kActivation: return "activation";
    case Storage::kWeight: return "weight";
    case Storage::kTrained: return "trained";
    case Storage::kMoment: return "moment";
    case Storage::kSquareMoment: return "square_moment";
    case Storage::kClasses: return "classes";
    case Storage::kScalars: return "scalars";
    case Storage::kScratch: return "scratch";
    case Storage::kAny: return "any";
  }
  return "";
}

json argument_json(const ArgumentInfo& argument) {
  json types = json::array();
  for (uint32_t i = 0; i < kDTypeCount; ++i) {
    if (may_store(argument.storage, static_cast<DType>(i))) types.push_back(kDTypes[i].name);
  }
  const ArgumentText text = argument_text(argument);
  return {{"name", text.name},
          {"shapes", text.shapes},
          {"role", role_word(argument.role)},
          {"storage", storage_word(argument.storage)},
          {"types", types},
          {"optional", argument.optional},
          {"adds", argument.may_accumulate}};
}

bool is_weight(uint32_t kernel, uint32_t argument) {
  return kOps[kernel].arguments[argument].storage == Storage::kWeight;
}

// Returns the types of weights that a kernel accepts; an empty list if it has no weights.
json weight_types(const KernelRules& rules, uint32_t kernel) {
  json types = json::array();
  bool has_any = false;
  for (uint32_t i = 0; i < kOps[kernel].arity(); ++i) has_any = has_any || is_weight(kernel, i);
  for (uint32_t i = 0; i < kDTypeCount; ++i) {
    if (has_any && rules.exists && takes_weights(rules.weights, static_cast<DType>(i)))
      types.push_back(kDTypes[i].name);
  }
  return types;
}

bool takes(const KernelRules& rules, uint32_t kernel, const SizedCall& call) {
  for (uint32_t i = 0; i < call.tensors.size(); ++i) {
    if (is_weight(kernel, i) && call.tensors[i] && !takes_weights(rules.weights, call.tensors[i]->dtype)) return false;
  }
  return rules.exists;
}

json levels_of(const KernelRules& rules) {
  json levels = json::array();
  std::istringstream words(rules.levels);
  for (std::string word; std::getline(words >> std::ws, word, ',');) levels.push_back(word);
  return levels;
}

json backend_json(const BackendRules& rules, uint32_t kernel, const SizedCall* call) {
  json answer = {{"name", rules.name},
                 {"exists", rules.kernels[kernel].exists},
                 {"weights", weight_types(rules.kernels[kernel], kernel)},
                 {"levels", levels_of(rules.kernels[kernel])},
                 {"scratch_bytes", nullptr},
                 {"stack_bytes", nullptr}};
  if (call == nullptr || !takes(rules.kernels[kernel], kernel, *call)) return answer;
  const KernelCall made = call->of(kOps[kernel]);
  const AttributePools pools = call->attributes.pools();
  const ShapedKernelCall shaped(made, pools);
  answer["scratch_bytes"] = rules.scratch_bytes(shaped.shaped());
  answer["stack_bytes"] = rules.stack_bytes(shaped.shaped());
  return answer;
}

std::string words_of(const json& list, const char* between) {
  std::string text;
  for (const json& word : list) text += (text.empty() ? "" : between) + word.get<std::string>();
  return text;
}

std::string backends_text(const json& kernel) {
  std::vector<std::string> names;
  for (const json& backend : kernel["backends"]) {
    if (backend["exists"].get<bool>()) names.push_back(backend["name"]);
  }
  return names.empty() ? "no backend" : some_of(names);
}

std::string argument_line(const json& argument) {
  std::string name = argument["name"];
  const json& shapes = argument["shapes"];
  for (size_t i = 0; i < shapes.size(); ++i) name += (i == 0 ? "[" : " or [") + shapes[i].get<std::string>() + "]";
  const std::string storage = argument["storage"], types = words_of(argument["types"], " or ");
  std::string facts =
      storage == types || storage == "scalars" || storage == "scratch" ? storage : storage + ", " + types;
  if (argument["optional"].get<bool>()) facts += ", may be absent";
  if (argument["adds"].get<bool>()) facts += ", may be added to";
  char line[256];
  std::snprintf(line, sizeof line, "  %-8s %-34s %s\n", argument["role"].get<std::string>().c_str(), name.c_str(),
                facts.c_str());
  return line;
}

std::string page(const json& kernel) {
  std::string text = kernel["name"].get<std::string>() + "\n  " + kernel["synopsis"].get<std::string>() + "\n\n";
  for (const json& argument : kernel["arguments"]) text += argument_line(argument);
  if (!kernel["in_place"].is_null()) text += "  " + words_of(kernel["in_place"], " and ") + " may share memory\n";
  if (!kernel["attribute"].empty()) text += "  attribute: " + words_of(kernel["attribute"], ", ") + "\n";
  text += "  kernels in: " + backends_text(kernel) + "\n";
  for (const json& backend : kernel["backends"]) {
    if (!backend["levels"].empty())
      text += "  " + backend["name"].get<std::string>() + " has it for " + words_of(backend["levels"], ", ") + "\n";
  }
  for (const json& backend : kernel["backends"]) {
    if (backend["weights"].empty()) continue;
    text +=
        "  " + backend["name"].get<std::string>() + " takes weights as " + words_of(backend["weights"], ", ") + "\n";
  }
  for (const json& backend : kernel["backends"]) {
    if (backend["scratch_bytes"].is_null()) continue;
    text += "  " + backend["name"].get<std::string>() + " takes " + bytes_text(backend["scratch_bytes"]) +
            " of scratch, " + bytes_text(backend["stack_bytes"]) + " of a worker's stack\n";
  }
  return text;
}

}  // namespace

std::string synopsis_of(const std::string& kernel) {
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    if (kernel == kOps[i].name) return kSynopses[i];
  }
  return "";
}

std::vector<uint32_t> kernels_named(const std::string& name) {
  std::vector<uint32_t> found;
  std::vector<std::string> known;
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    if (name.empty() || name == kOps[i].name || name == op_name(kOps[i].op)) found.push_back(i);
    known.push_back(kOps[i].name);
    if (std::find(known.begin(), known.end(), op_name(kOps[i].op)) == known.end()) known.push_back(op_name(kOps[i].op));
  }
  if (!found.empty()) return found;
  const std::vector<std::string> near = nearest_words(name, known, 3);
  throw UserError("kernels: no kernel is called " + json_shown(name) +
                      (near.empty() ? "" : "; the nearest are " + quoted_list(near)),
                  UserError::kUsage);
}

json kernel_json(uint32_t kernel, const SizedCall* call) {
  const KernelInfo& info = kOps[kernel];
  const KernelSizes sizes(info, {});
  json arguments = json::array(), backends = json::array(), in_place;
  for (uint32_t i = 0; i < info.arity(); ++i) arguments.push_back(argument_json(info.arguments[i]));
  for (const BackendRules* rules : all_backends()) backends.push_back(backend_json(*rules, kernel, call));
  if (info.in_place_output >= 0)
    in_place = {arguments[info.in_place_output]["name"], arguments[info.in_place_input]["name"]};
  return {{"name", info.name},      {"synopsis", kSynopses[kernel]}, {"attribute", sizes.fields()},
          {"arguments", arguments}, {"in_place", in_place},          {"backends", backends},
          {"sizes", sizes.names()}};
}

std::string kernel_lines(const json& kernels) {
  std::string text;
  for (const json& kernel : kernels) {
    char line[512];
    std::snprintf(line, sizeof line, "%-25s %-23s %s\n", kernel["name"].get<std::string>().c_str(),
                  backends_text(kernel).c_str(), kernel["synopsis"].get<std::string>().c_str());
    text += line;
  }
  return text;
}

std::string kernel_pages(const json& kernels) {
  std::string text;
  for (const json& kernel : kernels) text += (text.empty() ? "" : "\n") + page(kernel);
  return text;
}

}  // namespace reprise
