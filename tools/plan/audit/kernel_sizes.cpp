// See kernel_sizes.h. If a size is not given, it is computed from other sizes, provided that it has
// a definition.
#include "tools/plan/audit/kernel_sizes.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <type_traits>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

namespace {

// How to compute a size that is not given. "Attention.W" applies to kernels whose attribute is an
// Attention; for these it has priority over "W".
struct Definition {
  const char *name, *text;
};
constexpr Definition kDefinitions[] = {{"kernel_h", "R"},
                                       {"kernel_w", "S"},
                                       {"stride", "1"},
                                       {"pad", "0"},
                                       {"stride_w", "stride"},
                                       {"pad_left", "pad"},
                                       {"pad_bottom", "pad"},
                                       {"pad_right", "pad_left"},
                                       {"dilation_h", "1"},
                                       {"dilation_w", "dilation_h"},
                                       {"groups", "1"},
                                       {"counts_padding", "0"},
                                       {"P", "(H + pad + pad_bottom - dilation_h (kernel_h - 1) - 1) / stride + 1"},
                                       {"Q",
                                        "(W + pad_left + pad_right - dilation_w (kernel_w - 1) - 1) / stride_w + 1"},
                                       {"epsilon", "1e-5"},
                                       {"Norm.momentum", "0.1"},
                                       {"count", "N H W"},
                                       {"kv_heads", "heads"},
                                       {"Attention.W", "(heads + 2kv_heads) C / heads"},
                                       {"D", "C / heads"},
                                       {"rotary", "D"},
                                       {"neighbours", "0"},
                                       {"theta", "10000"},
                                       {"scale", "1"},
                                       {"input_major", "0"},
                                       {"tanh_form", "0"},
                                       {"dropout", "0"},
                                       {"probability", "0"},
                                       {"stream", "0"},
                                       {"max_norm", "0"},
                                       {"weight_decay", "0"},
                                       {"Update.momentum", "0.95"},
                                       {"nesterov", "1"},
                                       {"beta1", "0.9"},
                                       {"beta2", "0.999"},
                                       {"rate", "1"},
                                       {"decay_power", "0.8"},
                                       {"least_scale", "0.001"},
                                       {"clip", "1"},
                                       {"adalomo", "0"},
                                       {"by_tensor", "0"},
                                       {"period", "200"},
                                       {"window", "0"},
                                       {"softcap", "0"},
                                       {"Attention.scale", "0"},
                                       {"causal", "1"},
                                       {"offset", "0"},
                                       {"first", "0"},
                                       {"function", "0"},
                                       {"parameter", "0"},
                                       {"second_last", "0"},
                                       {"third_last", "0"},
                                       {"axis_1", "1"},
                                       {"axis_2", "2"},
                                       {"axis_3", "3"},
                                       {"Resize.P", "2H"},
                                       {"Resize.Q", "2W"},
                                       {"Resize.kind", "0"},
                                       {"shared", "1"},
                                       {"turned_a", "0"},
                                       {"turned_b", "0"},
                                       {"TargetLoss.kind", "3"},
                                       {"delta", "0"},
                                       {"label_smoothing", "0"},
                                       {"dice", "0"},
                                       {"PairLoss.kind", "0"},
                                       {"temperature", "0.07"},
                                       {"symmetric", "0"},
                                       {"margin", "0"}};

// Maximum levels of nested definitions. No size needs more, so a deeper nesting means that
// definitions form a circle.
constexpr int kDeepest = 8;

struct Missing {
  std::string name;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t i = 0; i < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) != 0) {
      const char* end = nullptr;
      (void)std::strtod(text.c_str() + i, const_cast<char**>(&end));
      i = static_cast<size_t>(end - text.c_str());
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > i) names.push_back(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return names;
}

// Evaluates an expression: a sum of products of names, numbers and sums in brackets. Adjacent
// factors are multiplied. A division rounds down, because sizes are integers.
template <typename Value>
class Formula {
 public:
  Formula(const std::string& text, const Value& value) : at_(text.c_str()), value_(value) {}
  double sum() {
    double total = product();
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      const double other = product();
      total += c == '+' ? other : -other;
    }
    return total;
  }

 private:
  char next() {
    while (*at_ == ' ') ++at_;
    return *at_;
  }
  double product() {
    double total = factor();
    for (char c = next(); c == '*' || c == '/' || c == '(' || is_word(c); c = next()) {
      if (c == '*' || c == '/') ++at_;
      const double other = factor();
      total = c == '/' ? std::floor(total / other) : total * other;
    }
    return total;
  }
  double factor() {
    if (next() == '(') {
      ++at_;
      const double inner = sum();
      if (next() == ')') ++at_;
      return inner;
    }
    if (std::isdigit(static_cast<unsigned char>(*at_)) != 0) {
      char* end = nullptr;
      const double number = std::strtod(at_, &end);
      at_ = end;
      return number;
    }
    const char* begin = at_;
    while (is_word(*at_)) ++at_;
    return value_(std::string(begin, at_));
  }

  const char* at_;
  const Value& value_;
};

// Calls visit(A{}) with the attribute type A that has this kind.
template <typename Visit, typename... A>
void with_attribute(AttributeKind kind, const Visit& visit, TypeList<A...>) {
  ((kAttributeKind<A> == kind ? visit(A{}) : void()), ...);
}

template <typename A>
std::vector<std::string> fields_of(const A& attribute) {
  std::vector<std::string> fields;
  attribute.fields([&fields]<typename T>(const char* name, const T&) {
    if constexpr (std::is_arithmetic_v<T>) fields.push_back(name);  // a field that is no number cannot be given
  });
  return fields;
}

[[noreturn]] void refuse(const KernelInfo& kernel, const std::string& what) {
  throw UserError(std::string("kernels: ") + kernel.name + ": " + what, UserError::kUsage);
}

}  // namespace

ArgumentText argument_text(const ArgumentInfo& argument) {
  const std::string text = argument.name;
  ArgumentText result{text.substr(0, std::min(text.find('['), text.find(" (a group)"))), {}};
  for (size_t begin = text.find('['); begin != std::string::npos; begin = text.find('[', begin + 1)) {
    result.shapes.push_back(text.substr(begin + 1, text.find(']', begin) - begin - 1));
  }
  return result;
}

KernelCall SizedCall::of(const KernelInfo& kernel) const {
  KernelCall call{.op = kernel.op, .pass = kernel.pass, .attribute = 0, .accumulate = 0, .tensors = {}};
  for (const std::optional<Tensor>& tensor : tensors) call.tensors.push_back(tensor ? &*tensor : nullptr);
  return call;
}

KernelSizes::KernelSizes(const KernelInfo& kernel, const std::vector<std::string>& words) : kernel_(kernel) {
  with_attribute(kernel.attribute, [this]<typename A>(const A&) { attribute_ = A::kName; }, AttributeTypes{});
  const std::vector<std::string> known = names();
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals), text = equals == std::string::npos ? "" : word.substr(equals + 1);
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !std::isfinite(number) || number < 0) {
      refuse(kernel, shown_key(word) + ": a size is NAME=NUMBER, as in M=64");
    }
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      refuse(kernel, "no size is called " + json_shown(name) +
                         (known.empty() ? "; it has none" : "; there are " + some_of(known)));
    }
    if (!given_.emplace(name, number).second) refuse(kernel, name + " is given twice");
  }
}

std::vector<std::string> KernelSizes::names() const {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const ArgumentInfo& argument : kernel_.arguments) {
    for (const std::string& shape : argument_text(argument).shapes) {
      if (shape == "...") add("elements");
      for (const std::string& name : names_in(shape)) add(name);
    }
  }
  for (const std::string& field : fields()) add(field);
  for (size_t i = 0; i < names.size(); ++i) {  // `names` grows in the loop: the names within a definition are added
    const char* text = definition(names[i]);
    if (text == nullptr) continue;
    for (const std::string& name : names_in(text)) add(name);
  }
  return names;
}

std::vector<std::string> KernelSizes::fields() const {
  std::vector<std::string> fields;
  with_attribute(
      kernel_.attribute, [&fields](const auto& attribute) { fields = fields_of(attribute); }, AttributeTypes{});
  return fields;
}

const char* KernelSizes::definition(const std::string& name) const {
  for (const std::string& key : {attribute_ + "." + name, name}) {
    for (const Definition& each : kDefinitions) {
      if (key == each.name) return each.text;
    }
  }
  return nullptr;
}

double KernelSizes::value(const std::string& name, int depth) const {
  if (const auto found = given_.find(name); found != given_.end()) return found->second;
  const char* text = definition(name);
  if (text == nullptr || depth > kDeepest) throw Missing{name};
  return evaluate(text, depth + 1);
}

double KernelSizes::evaluate(const std::string& text, int depth) const {
  const auto value_of = [this, depth](const std::string& name) { return value(name, depth); };
  return Formula(text, value_of).sum();
}

Tensor KernelSizes::tensor(const ArgumentInfo& argument, DType dtype) const {
  ArgumentText text = argument_text(argument);
  // The shapes of a reduction follow from its attribute. The group argument has `elements` floats.
  // Any other argument has one float for each norm, up to the last norm of this reduction.
  if (kernel_.attribute == kAttributeKind<GroupAttribute>)
    text.shapes = {argument.group ? "elements" : "first_norm+tensors"};
  Tensor tensor;
  tensor.dtype = dtype;
  if (argument.storage == Storage::kScalars) {
    tensor.shape[tensor.rank++] = sizeof(StepScalars);
    return tensor;
  }
  if (text.shapes.empty()) refuse(kernel_, "a group of tensors has no sizes to give, and takes no scratch");
  const bool other = text.shapes.size() > 1 && value("input_major") != 0;
  std::string shape = text.shapes[other ? 1 : 0];
  if (shape == "...") shape = "elements";
  for (size_t begin = 0; begin < shape.size();) {
    const size_t end = std::min(shape.find(',', begin), shape.size());
    const std::string dimension = shape.substr(begin, end - begin);
    const double size = evaluate(dimension, 0);
    if (!(size >= 1 && size <= 4294967295.0 && size == std::floor(size))) {
      refuse(kernel_, std::string(argument.name) + ": " + dimension + " must be an integer from 1 to 4294967295");
    }
    tensor.shape[tensor.rank++] = static_cast<uint32_t>(size);
    begin = end + 1;
  }
  tensor.bytes = align_up(tensor.used_bytes());
  return tensor;
}

SizedCall KernelSizes::call(DType activations, DType weights, const std::vector<std::string>& without) const {
  SizedCall call;
  const auto dtype_of = [&](Storage storage) {
    if (storage == Storage::kActivation) return activations;
    if (storage == Storage::kWeight) return weights;
    for (uint32_t i = 0; i < kDTypeCount; ++i) {
      if (may_store(storage, static_cast<DType>(i))) return static_cast<DType>(i);
    }
    return DType::kU8;
  };
  std::vector<std::string> optional;
  try {
    for (uint32_t i = 0; i < kernel_.arity(); ++i) {
      const ArgumentInfo& argument = kernel_.arguments[i];
      if (argument.role == Role::kScratch) break;
      const std::string name = argument_text(argument).name;
      if (argument.optional) optional.push_back(name);
      call.tensors.emplace_back();
      if (argument.optional && std::find(without.begin(), without.end(), name) != without.end()) continue;
      try {
        call.tensors.back() = tensor(argument, dtype_of(argument.storage));
      } catch (const Missing&) {
        if (!argument.optional) throw;
      }
    }
    with_attribute(kernel_.attribute, [&]<typename A>(A attribute) {
      attribute.fields([this]<typename T>(const char* name, const T& field) {
        if constexpr (std::is_arithmetic_v<T>) {
          const double number = value(name), maximum = static_cast<double>(std::numeric_limits<T>::max());
          const bool is_whole = number == std::floor(number);
          if (!(number <= maximum) || (std::is_integral_v<T> && !is_whole))
            refuse(kernel_, std::string(name) + " has no such value");
          const_cast<T&>(field) = static_cast<T>(number);  // `attribute` is a copy and not const
        }
      });
      if constexpr (requires { attribute.group; }) attribute.group = {1, 0, call.tensors[0]->elements()};
      if (!attribute.makes_sense())
        refuse(kernel_, "the sizes make no attribute with sense: " + quoted_list(fields_of(attribute)));
      call.attributes.intern(attribute);
    }, AttributeTypes{});
  } catch (const Missing& missing) {
    refuse(kernel_, missing.name + " is not given; sizes are " + some_of(names()));
  }
  for (const std::string& name : without) {
    if (std::find(optional.begin(), optional.end(), name) == optional.end()) {
      if (optional.empty()) refuse(kernel_, "--without: no argument is optional");
      refuse(kernel_, "--without: must be " + either_of(optional) + ", not " + json_shown(name));
    }
  }
  for (uint32_t i = 0; i < call.tensors.size(); ++i) {
    const std::optional<Tensor>& tensor = call.tensors[i];
    if (tensor && !are_whole_blocks(tensor->dtype, tensor->last_dimension()))
      refuse(kernel_, fault_text(Fault::kBlocks));
  }
  const KernelCall made = call.of(kernel_);
  const AttributePools pools = call.attributes.pools();
  const ShapedKernelCall shaped(made, pools);
  if (const Fault fault = kernel_.shape_fault(shaped.shaped()); fault != Fault::kNone)
    refuse(kernel_, fault_text(fault));
  return call;
}

}  // namespace reprise
