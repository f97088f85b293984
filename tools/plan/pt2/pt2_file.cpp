// See pt2_file.h. An archive has, in a folder of any name: models/NAME.json, the graph; byteorder;
// data/weights and data/constants, each a JSON of tensors and files of numbers.
#include "tools/plan/pt2/pt2_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/files/formats/json_text.h"
#include "tools/files/formats/zip_file.h"
#include "tools/files/io/error.h"
#include "tools/plan/pt2/aten_graph.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int64_t kSchema = 8;  // the major version; minor versions change nothing that old readers would misread
constexpr int64_t kMaxOfAxis = int64_t{1} << 31;
constexpr uint64_t kMaxElements = uint64_t{1} << 32, kMaxAxes = 16;

// A type of numbers, as ONNX numbers it, and the bytes of one number. The index in kScalarTypes is
// the schema's number of the type. An unavailable type has the entry {0, 0}.
struct ScalarType {
  uint32_t onnx, bytes;
};
constexpr std::array<ScalarType, 14> kScalarTypes = {{{0, 0},
                                                      {2, 1},
                                                      {3, 1},
                                                      {5, 2},
                                                      {6, 4},
                                                      {7, 8},
                                                      {10, 2},
                                                      {1, 4},
                                                      {11, 8},
                                                      {0, 0},
                                                      {0, 0},
                                                      {0, 0},
                                                      {9, 1},
                                                      {16, 2}}};

class Pt2Reader {
 public:
  explicit Pt2Reader(const InputFile& file) : file_(file), archive_(file) {}

  OnnxModel read() {
    find_model();
    // The JSON library throws if a key is missing or a value has another type. `place_` then names
    // the part of the file that was being read.
    try {
      read_program();
    } catch (const json::exception& error) {
      const std::string text = error.what();  // for example "[json.exception.out_of_range.403] key 'sizes' not found"
      refuse("its JSON is not as it must be: " +
             text.substr(text.find("] ") == std::string::npos ? 0 : text.find("] ") + 2));
    }
    add_aten_nodes(graph_, model_);
    place_ = "graph_module.graph.nodes";
    if (model_.nodes.size() > kMaxOnnxNodes)
      refuse("has more than " + std::to_string(kMaxOnnxNodes) + " nodes as ONNX, which is the most that is available");
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw UserError(file_.path() + ": " + place_ + ": " + reason +
                    "; a program is wanted as torch.export.save writes it");
  }

  void find_model() {
    const std::string first = archive_.entries().empty() ? "" : archive_.entries().begin()->first;
    root_ = first.substr(0, first.find('/') + 1);
    std::vector<std::string> models;
    for (const auto& [name, entry] : archive_.entries()) {
      if (name.starts_with(root_ + "models/") && name.ends_with(".json")) models.push_back(name);
    }
    place_ = "models/*.json";
    if (archive_.find(root_ + "serialized_exported_program.json") != nullptr ||
        archive_.find("serialized_exported_program.json") != nullptr) {
      refuse("the archive is of an older torch.export; save it again with torch 2.8 or later");
    }
    if (models.size() != 1)
      refuse("there are " + std::to_string(models.size()) + " of them in the archive, and one must be");
    entry_ = models[0];
    const size_t begin = root_.size() + std::string("models/").size();
    name_ = entry_.substr(begin, entry_.size() - begin - std::string(".json").size());
    place_ = "byteorder";
    const ZipEntry* order = archive_.find(root_ + "byteorder");
    if (order != nullptr && (order->bytes > 16 || archive_.text(*order) != "little")) refuse("must be little");
  }

  json parse(const std::string& name) const {
    const ZipEntry* entry = archive_.find(name);
    if (entry == nullptr) refuse("there is no " + json_shown(name) + " in the archive");
    return parse_json(archive_.text(*entry), file_.path() + ": " + name);
  }

  void read_program() {
    place_ = "schema_version";
    const json program = parse(entry_);
    const json& version = program.at("schema_version");
    if (integer(version.at("major")) != kSchema)
      refuse(json_shown(version) + " is not read; major must be " + std::to_string(kSchema) +
             ", which torch 2.8 and later write");
    read_payloads();
    for (size_t n = 0; n < model_.constants.size(); ++n) places_.try_emplace(model_.constants[n].name, n);
    const json &module = program.at("graph_module"), &graph = module.at("graph");
    read_values(graph);
    read_signature(module.at("signature"));
    const json& nodes = graph.at("nodes");
    for (size_t n = 0; n < nodes.size(); ++n) {
      place_ = "graph_module.graph.nodes[" + std::to_string(n) + "]";
      read_node(nodes.at(n));
    }
    for (std::string& output : graph_.outputs) output = resolved(output);
    for (auto& [value, buffer] : graph_.written) value = resolved(value);
  }

  // ---- tensors ----

  void read_payloads() {
    for (const char* kind : {"weights", "constants"}) {
      const std::string folder = root_ + "data/" + kind + "/";
      const json file = parse(folder + name_ + "_" + kind + "_config.json");
      for (const auto& [name, payload] : file.at("config").items()) {
        place_ = std::string(kind) + " " + json_shown(name);
        read_payload(name, folder, payload);
      }
    }
  }

  // Reads one tensor. Several tensors may share a file; each is a view of the file's numbers, of
  // any shape and strides.
  void read_payload(const std::string& name, const std::string& folder, const json& payload) {
    if (payload.at("use_pickle").get<bool>()) return pickled_.push_back(name);
    const ZipEntry* entry = archive_.find(folder + payload.at("path_name").get<std::string>());
    if (entry == nullptr) refuse("its file " + json_shown(payload.at("path_name")) + " is not in the archive");
    const json& meta = payload.at("tensor_meta");
    OnnxTensor tensor;
    tensor.name = name;
    const ScalarType type = scalar_type(meta.at("dtype"));
    tensor.type = type.onnx;
    tensor.is_frozen = !meta.value("requires_grad", true);
    double elements = 1;
    for (const json& size : meta.at("sizes")) elements *= static_cast<double>(tensor.shape.emplace_back(count(size)));
    for (const json& stride : meta.at("strides")) tensor.strides.push_back(count(stride));
    if (tensor.shape.size() > kMaxAxes || tensor.strides.size() != tensor.shape.size() ||
        elements > static_cast<double>(kMaxElements))
      refuse("its sizes and strides are none of a tensor");
    if (type.onnx == 0) return model_.constants.push_back(std::move(tensor));  // its readers are refused
    const double begin = static_cast<double>(count(meta.at("storage_offset"))) * type.bytes,
                 end = begin + span_of(tensor) * type.bytes;
    if (end > static_cast<double>(entry->bytes))
      refuse("its file has " + std::to_string(entry->bytes) + " bytes, fewer than its sizes and strides take");
    if (elements > span_of(tensor)) refuse("numbers of it lie in the same place");
    tensor.at = entry->at + static_cast<uint64_t>(begin);
    tensor.bytes = static_cast<uint64_t>(end - begin);
    if (span_of(tensor) == elements && is_contiguous(tensor)) tensor.strides.clear();
    model_.constants.push_back(std::move(tensor));
  }

  // Returns the distance from the first number to the end of the last number, in elements.
  static double span_of(const OnnxTensor& tensor) {
    double last = 0;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (tensor.shape[d] == 0) return 0;
      last += static_cast<double>(tensor.shape[d] - 1) * static_cast<double>(tensor.strides[d]);
    }
    return last + 1;
  }
  static bool is_contiguous(const OnnxTensor& tensor) {
    uint64_t stride = 1;
    for (size_t d = tensor.shape.size(); d-- > 0; stride *= tensor.shape[d]) {
      if (tensor.shape[d] > 1 && tensor.strides[d] != stride) return false;
    }
    return true;
  }

  // ---- the graph ----

  void read_values(const json& graph) {
    for (const auto& [name, size] : graph.at("sym_int_values").items()) {
      place_ = "sym_int_values." + shown_key(name);
      symbols_[scope_ + name] = symbolic(size);
    }
    for (const auto& [name, meta] : graph.at("tensor_values").items()) {
      place_ = "tensor_values." + shown_key(name);
      OnnxValue value = {scoped(name), scalar_type(meta.at("dtype")).onnx, {}};
      for (const json& size : meta.at("sizes")) {
        const AtenInteger dimension = symbolic(size);
        if (dimension.value < 0 || dimension.value > kMaxOfAxis)
          refuse("a size must be from 0 to 2^31, not " + json_shown(size));
        value.shape.push_back({dimension.symbol.empty() ? dimension.value : -1, dimension.symbol});
      }
      graph_.values[scoped(name)] = std::move(value);
    }
  }

  void read_signature(const json& signature) {
    place_ = "graph_module.signature";
    for (const json& spec : signature.at("input_specs")) {
      for (const auto& [kind, key] : {std::pair("parameter", "parameter_name"),
                                      {"buffer", "buffer_name"},
                                      {"tensor_constant", "tensor_constant_name"}}) {
        if (spec.contains(kind))
          name_tensor(spec.at(kind).at("arg").at("name"), spec.at(kind).at(key), std::string_view(kind) == "parameter");
      }
      if (!spec.contains("user_input")) continue;
      const json& argument = spec.at("user_input").at("arg");
      if (!argument.contains("as_tensor")) continue;  // the input is a number, whose value the graph contains
      graph_.inputs.push_back(scoped(argument.at("as_tensor").at("name")));
      model_.inputs.push_back(value_of(graph_.inputs.back()));
      OnnxValue& input = model_.inputs.back();  // f16 and bf16 inputs are given as f32
      if (is_half(input.type)) input.type = static_cast<uint32_t>(OnnxType::kFloat);
    }
    for (const json& spec : signature.at("output_specs")) {
      if (spec.contains("user_output") && spec.at("user_output").at("arg").contains("as_tensor"))
        graph_.outputs.push_back(spec.at("user_output").at("arg").at("as_tensor").at("name"));
      if (spec.contains("buffer_mutation"))
        graph_.written.emplace_back(spec.at("buffer_mutation").at("arg").at("name"),
                                    spec.at("buffer_mutation").at("buffer_name"));
      if (spec.contains("loss_output")) graph_.outputs.push_back(spec.at("loss_output").at("arg").at("name"));
    }
  }
  static bool is_half(uint32_t type) {
    return type == static_cast<uint32_t>(OnnxType::kHalf) || type == static_cast<uint32_t>(OnnxType::kBfloat16);
  }
  const OnnxValue& value_of(const std::string& name) const {
    const auto found = graph_.values.find(name);
    if (found == graph_.values.end()) refuse("value " + json_shown(name) + " has no sizes");
    return found->second;
  }
  void name_tensor(const std::string& value, const std::string& name, bool is_parameter) {
    const auto found = places_.find(name);
    const bool is_there = found != places_.end();
    if (is_there) {
      OnnxTensor& tensor = model_.constants[found->second];
      tensor.is_trained = is_parameter;
      tensor.is_frozen = tensor.is_frozen || !is_parameter;
    }
    const bool is_pickled = std::find(pickled_.begin(), pickled_.end(), name) != pickled_.end();
    if (!is_there)
      refuse("tensor " + json_shown(name) +
             (is_pickled ? ": is pickled, which is not read" : ": has no numbers in the archive"));
    graph_.tensor_names[scoped(value)] = name;
  }

  // Returns the name of a value of the graph being read. A value of the outermost graph whose name
  // is also a tensor's name in the module gets a ':' at the end.
  std::string scoped(const std::string& name) const {
    return scope_ + name + (scope_.empty() && places_.count(name) > 0 ? ":" : "");
  }
  // Returns the value that has this name in the graph being read. In a called graph it may be a
  // value from outside.
  std::string resolved(const std::string& name) const {
    const auto found = aliases_.find(scoped(name));
    return found == aliases_.end() ? scoped(name) : found->second;
  }

  // Reads the nodes of a graph that a node calls, as if the graph's nodes replaced this node.
  // Returns false if the node calls no graph.
  bool read_called_graph(const std::string& target, const json& given) {
    constexpr size_t kMaxDepth = 16;
    const json& inputs = given.at("inputs");
    const auto flag = [&](size_t n) { return inputs.at(n).at("arg").value("as_bool", true); };
    const bool sets_gradient = target == "higher_order.wrap_with_set_grad_enabled" && inputs.size() > 1,
               is_plain = (target == "higher_order.wrap_with_autocast" && inputs.size() > 4 && !flag(2)) ||
                          target == "higher_order.tag_activation_checkpoint" ||
                          target == "higher_order.wrap_activation_checkpoint";
    if (!sets_gradient && !is_plain) return false;
    size_t place = 0;
    while (place < inputs.size() && !inputs.at(place).at("arg").contains("as_graph")) ++place;
    if (place == inputs.size()) return false;
    const json& graph = inputs.at(place).at("arg").at("as_graph").at("graph");
    const std::string scope = scope_ + given.at("name").get<std::string>() + ":";
    if (static_cast<size_t>(std::count(scope.begin(), scope.end(), ':')) > kMaxDepth)
      refuse("calls graphs within more than " + std::to_string(kMaxDepth) +
             " others, which is the most that is available");
    const json& placeholders = graph.at("inputs");
    for (size_t n = 0; n < placeholders.size() && place + 1 + n < inputs.size(); ++n) {
      const std::vector<std::string> inner = argument_of(placeholders.at(n)).tensors,
                                     outer = argument_of(inputs.at(place + 1 + n).at("arg")).tensors;
      if (inner.size() == 1 && outer.size() == 1) aliases_[scope + inner[0]] = outer[0];
    }
    const std::string outside = std::exchange(scope_, scope);
    const bool had_gradients = std::exchange(has_gradients_, sets_gradient ? flag(0) : has_gradients_);
    read_values(graph);
    for (const json& node : graph.at("nodes")) read_node(node);
    std::vector<std::string> results;
    for (const json& output : graph.at("outputs")) {
      for (const std::string& name : argument_of(output).tensors) results.push_back(name);
    }
    scope_ = outside;
    has_gradients_ = had_gradients;
    size_t n = 0;
    for (const json& output : given.at("outputs")) {
      for (const std::string& name : names_in(output)) {
        if (n < results.size()) aliases_[scoped(name)] = results[n++];
      }
    }
    return true;
  }

  void read_node(const json& given) {
    constexpr std::string_view kPrefix = "torch.ops.";
    AtenNode node;
    node.target = given.at("target");
    if (node.target.starts_with(kPrefix)) node.target.erase(0, kPrefix.size());
    if (read_called_graph(node.target, given)) return;
    node.has_gradients = has_gradients_;
    for (const json& input : given.at("inputs"))
      node.arguments.emplace_back(input.at("name"), argument_of(input.at("arg")));
    for (const json& output : given.at("outputs")) {
      for (const std::string& name : names_in(output)) node.outputs.push_back(scoped(name));
    }
    if (node.outputs.empty()) return;  // A check, or arithmetic of sizes, whose values are in sym_int_values.
    node.name = module_of(given.at("metadata"));
    if (!node.name.empty()) node.name += '/';
    node.name += node.outputs[0];
    graph_.nodes.push_back(std::move(node));
  }
  // Returns the innermost module's path of a stack as
  // "L__self__,,torchvision...ResNet;L__self__conv1,conv1,torch.nn...Conv2d".
  static std::string module_of(const json& metadata) {
    const std::string stack = metadata.value("nn_module_stack", "");
    const std::string innermost = stack.substr(stack.rfind(';') + 1);
    const size_t begin = innermost.find(',') + 1, end = innermost.find(',', begin);
    return begin == 0 || end == std::string::npos ? "" : innermost.substr(begin, end - begin);
  }

  // Returns an argument: an object of one key, which names the kind of its value.
  AtenArgument argument_of(const json& given) const {
    if (!given.is_object() || given.size() != 1) refuse("an argument must have one key");
    const std::string key = given.begin().key();
    const json& value = *given.begin();
    const auto each = [&](const auto& take) {
      if (!value.is_array()) return take(value);
      for (const json& one : value) take(one);
    };
    AtenArgument argument;
    using Kind = AtenArgument::Kind;
    if (key.starts_with("as_tensor") || key.starts_with("as_optional_tensor")) {
      argument.kind = Kind::kTensors;
      each([&](const json& one) { argument.tensors.push_back(tensor_of(one)); });
      if (key == "as_optional_tensor" && (argument.tensors.empty() || argument.tensors[0].empty())) return {};
    } else if (key == "as_int" || key == "as_ints" || key == "as_bool" || key == "as_bools" ||
               key == "as_scalar_type") {
      argument.kind = Kind::kIntegers;
      each([&](const json& one) {
        argument.integers.push_back({one.is_boolean() ? int64_t{one.get<bool>()} : integer(one), ""});
      });
    } else if (key == "as_sym_int" || key == "as_sym_ints") {
      argument.kind = Kind::kIntegers;
      each([&](const json& one) { argument.integers.push_back(symbol_of(one)); });
    } else if (key == "as_float" || key == "as_floats") {
      argument.kind = Kind::kNumbers;
      each([&](const json& one) { argument.numbers.push_back(number(one)); });
    } else if (key == "as_string") {
      argument.kind = Kind::kText;
      argument.text = value;
    } else if (key != "as_none") {
      argument.kind = Kind::kOther;
      argument.text = key;
    }
    return argument;
  }
  static std::string name_in(const json& given) {
    if (given.contains("as_none")) return "";
    return given.contains("as_tensor") ? given.at("as_tensor").at("name") : given.at("name");
  }
  // Returns the names in an output of a node, as the file has them.
  std::vector<std::string> names_in(const json& output) const {
    std::vector<std::string> names;
    if (!output.is_object() || output.size() != 1) refuse("an output must have one key");
    const json& value = *output.begin();
    if (!output.begin().key().starts_with("as_tensor") && !output.begin().key().starts_with("as_optional_tensor"))
      return names;
    for (const json& each : value.is_array() ? value : json::array({value})) {
      if (const std::string name = name_in(each); !name.empty()) names.push_back(name);
    }
    return names;
  }
  std::string tensor_of(const json& given) const {
    const std::string name = name_in(given);
    return name.empty() ? "" : resolved(name);
  }
  AtenInteger symbol_of(const json& given) const {
    if (given.contains("as_int")) return {integer(given.at("as_int")), ""};
    const auto found = symbols_.find(scope_ + given.at("as_name").get<std::string>());
    if (found == symbols_.end()) refuse("size " + json_shown(given) + " is not in sym_int_values");
    return found->second;
  }

  // ---- numbers ----

  AtenInteger symbolic(const json& given) const {
    if (given.contains("as_int")) return {integer(given.at("as_int")), ""};
    return {0, given.at("as_expr").at("expr_str").get<std::string>()};
  }
  uint64_t count(const json& given) const {
    const AtenInteger size = symbolic(given);
    if (!size.symbol.empty() || size.value < 0 || size.value > int64_t{1} << 48)
      refuse("a size must be a number, not " + json_shown(given));
    return static_cast<uint64_t>(size.value);
  }
  int64_t integer(const json& given) const {
    if (!given.is_number_integer() || (given.is_number_unsigned() && given.get<uint64_t>() > INT64_MAX))
      refuse("must be an integer, not " + json_shown(given));
    return given.get<int64_t>();
  }
  double number(const json& given) const {
    if (given == "Infinity") return HUGE_VAL;
    if (given == "-Infinity") return -HUGE_VAL;
    if (!given.is_number()) refuse("must be a number, not " + json_shown(given));
    return given.get<double>();
  }
  ScalarType scalar_type(const json& given) const {
    const int64_t type = integer(given);
    return type >= 0 && type < static_cast<int64_t>(kScalarTypes.size()) ? kScalarTypes[static_cast<size_t>(type)]
                                                                         : ScalarType{0, 0};
  }

  const InputFile& file_;
  const ZipFile archive_;
  std::string root_, entry_, name_, place_;
  OnnxModel model_;
  AtenGraph graph_;
  std::string scope_;          // prefix of the values' names in the graph being read; "" for the program's own
  bool has_gradients_ = true;  // true if gradients flow through the graph being read
  std::map<std::string, std::string> aliases_;  // key: an alias of a value; entry: the value's name
  std::map<std::string, AtenInteger> symbols_;
  std::vector<std::string> pickled_;
  std::map<std::string, size_t> places_;  // index of the model's constants, by name
};

}  // namespace

bool is_pt2(const InputFile& file) { return ZipFile::is_zip(file); }

OnnxModel read_pt2(const InputFile& file) { return Pt2Reader(file).read(); }

}  // namespace reprise
