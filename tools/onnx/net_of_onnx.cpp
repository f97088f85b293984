// See net_of_onnx.h. ONNX has images as [N,C,H,W] and a net as [N,H,W,C]; what depends on that order is refused.
#include "tools/onnx/net_of_onnx.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/models/model.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int64_t kOldestOpset = 11;

// What a value of the model is in the net.
struct Value {
  enum class Form { kUnknown, kImages, kPooled, kRows };  // kPooled: [N,C,1,1]
  Form form = Form::kUnknown;  // kUnknown: of a node that was refused
  std::string node;            // that writes it
};

// A node being read: what it has is asked for, and what nobody asked for is refused.
class NodeReader {
 public:
  NodeReader(const OnnxNode& node, std::vector<std::string>& refused) : node_(node), refused_(refused), begin_(refused.size()) {}

  const OnnxNode& node() const { return node_; }
  bool failed() const { return refused_.size() > begin_; }
  void refuse(const std::string& reason) {
    const std::string name = !node_.name.empty() ? node_.name : node_.outputs.empty() ? "" : node_.outputs[0];
    refused_.push_back("node " + json_shown(name) + " (" + (node_.domain.empty() ? "" : node_.domain + ".") + node_.op + "): " + reason);
  }

  int64_t integer(const char* name, int64_t absent) {
    const OnnxAttribute* found = find(name);
    return found == nullptr ? absent : found->integer;
  }
  double number(const char* name, double absent) {
    const OnnxAttribute* found = find(name);
    return found == nullptr ? absent : static_cast<double>(found->number);
  }
  std::vector<int64_t> integers(const char* name, const std::vector<int64_t>& absent) {
    const OnnxAttribute* found = find(name);
    return found == nullptr ? absent : found->integers;
  }
  std::string text(const char* name, const std::string& absent) {
    const OnnxAttribute* found = find(name);
    return found == nullptr ? absent : found->text;
  }
  const OnnxAttribute* find(const char* name) {
    asked_.insert(name);
    const auto found = std::find_if(node_.attributes.begin(), node_.attributes.end(), [&](const OnnxAttribute& a) { return a.name == name; });
    return found == node_.attributes.end() ? nullptr : &*found;
  }
  void require_integer(const char* name, int64_t right) {
    if (const int64_t given = integer(name, right); given != right) refuse(std::string(name) + " is " + std::to_string(given) + "; available is " + std::to_string(right));
  }
  void require_number(const char* name, double right) {
    if (number(name, right) != right) refuse(std::string(name) + " is " + std::to_string(number(name, right)) + "; available is " + std::to_string(right));
  }
  void finish() {
    for (const OnnxAttribute& attribute : node_.attributes) {
      if (asked_.count(attribute.name) == 0) refuse("attribute " + json_shown(attribute.name) + " is not available (yet)");
    }
  }

 private:
  const OnnxNode& node_;
  std::vector<std::string>& refused_;
  const size_t begin_;
  std::set<std::string> asked_;
};

class Importer {
 public:
  Importer(const OnnxFile& file, const ImportRequest& request) : file_(file), model_(file.model()), request_(request) {}

  ImportedNet import() {
    for (const OnnxTensor& tensor : model_.constants) constants_[tensor.name] = &tensor;
    check_model();
    read_input();
    const std::vector<bool> wanted = wanted_nodes();
    for (size_t n = 0; n < model_.nodes.size(); ++n) {
      if (wanted[n]) {
        read_node(model_.nodes[n]);
      } else {
        ++net_.left_out;
      }
    }
    finish();
    return std::move(net_);
  }

 private:
  using Form = Value::Form;

  void refuse(const std::string& reason) { net_.refused.push_back(reason); }

  void check_model() {
    const auto opset = model_.opsets.find("");
    if (opset == model_.opsets.end() || opset->second < kOldestOpset) {
      refuse("opset: " + (opset == model_.opsets.end() ? std::string("not said") : std::to_string(opset->second)) + "; must be " + std::to_string(kOldestOpset) + " or later");
    }
    if (model_.has_functions) refuse("functions of the model's own are not available (yet)");
    if (model_.has_sparse) refuse("sparse constants are not available (yet)");
  }

  void read_input() {
    std::vector<const OnnxValue*> inputs;
    for (const OnnxValue& input : model_.inputs) {
      if (constants_.count(input.name) == 0) inputs.push_back(&input);
    }
    for (const auto& [name, shape] : request_.inputs) {
      if (std::none_of(inputs.begin(), inputs.end(), [&name = name](const OnnxValue* input) { return input->name == name; })) refuse("--input: " + json_shown(name) + " is no input of the model");
    }
    if (inputs.size() != 1) return refuse("has " + std::to_string(inputs.size()) + " inputs; available is one, of images");
    const OnnxValue& input = *inputs[0];
    std::vector<int64_t> shape;
    for (const OnnxDimension& d : input.shape) shape.push_back(d.size);
    if (const auto given = request_.inputs.find(input.name); given != request_.inputs.end()) shape.assign(given->second.begin(), given->second.end());
    const bool is_float = input.type == static_cast<uint32_t>(OnnxType::kFloat);
    if (shape.size() != 4 || !is_float) return refuse("input " + json_shown(input.name) + ": must be images of FLOAT, [N,C,H,W]; has " + std::to_string(shape.size()) + " dimensions and type " + std::to_string(input.type));
    for (size_t d = 1; d < 4; ++d) {
      if (shape[d] <= 0) return refuse("input " + json_shown(input.name) + ": its size is open; give --input " + input.name + "=1,3,224,224, as it is");
    }
    net_.graph["image"] = {shape[2], shape[3], shape[1]};
    net_.graph["nodes"] = json::array();
    values_[input.name] = {Form::kImages, kNetImages};
  }

  // Nodes that the output needs, found from the end.
  std::vector<bool> wanted_nodes() {
    std::set<std::string> names;
    for (const OnnxValue& output : model_.outputs) names.insert(output.name);
    std::vector<bool> wanted(model_.nodes.size());
    for (size_t n = model_.nodes.size(); n-- > 0;) {
      const OnnxNode& node = model_.nodes[n];
      wanted[n] = std::any_of(node.outputs.begin(), node.outputs.end(), [&](const std::string& output) { return names.count(output) > 0; });
      if (wanted[n]) names.insert(node.inputs.begin(), node.inputs.end());
    }
    return wanted;
  }

  // ---- one node ----

  void read_node(const OnnxNode& node) {
    struct Handler {
      const char* op;
      void (Importer::*read)(NodeReader&);
    };
    static constexpr Handler kHandlers[] = {
        {"Conv", &Importer::read_conv}, {"BatchNormalization", &Importer::read_batch_norm}, {"Relu", &Importer::read_relu}, {"MaxPool", &Importer::read_max_pool},
        {"GlobalAveragePool", &Importer::read_global_pool}, {"ReduceMean", &Importer::read_mean}, {"Flatten", &Importer::read_flatten}, {"Reshape", &Importer::read_reshape},
        {"Gemm", &Importer::read_gemm}, {"Add", &Importer::read_add}, {"Dropout", &Importer::read_dropout}, {"Identity", &Importer::read_identity},
        {"Constant", &Importer::read_constant}};
    NodeReader reader(node, net_.refused);
    const auto handler = std::find_if(std::begin(kHandlers), std::end(kHandlers), [&](const Handler& h) { return node.domain.empty() && node.op == h.op; });
    if (handler == std::end(kHandlers)) {
      reader.refuse("the op is not available (yet)");
    } else {
      (this->*handler->read)(reader);
      reader.finish();
    }
    for (const std::string& output : node.outputs) values_.try_emplace(output);
  }

  bool is_constant(const std::string& name) const { return constants_.count(name) > 0; }

  // The value that a node reads first; kUnknown where it cannot be had, which has been said.
  Value input_of(NodeReader& reader, size_t n = 0) {
    const OnnxNode& node = reader.node();
    if (n >= node.inputs.size() || node.inputs[n].empty()) return reader.refuse("input " + std::to_string(n) + " is missing"), Value();
    const std::string& name = node.inputs[n];
    if (is_constant(name)) return reader.refuse("reads the constant " + json_shown(name) + " where a value of the net must be"), Value();
    const auto found = values_.find(name);
    if (found == values_.end()) return reader.refuse("reads " + json_shown(name) + ", which nothing before it writes"), Value();
    return found->second;
  }
  // The same of one form.
  Value input_of(NodeReader& reader, Form form, const char* words) {
    const Value value = input_of(reader);
    if (value.form != Form::kUnknown && value.form != form) return reader.refuse(std::string("must read ") + words), Value();
    return value;
  }
  Value images_of(NodeReader& reader) { return input_of(reader, Form::kImages, "images, [N,C,H,W]"); }

  // Null where it is absent, or is none, which has been said.
  const OnnxTensor* constant_of(NodeReader& reader, size_t n, bool required = true) {
    const OnnxNode& node = reader.node();
    const bool is_there = n < node.inputs.size() && !node.inputs[n].empty();
    if (!is_there && !required) return nullptr;
    const auto found = is_there ? constants_.find(node.inputs[n]) : constants_.end();
    if (found != constants_.end()) return found->second;
    reader.refuse("input " + std::to_string(n) + " must be a constant of the model");
    return nullptr;
  }

  // The layer's name: what its weight is called by PyTorch, else its own.
  std::string name_of(const OnnxNode& node, const OnnxTensor* weight) {
    constexpr std::string_view kEnding = ".weight";
    std::string name;
    if (weight != nullptr && weight->name.ends_with(kEnding)) name = weight->name.substr(0, weight->name.size() - kEnding.size());
    if (name.empty() || names_.count(name) > 0) name = !node.name.empty() ? node.name : node.outputs.at(0);
    std::replace(name.begin(), name.end(), '/', '.');
    while (!name.empty() && name.front() == '.') name.erase(0, 1);
    if (name.empty()) name = node.op;
    std::string unique = name;
    for (int n = 2; !names_.insert(unique).second; ++n) unique = name + "_" + std::to_string(n);
    return unique;
  }

  void add_weight(const std::string& name, const OnnxTensor& tensor, bool transposed = false) { net_.weights.push_back({name, &tensor, transposed}); }

  // `node` without its name and inputs.
  void append(NodeReader& reader, const std::string& name, json node, const std::vector<std::string>& inputs, Form form) {
    node["name"] = name;
    node["inputs"] = inputs;
    net_.graph["nodes"].push_back(std::move(node));
    values_[reader.node().outputs.at(0)] = {form, name};
  }

  // ---- the ops ----

  // So many times the same number, which is what a net's window has.
  int64_t same(NodeReader& reader, const char* name, const std::vector<int64_t>& numbers, size_t count) {
    const bool is_same = numbers.size() == count && std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == numbers[0]; });
    if (is_same) return numbers[0];
    reader.refuse(std::string(name) + " is " + json(numbers).dump() + "; available is " + std::to_string(count) + " times the same number");
    return 1;
  }
  json window_of(NodeReader& reader, const std::vector<int64_t>& kernel) {
    const std::vector<int64_t> ones(2, 1), zeros(4, 0);
    json window = {{"kernel", same(reader, "kernel_shape", kernel, 2)},
                   {"stride", same(reader, "strides", reader.integers("strides", ones), 2)},
                   {"pad", same(reader, "pads", reader.integers("pads", zeros), 4)}};
    if (const std::string pad = reader.text("auto_pad", "NOTSET"); pad != "NOTSET") reader.refuse("auto_pad is " + json_shown(pad) + "; available are pads");
    if (same(reader, "dilations", reader.integers("dilations", ones), 2) != 1) reader.refuse("dilations are not available (yet)");
    return window;
  }

  void read_conv(NodeReader& reader) {
    const Value x = images_of(reader);
    const OnnxTensor* weight = constant_of(reader, 1);
    if (constant_of(reader, 2, false) != nullptr) reader.refuse("a bias is not available (yet); an exporter that folds batch-norms into convolutions makes some");
    reader.require_integer("group", 1);
    if (weight == nullptr) return;
    if (weight->shape.size() != 4) return reader.refuse("its weight has " + std::to_string(weight->shape.size()) + " dimensions; must have four, [K,C,R,S]");
    const std::vector<int64_t> own = {static_cast<int64_t>(weight->shape[2]), static_cast<int64_t>(weight->shape[3])};
    const std::vector<int64_t> kernel = reader.integers("kernel_shape", own);
    if (kernel != own) reader.refuse("kernel_shape is " + json(kernel).dump() + ", its weight's " + json(own).dump());
    json node = window_of(reader, own);
    if (reader.failed() || x.form == Form::kUnknown) return;
    node.update({{"op", "conv"}, {"channels", weight->shape[0]}});
    const std::string name = name_of(reader.node(), weight);
    add_weight(name + ".weight", *weight);
    append(reader, name, node, {x.node}, Form::kImages);
  }

  void read_batch_norm(NodeReader& reader) {
    const Value x = images_of(reader);
    const OnnxTensor* parts[4];
    for (size_t n = 0; n < 4; ++n) parts[n] = constant_of(reader, n + 1);
    const double epsilon = reader.number("epsilon", 1e-5f), kept = reader.number("momentum", 0.9f);
    reader.integer("training_mode", 0);
    if (reader.failed() || x.form == Form::kUnknown) return;
    const std::string name = name_of(reader.node(), parts[0]);
    const char* const kNames[] = {".weight", ".bias", ".running_mean", ".running_var"};
    for (size_t n = 0; n < 4; ++n) add_weight(name + kNames[n], *parts[n]);
    // PyTorch says how much is new, ONNX how much is kept.
    const double momentum = std::round((1 - kept) * 1e6) / 1e6;
    append(reader, name, {{"op", "batch_norm"}, {"epsilon", shortest(epsilon)}, {"momentum", momentum}}, {x.node}, Form::kImages);
  }

  // 1e-5 for the float that is nearest to it.
  static double shortest(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", number);
    return std::strtod(text, nullptr);
  }

  void read_relu(NodeReader& reader) {
    const Value x = input_of(reader);
    if (x.form != Form::kUnknown) append(reader, name_of(reader.node(), nullptr), {{"op", "relu"}}, {x.node}, x.form);
  }

  void read_max_pool(NodeReader& reader) {
    const Value x = images_of(reader);
    reader.require_integer("ceil_mode", 0);
    reader.require_integer("storage_order", 0);
    json node = window_of(reader, reader.integers("kernel_shape", {}));
    if (reader.node().outputs.size() > 1) reader.refuse("its second output, the places, is not available");
    if (reader.failed() || x.form == Form::kUnknown) return;
    node["op"] = "max_pool";
    append(reader, name_of(reader.node(), nullptr), node, {x.node}, Form::kImages);
  }

  void append_global_pool(NodeReader& reader, Form form) {
    const Value x = images_of(reader);
    if (reader.failed() || x.form == Form::kUnknown) return;
    append(reader, name_of(reader.node(), nullptr), {{"op", "global_pool"}}, {x.node}, form);
  }
  void read_global_pool(NodeReader& reader) { append_global_pool(reader, Form::kPooled); }
  void read_mean(NodeReader& reader) {
    std::vector<int64_t> axes = reader.integers("axes", {});
    if (const OnnxTensor* given = constant_of(reader, 1, false)) axes = file_.integers(*given);
    for (int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
    std::sort(axes.begin(), axes.end());
    if (axes != std::vector<int64_t>{2, 3}) reader.refuse("axes are " + json(axes).dump() + "; available is the mean over height and width");
    reader.require_integer("noop_with_empty_axes", 0);
    append_global_pool(reader, reader.integer("keepdims", 1) != 0 ? Form::kPooled : Form::kRows);
  }

  // From [N,C,1,1] to [N,C]: the net has it so already.
  void become_rows(NodeReader& reader, const Value& x) {
    if (x.form == Form::kImages) reader.refuse("of images it would take their pixels in another order; available is that of a global pool's output");
    if (!reader.failed() && x.form != Form::kUnknown) alias(reader, {Form::kRows, x.node});
  }
  void read_flatten(NodeReader& reader) {
    const Value x = input_of(reader);
    reader.require_integer("axis", 1);
    become_rows(reader, x);
  }
  void read_reshape(NodeReader& reader) {
    const Value x = input_of(reader);
    reader.integer("allowzero", 0);
    const OnnxTensor* shape = constant_of(reader, 1);
    const std::vector<int64_t> sizes = shape == nullptr ? std::vector<int64_t>(2) : file_.integers(*shape);
    if (sizes.size() != 2) reader.refuse("to " + std::to_string(sizes.size()) + " dimensions; available is [N,C]");
    become_rows(reader, x);
  }

  void read_gemm(NodeReader& reader) {
    const Value x = input_of(reader, Form::kRows, "rows, [N,C]");
    const OnnxTensor* weight = constant_of(reader, 1);
    const OnnxTensor* bias = constant_of(reader, 2, false);
    reader.require_number("alpha", 1);
    reader.require_number("beta", 1);
    reader.require_integer("transA", 0);
    const bool transposed = reader.integer("transB", 0) == 0;
    if (reader.failed() || x.form == Form::kUnknown) return;
    if (weight->shape.size() != 2) return reader.refuse("its weight has " + std::to_string(weight->shape.size()) + " dimensions; must have two");
    const bool is_head = std::any_of(model_.outputs.begin(), model_.outputs.end(), [&](const OnnxValue& output) { return output.name == reader.node().outputs.at(0); });
    const std::string name = name_of(reader.node(), weight);
    json node = {{"op", is_head ? "loss_head" : "linear"}, {"bias", bias != nullptr}, {is_head ? "classes" : "features", weight->shape[transposed ? 1 : 0]}};
    const bool is_new = is_head && request_.classes > 0;
    if (is_new) node["classes"] = request_.classes;
    if (is_head) net_.head = name;
    if (!is_new) add_weight(name + ".weight", *weight, transposed);
    if (!is_new && bias != nullptr) add_weight(name + ".bias", *bias);
    append(reader, name, node, {x.node}, Form::kRows);
  }

  void read_add(NodeReader& reader) {
    const Value a = input_of(reader), b = input_of(reader, 1);
    if (a.form == Form::kUnknown || b.form == Form::kUnknown) return;
    if (a.form != b.form) return reader.refuse("adds what is not of the same shape, which is not available (yet)");
    append(reader, name_of(reader.node(), nullptr), {{"op", "add"}}, {a.node, b.node}, a.form);
  }

  void read_dropout(NodeReader& reader) {
    const Value x = input_of(reader);
    double ratio = reader.number("ratio", 0.5);
    reader.integer("seed", 0);
    if (const OnnxTensor* given = constant_of(reader, 1, false)) ratio = static_cast<double>(file_.floats(*given).at(0));
    constant_of(reader, 2, false);  // whether it is a training, which we know
    if (reader.failed() || x.form == Form::kUnknown) return;
    if (ratio == 0) return alias(reader, x);
    append(reader, name_of(reader.node(), nullptr), {{"op", "dropout"}, {"p", shortest(ratio)}}, {x.node}, x.form);
  }

  void alias(NodeReader& reader, const Value& value) {
    ++net_.left_out;
    values_[reader.node().outputs.at(0)] = value;
  }
  void read_identity(NodeReader& reader) {
    const std::string& name = reader.node().inputs.empty() ? std::string() : reader.node().inputs[0];
    if (is_constant(name)) {
      ++net_.left_out;
      constants_[reader.node().outputs.at(0)] = constants_.at(name);
      return;
    }
    const Value x = input_of(reader);
    if (x.form != Form::kUnknown) alias(reader, x);
  }
  void read_constant(NodeReader& reader) {
    const OnnxAttribute* value = reader.find("value");
    if (value == nullptr || !value->tensor) return reader.refuse("has no tensor as its value");
    ++net_.left_out;
    constants_[reader.node().outputs.at(0)] = &*value->tensor;
  }

  void finish() {
    if (model_.outputs.size() != 1) return refuse("has " + std::to_string(model_.outputs.size()) + " outputs; available is one, a classifier's logits");
    if (!net_.refused.empty()) return;
    const std::string& output = model_.outputs[0].name;
    const auto value = values_.find(output);
    if (value == values_.end()) return refuse("output " + json_shown(output) + ": no node writes it");
    if (net_.head.empty() || value->second.node != net_.head) return refuse("output " + json_shown(output) + ": must be what a Gemm writes, a classifier's logits");
  }

  const OnnxFile& file_;
  const OnnxModel& model_;
  const ImportRequest& request_;
  ImportedNet net_;
  std::map<std::string, const OnnxTensor*> constants_;
  std::map<std::string, Value> values_;
  std::set<std::string> names_ = {kNetImages};
};

}  // namespace

ImportedNet net_of_onnx(const OnnxFile& file, const ImportRequest& request) { return Importer(file, request).import(); }

std::vector<uint64_t> shape_of(const ImportedTensor& weight) {
  std::vector<uint64_t> shape = weight.tensor->shape;
  if (weight.transposed) std::swap(shape.at(0), shape.at(1));
  return shape;
}

std::vector<float> numbers_of(const OnnxFile& file, const ImportedTensor& weight) {
  const std::vector<float> stored = file.floats(*weight.tensor);
  if (std::any_of(stored.begin(), stored.end(), [](float number) { return !std::isfinite(number); })) {
    throw UserError(file.path() + ": tensor " + json_shown(weight.tensor->name) + ": holds what is not finite");
  }
  if (!weight.transposed) return stored;
  const std::vector<uint64_t> shape = shape_of(weight);
  std::vector<float> numbers(stored.size());
  for (uint64_t row = 0; row < shape[0]; ++row) {
    for (uint64_t column = 0; column < shape[1]; ++column) numbers[row * shape[1] + column] = stored[column * shape[0] + row];
  }
  return numbers;
}

}  // namespace reprise
