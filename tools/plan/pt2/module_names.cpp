// See module_names.h.
#include "tools/plan/pt2/module_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

namespace reprise {
namespace {

bool is_of_floats(const OnnxTensor& tensor) {
  const auto type = static_cast<OnnxType>(tensor.type);
  return type == OnnxType::kFloat || type == OnnxType::kHalf || type == OnnxType::kDouble ||
         type == OnnxType::kBfloat16;
}

// A tensor of the module: its name, and whether it is a parameter.
struct ModuleTensor {
  std::string name;
  bool is_parameter = false;
};

// Returns the tensors of a signature by the first word of its lines, as "p_fc_bias: PARAMETER
// target='fc.bias'".
std::unordered_map<std::string, ModuleTensor> tensors_of(const std::string& signature) {
  std::unordered_map<std::string, ModuleTensor> tensors;
  for (size_t at = 0; at < signature.size();) {
    const size_t end = std::min(signature.find('\n', at), signature.size());
    const std::string_view line(signature.data() + at, end - at);
    at = end + 1;
    const size_t colon = line.find(": "), target = line.find(" target='");
    if (colon == std::string_view::npos || target == std::string_view::npos || target < colon) continue;
    const size_t begin = target + std::string_view(" target='").size(), close = line.find('\'', begin);
    if (close == std::string_view::npos) continue;
    const std::string_view kind = line.substr(colon + 2, target - colon - 2);
    tensors[std::string(line.substr(0, colon))] = {std::string(line.substr(begin, close - begin)), kind == "PARAMETER"};
  }
  return tensors;
}

class ModuleNames {
 public:
  explicit ModuleNames(OnnxModel& model) : model_(model), by_argument_(tensors_of(model.signature)) {
    for (size_t n = 0; n < model.constants.size(); ++n) places_.emplace(model.constants[n].name, n);
    for (const auto& [argument, tensor] : by_argument_) by_name_[tensor.name] = tensor.is_parameter;
    for (const OnnxNode& node : model.nodes) written_.insert(node.outputs.begin(), node.outputs.end());
  }

  // Reads the older exporter's Identity nodes: each writes the name of a tensor whose numbers equal
  // its input's.
  void read_identities() {
    for (OnnxNode& node : model_.nodes) {
      const bool is_of_constant =
          node.op == "Identity" && node.domain.empty() && node.inputs.size() == 1 && node.outputs.size() == 1;
      const auto found = is_of_constant ? places_.find(node.inputs[0]) : places_.end();
      if (found == places_.end() || !node.name.starts_with("Identity_") ||
          !is_of_floats(model_.constants[found->second]))
        continue;
      const std::string name = node.outputs[0];
      if (places_.count(name) > 0) continue;
      add_copy(found->second, name);
      node.inputs.clear();
      node.outputs.clear();
    }
  }

  // Reads the newer exporter's notes: the op of PyTorch that a node comes from, and the values that
  // the op reads.
  void read_origins() {
    if (by_argument_.empty()) return;
    for (size_t n = 0; n < model_.constants.size(); ++n) judge(model_.constants[n]);
    for (OnnxNode& node : model_.nodes) {
      if (!node.origin.empty() && node.domain.empty()) read_origin(node);
    }
    for (const auto& [name, is_parameter] : by_name_) {
      if (is_parameter && read_.count(name) == 0) model_.lost.push_back(name);
    }
    std::sort(model_.lost.begin(), model_.lost.end());
  }

 private:
  // True for a name that stand_for() makes. Such names are also in files that Reprise has exported.
  static bool is_own_name(const std::string& name) { return name.starts_with('/'); }

  struct Origin {
    std::string op;                      // "linear" for "torch.ops.aten.linear.default"
    std::vector<std::string> arguments;  // as the file has them: "%p_fc_bias", "None", "[1, 1]"
  };

  // Notes what the file states about a constant, before its readers are known.
  void judge(OnnxTensor& tensor) {
    if (!is_of_floats(tensor)) return;
    if (const auto known = by_name_.find(tensor.name); known != by_name_.end()) {
      tensor.is_trained = known->second;
      return;
    }
    const auto folded = model_.folded_from.find(tensor.name);
    if (folded == model_.folded_from.end()) {
      // The tensor is a number of the module's code.
      if (tensor.name.starts_with("val_") || is_own_name(tensor.name)) tensor.is_trained = false;
      return;
    }
    tensor.is_trained = false;
    const std::string& list = folded->second;  // for example "['fc.weight', 'val_1']"
    for (size_t begin = list.find('\''); begin != std::string::npos;) {
      const size_t end = list.find('\'', begin + 1);
      if (end == std::string::npos) break;
      const auto from = by_name_.find(list.substr(begin + 1, end - begin - 1));
      if (from != by_name_.end() && from->second) tensor.is_trained = tensor.is_computed = true;
      begin = list.find('\'', end + 1);
    }
  }

  static Origin origin_of(const OnnxNode& node) {
    constexpr std::string_view kTarget = "target=torch.ops.aten.", kArguments = "](args = (";
    Origin origin;
    const size_t target = node.origin.find(kTarget), arguments = node.origin.find(kArguments);
    if (target == std::string::npos || arguments == std::string::npos) return origin;
    const size_t begin = target + kTarget.size();
    origin.op = node.origin.substr(begin, node.origin.find_first_of(".]", begin) - begin);
    size_t depth = 0;
    std::string argument;
    for (size_t at = arguments + kArguments.size(); at < node.origin.size(); ++at) {
      const char letter = node.origin[at];
      const bool closes = letter == ')' || letter == ']';
      if (depth == 0 && (letter == ',' || closes)) {
        if (!argument.empty()) origin.arguments.push_back(argument);
        argument.clear();
        if (closes) break;
        continue;
      }
      depth += letter == '(' || letter == '[' ? 1 : 0;
      depth -= closes ? 1 : 0;
      if (letter != ' ') argument += letter;
    }
    return origin;
  }

  // Returns the name of the module's tensor that argument `n` is; "" for none.
  std::string argument(const Origin& origin, size_t n) const {
    const auto found = n < origin.arguments.size() && origin.arguments[n].starts_with('%')
                           ? by_argument_.find(origin.arguments[n].substr(1))
                           : by_argument_.end();
    return found == by_argument_.end() ? "" : found->second.name;
  }
  std::vector<std::string> tensors_among(const Origin& origin) const {
    std::vector<std::string> names;
    for (const std::string& value : values_among(origin)) {
      if (const auto found = by_argument_.find(value); found != by_argument_.end()) names.push_back(found->second.name);
    }
    return names;
  }
  // Returns all values that the origin names, also within lists.
  static std::vector<std::string> values_among(const Origin& origin) {
    const auto is_of_name = [](char letter) {
      return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
    };
    std::vector<std::string> values;
    for (const std::string& argument : origin.arguments) {
      for (size_t at = argument.find('%'); at != std::string::npos; at = argument.find('%', at + 1)) {
        size_t end = at + 1;
        while (end < argument.size() && is_of_name(argument[end])) ++end;
        values.push_back(argument.substr(at + 1, end - at - 1));
      }
    }
    return values;
  }

  // A layer's op in PyTorch: the module's tensors that it reads, and the ONNX op that computes the
  // whole layer.
  struct Layer {
    const char* op = nullptr;
    std::string weight, bias, mean, variance;
  };
  Layer layer_of(const Origin& origin) const {
    const auto parts = [&](const char* op, size_t first) {
      return Layer{op, argument(origin, first), argument(origin, first + 1), "", ""};
    };
    if (origin.op == "linear") return parts("Gemm", 1);
    if (origin.op == "addmm") return {"Gemm", argument(origin, 2), argument(origin, 0), "", ""};
    if (origin.op.starts_with("conv_transpose")) return parts("ConvTranspose", 1);
    if (origin.op == "convolution") return parts("", 1);  // Conv or ConvTranspose
    if (origin.op.starts_with("conv")) return parts("Conv", 1);
    if (origin.op == "layer_norm") return parts("LayerNormalization", 2);
    if (origin.op == "group_norm") return parts("GroupNormalization", 2);
    if (origin.op == "prelu" || origin.op == "rms_norm")
      return {origin.op == "prelu" ? "PRelu" : "RMSNormalization", argument(origin, origin.op == "prelu" ? 1 : 2), "",
              "", ""};
    const bool is_instance = origin.op == "instance_norm", is_batch = origin.op.find("batch_norm") != std::string::npos;
    if (!is_instance && !is_batch) return {};
    return {is_instance ? "InstanceNormalization" : "BatchNormalization", argument(origin, 1), argument(origin, 2),
            argument(origin, 3), argument(origin, 4)};
  }

  // Returns the name of the module's tensor that input `slot` of a node is; "" if it is unknown or
  // none.
  std::string role_of(const OnnxNode& node, const Origin& origin, size_t slot) const {
    const Layer layer = layer_of(origin);
    const std::vector<std::string> names = tensors_among(origin);
    if (layer.op == nullptr) return names.size() == 1 ? names[0] : "";
    if (node.op == "Add") return layer.bias;  // exporters also write a layer as a product and a sum
    if (node.op == "MatMul" || node.op == "Mul") return layer.weight;
    const bool is_whole = *layer.op == '\0' ? node.op.starts_with("Conv") : node.op == layer.op;
    if (!is_whole || slot == 0 || slot > 4) return "";
    return std::array<std::string, 4>{layer.weight, layer.bias, layer.mean, layer.variance}[slot - 1];
  }

  // True if the origin names this value among its arguments.
  static bool names_value(const Origin& origin, const std::string& value) {
    const std::vector<std::string> values = values_among(origin);
    return std::find(values.begin(), values.end(), value) != values.end();
  }

  void read_origin(OnnxNode& node) {
    const Origin origin = origin_of(node);
    const std::vector<std::string> names = tensors_among(origin);
    const bool has_folded_norm = node.op.starts_with("Conv") && origin.op.find("batch_norm") != std::string::npos;
    for (size_t slot = 0; slot < node.inputs.size(); ++slot) {
      const auto found = places_.find(node.inputs[slot]);
      if (found == places_.end() || !is_of_floats(model_.constants[found->second])) continue;
      OnnxTensor& tensor = model_.constants[found->second];
      const bool is_modules = by_name_.count(tensor.name) > 0,
                 is_known = is_modules || tensor.is_computed || !tensor.parameter.empty() || is_own_name(tensor.name);
      if (has_folded_norm) tensor.is_computed = true;
      read_.insert(tensor.parameter.empty() ? tensor.name : tensor.parameter);
      if (!is_known || has_folded_norm || names_value(origin, tensor.name)) continue;
      const bool is_named = std::count(names.begin(), names.end(), tensor.name) > 0;
      const std::string role = is_named && layer_of(origin).op == nullptr ? tensor.name : role_of(node, origin, slot);
      if (!role.empty() && role != tensor.name) node.inputs[slot] = stand_for(found->second, role);
      // The input is the ones or zeros of a layer without parameters. The exporter stored them
      // once, together with a tensor of equal numbers, so they get a constant of their own.
      if (role.empty() && names.empty() && !is_own_name(tensor.name)) node.inputs[slot] = stand_for(found->second, "");
      read_.insert(role);
    }
    restore_bias(node, origin);
  }

  // Returns the name of the constant that represents tensor `role` of the module. `role` is "" for
  // numbers that are no tensor of the module.
  std::string stand_for(size_t place, const std::string& role) {
    const std::string key = model_.constants[place].name + '\n' + role;
    if (const auto made = made_.find(key); made != made_.end()) return made->second;
    const bool is_modules = by_name_.count(model_.constants[place].name) > 0;
    const bool is_free = !role.empty() && !is_modules && model_.constants[place].parameter.empty();
    if (is_free) {  // the exporter made up the constant's name, and `role` is the first tensor that it represents
      OnnxTensor& tensor = model_.constants[place];
      tensor.parameter = role;
      tensor.is_trained = by_name_.at(role);
      tensor.is_computed = false;
      return made_[key] = tensor.name;
    }
    // The copy has the name `role` only if the constant itself has a tensor's name, because only
    // then its layout is the module's. Otherwise the copy gets a name that no tensor of a module
    // has.
    const std::string name = unique(!role.empty() && is_modules ? role : "/" + model_.constants[place].name);
    OnnxTensor& copy = add_copy(place, name);
    copy.parameter = role;
    copy.is_trained = !role.empty() && by_name_.at(role);
    copy.is_computed = false;
    return made_[key] = name;
  }

  OnnxTensor& add_copy(size_t place, const std::string& name) {
    OnnxTensor copy = model_.constants[place];
    copy.name = name;
    copy.integers.clear();
    copy.is_copy = true;
    places_[name] = model_.constants.size();
    model_.constants.push_back(std::move(copy));
    return model_.constants.back();
  }

  // Adds a layer's bias of zeros, which no node reads.
  void restore_bias(OnnxNode& node, const Origin& origin) {
    const Layer layer = layer_of(origin);
    const bool is_product = node.op == "MatMul" && layer.op != nullptr && std::string_view(layer.op) == "Gemm";
    const bool is_layer =
        is_product || ((node.op == "Gemm" || node.op.starts_with("Conv") || node.op == "LayerNormalization") &&
                       !role_of(node, origin, 2).empty());
    const std::string& right = layer.bias;
    const bool has_input = !is_product && node.inputs.size() > 2 && !node.inputs[2].empty();
    const auto weight = node.inputs.size() > 1 ? places_.find(node.inputs[1]) : places_.end();
    if (!is_layer || right.empty() || has_input || weight == places_.end() || (is_product && has_sum(node))) return;
    const std::vector<uint64_t>& shape = model_.constants[weight->second].shape;
    const auto integer = [&](const char* name, int64_t absent) {
      for (const OnnxAttribute& attribute : node.attributes) {
        if (attribute.name == name) return attribute.integer;
      }
      return absent;
    };
    uint64_t size = shape.empty() ? 0 : shape[0];
    if (node.op == "MatMul" && !shape.empty()) size = shape.back();
    if (node.op == "Gemm" && shape.size() == 2 && integer("transB", 0) == 0) size = shape[1];
    if (node.op == "ConvTranspose" && shape.size() > 1)
      size = shape[1] * static_cast<uint64_t>(std::max<int64_t>(1, integer("group", 1)));
    constexpr uint64_t kMaxOfBias = 1 << 24;  // maximum number of elements of all restored biases together
    if (size == 0 || size > kMaxOfBias - restored_) return;
    restored_ += size;
    const std::string key = "bias\n" + right;
    if (made_.count(key) == 0) {
      OnnxTensor zeros;
      zeros.parameter = right;
      zeros.name = unique(right);
      zeros.shape = {size};
      zeros.type = model_.constants[weight->second].type;
      zeros.numbers.assign(size, 0);
      zeros.is_trained = by_name_.at(right);
      zeros.is_copy = true;
      places_[zeros.name] = model_.constants.size();
      made_[key] = zeros.name;
      model_.constants.push_back(std::move(zeros));
    }
    node.bias = made_[key];
    read_.insert(right);
  }

  // True if a separate node of the same origin adds the product's bias.
  bool has_sum(const OnnxNode& product) {
    if (sums_.empty()) {
      sums_.insert("");
      for (const OnnxNode& node : model_.nodes) {
        if (node.op == "Add") sums_.insert(node.origin);
      }
    }
    return sums_.count(product.origin) > 0;
  }

  std::string unique(const std::string& name) const {
    std::string result = name;
    for (size_t n = 2; places_.count(result) + written_.count(result) > 0; ++n) result = name + "_" + std::to_string(n);
    return result;
  }

  OnnxModel& model_;
  const std::unordered_map<std::string, ModuleTensor> by_argument_;  // by the names that origins use
  std::map<std::string, bool> by_name_;  // key: a tensor's name; entry: true if it is a parameter
  std::unordered_map<std::string, size_t> places_;                   // index of the model's constants, by name
  std::unordered_map<std::string, std::string> made_;
  std::set<std::string> read_, written_;
  std::set<std::string_view> sums_;  // OnnxNode::origin of all sums
  uint64_t restored_ = 0;            // number of elements of all restored biases together
};

}  // namespace

void name_by_module(OnnxModel& model) {
  if (model.producer != "pytorch") return;
  ModuleNames names(model);
  names.read_identities();
  names.read_origins();
}

bool is_modules_name(const std::string& name) {
  const bool has_letter = std::any_of(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  return has_letter && name.find(':') == std::string::npos && name.find('/') == std::string::npos &&
         !name.starts_with("val_");
}

}  // namespace reprise
