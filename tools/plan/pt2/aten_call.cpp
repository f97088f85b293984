// See aten_call.h.
#include "tools/plan/pt2/aten_call.h"

#include <algorithm>

#include "tools/files/formats/json_text.h"

namespace reprise {
namespace {

constexpr uint64_t kMaxMade = 1 << 20;  // maximum number of elements of a constant that is made from arguments
// AttributeProto.AttributeType
constexpr uint32_t kFloatAttribute = 1, kIntAttribute = 2, kStringAttribute = 3, kTensorAttribute = 4,
                   kIntsAttribute = 7;

OnnxAttribute new_attribute(const std::string& name, uint32_t type) {
  OnnxAttribute made;
  made.name = name;
  made.type = type;
  return made;
}

}  // namespace

OnnxAttribute integer_attribute(const std::string& name, int64_t value) {
  OnnxAttribute made = new_attribute(name, kIntAttribute);
  made.integer = value;
  return made;
}
OnnxAttribute integers_attribute(const std::string& name, std::vector<int64_t> values) {
  OnnxAttribute made = new_attribute(name, kIntsAttribute);
  made.integers = std::move(values);
  return made;
}
OnnxAttribute number_attribute(const std::string& name, double value) {
  OnnxAttribute made = new_attribute(name, kFloatAttribute);
  made.number = static_cast<float>(value);
  return made;
}
OnnxAttribute text_attribute(const std::string& name, const std::string& value) {
  OnnxAttribute made = new_attribute(name, kStringAttribute);
  made.text = value;
  return made;
}

// ---- names ----

const std::string& AtenNames::last(const std::string& value) const {
  const auto now = now_.find(value);
  return now == now_.end() ? value : now->second;
}

std::string AtenNames::name(const std::string& value) const {
  const auto tensor = graph_.tensor_names.find(last(value));
  return tensor == graph_.tensor_names.end() ? last(value) : tensor->second;
}

std::vector<std::string>& AtenNames::views(const std::string& value) {
  const auto [found, is_new] = group_of_.try_emplace(value, groups_.size());
  if (is_new) groups_.push_back({value});
  return groups_[found->second];
}

std::vector<std::string> AtenNames::views_of(const std::string& value) const {
  const auto found = group_of_.find(value);
  return found == group_of_.end() ? std::vector<std::string>{value} : groups_[found->second];
}

void AtenNames::share(const std::string& value, const std::string& with) {
  views(with).push_back(value);
  group_of_[value] = group_of_.at(with);
}

void AtenNames::change(const std::string& value, const std::string& into) {
  const std::string before = last(value);
  for (const std::string& view : views(value)) {
    if (last(view) == before) {
      now_[view] = into;
    } else {
      stale_.insert(view);
    }
  }
  share(into, value);
}

// ---- arguments ----

void AtenCall::give_up(const std::string& reason) {
  if (reason_.empty()) reason_ = reason;
}

void AtenCall::finish() {
  for (const auto& [name, argument] : node_.arguments) {
    if (asked_.count(name) == 0 && argument.kind != AtenArgument::Kind::kNone) give_up("with " + name);
  }
}

const AtenArgument* AtenCall::find(const std::string& name) {
  asked_.insert(name);
  const auto found = std::find_if(node_.arguments.begin(), node_.arguments.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  return found == node_.arguments.end() || found->second.kind == AtenArgument::Kind::kNone ? nullptr : &found->second;
}

const AtenArgument* AtenCall::find(const std::string& name, AtenArgument::Kind kind, const char* words) {
  const AtenArgument* found = find(name);
  if (found == nullptr || found->kind == kind) return found;
  give_up("whose " + name + " is no " + words);
  return nullptr;
}

std::string AtenCall::first() {
  if (!node_.arguments.empty()) return tensor(node_.arguments[0].first);
  give_up("without arguments");
  return "";
}

std::string AtenCall::tensor(const std::string& name) {
  const std::vector<std::string> all = tensors(name);
  return all.empty() ? "" : all[0];
}

std::vector<std::string> AtenCall::tensors(const std::string& name) {
  const AtenArgument* found = find(name, AtenArgument::Kind::kTensors, "tensor");
  return found == nullptr ? std::vector<std::string>() : found->tensors;
}

bool AtenCall::is_tensor(const std::string& name) {
  const AtenArgument* found = find(name);
  return found != nullptr && found->kind == AtenArgument::Kind::kTensors;
}

int64_t AtenCall::integer(const std::string& name, int64_t absent) {
  const std::vector<int64_t> all = integers(name, {absent});
  return all.empty() ? absent : all[0];
}

std::vector<int64_t> AtenCall::integers(const std::string& name, const std::vector<int64_t>& absent) {
  const AtenArgument* found = find(name, AtenArgument::Kind::kIntegers, "integer");
  if (found == nullptr) return absent;
  std::vector<int64_t> values;
  for (const AtenInteger& each : found->integers) {
    if (!each.symbol.empty()) give_up("whose " + name + " is only known when it runs");
    values.push_back(each.value);
  }
  return values;
}

double AtenCall::number(const std::string& name, double absent) {
  const AtenArgument* found = find(name);
  if (found == nullptr) return absent;
  if (found->kind == AtenArgument::Kind::kIntegers) return static_cast<double>(integer(name, 0));
  if (found->kind == AtenArgument::Kind::kNumbers && !found->numbers.empty()) return found->numbers[0];
  give_up("whose " + name + " is no number");
  return absent;
}

std::vector<double> AtenCall::numbers(const std::string& name) {
  const AtenArgument* found = find(name, AtenArgument::Kind::kNumbers, "list of numbers");
  return found == nullptr ? std::vector<double>() : found->numbers;
}

std::string AtenCall::text(const std::string& name, const std::string& absent) {
  const AtenArgument* found = find(name, AtenArgument::Kind::kText, "text");
  return found == nullptr ? absent : found->text;
}

void AtenCall::require(const std::string& name, double right, double absent) {
  if (number(name, absent) != right) give_up("with " + name);
}

const OnnxValue& AtenCall::meta(const std::string& value) {
  static const OnnxValue kNone;
  const auto found = graph_.values.find(value);
  if (found != graph_.values.end()) return found->second;
  give_up("of a value without sizes");
  return kNone;
}

int64_t AtenCall::axis(const std::string& value, int64_t dim) {
  const int64_t all = rank(value), counted = dim < 0 ? dim + all : dim;
  if (counted >= 0 && counted < all) return counted;
  give_up("over an axis that it has not");
  return 0;
}

int64_t AtenCall::size(const std::string& value, int64_t axis) {
  const std::vector<OnnxDimension>& shape = meta(value).shape;
  const int64_t size =
      axis < 0 || axis >= static_cast<int64_t>(shape.size()) ? -1 : shape[static_cast<size_t>(axis)].size;
  if (size > 0) return size;
  give_up("of a size that is only known when it runs");
  return 1;
}

const std::string& AtenCall::output(size_t n) {
  if (n < node_.outputs.size()) return node_.outputs[n];
  give_up("without an output");
  static const std::string kNone;
  return kNone;
}

bool AtenCall::has_same_shape(const std::string& a, const std::string& b) {
  const std::vector<OnnxDimension>&first = meta(a).shape, &second = meta(b).shape;
  return std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [](const OnnxDimension& x, const OnnxDimension& y) {
                      return x.size == y.size && x.name == y.name;
                    });
}

// ---- nodes ----

std::string AtenCall::value(const std::string& name) {
  if (name.empty()) return "";
  if (names_.is_stale(name)) give_up("reads " + json_shown(name) + ", of which another view was changed in place");
  return names_.name(name);
}

std::string AtenCall::add(const std::string& op, const std::vector<std::string>& inputs,
                          std::vector<OnnxAttribute> attributes, const std::string& to) {
  OnnxNode node;
  const std::string own =
      // The name is new, because torch's names have no slash.
      "/" + op + (made_.empty() ? "" : "_" + std::to_string(made_.size()));
  node.name = to == output() ? node_.name : node_.name + own;
  node.op = op;
  node.inputs = inputs;
  node.outputs = {to.empty() ? output() + own : to};
  node.attributes = std::move(attributes);
  made_.push_back(node);
  return node.outputs[0];
}

std::string AtenCall::open_size(const std::string& symbol) {
  for (const std::string& input : graph_.inputs) {
    const std::vector<OnnxDimension>& shape = meta(input).shape;
    const auto found =
        std::find_if(shape.begin(), shape.end(), [&](const OnnxDimension& d) { return d.name == symbol; });
    if (found != shape.end())
      return add("Gather", {add("Shape", {value(input)}), integers_constant({found - shape.begin()})},
                 {integer_attribute("axis", 0)});
  }
  give_up("to a size that is only known when it runs");
  return "";
}

std::string AtenCall::constant(OnnxTensor tensor) {
  OnnxAttribute value = new_attribute("value", kTensorAttribute);
  value.tensor = std::move(tensor);
  return add("Constant", {}, {value});
}

std::string AtenCall::integers_constant(const std::vector<int64_t>& values) {
  OnnxTensor tensor;
  tensor.type = static_cast<uint32_t>(OnnxType::kInt64);
  tensor.shape = {values.size()};
  tensor.integers = values;
  return constant(std::move(tensor));
}

std::string AtenCall::integer_constant(int64_t value) {
  OnnxTensor tensor;
  tensor.type = static_cast<uint32_t>(OnnxType::kInt64);
  tensor.integers = {value};
  return constant(std::move(tensor));
}

std::string AtenCall::number_constant(const std::vector<uint64_t>& shape, float value) {
  OnnxTensor tensor;
  double elements = 1;
  for (const uint64_t d : shape) elements *= static_cast<double>(d);
  if (elements > static_cast<double>(kMaxMade)) return give_up("with a constant of too many numbers"), "";
  tensor.type = static_cast<uint32_t>(OnnxType::kFloat);
  tensor.shape = shape;
  tensor.numbers.assign(tensor.elements(), value);
  return constant(std::move(tensor));
}

std::string AtenCall::numbers_constant(const std::vector<float>& values) {
  OnnxTensor tensor;
  tensor.type = static_cast<uint32_t>(OnnxType::kFloat);
  tensor.shape = {values.size()};
  tensor.numbers = values;
  return constant(std::move(tensor));
}

}  // namespace reprise
