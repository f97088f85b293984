// See importer.h.
#include "tools/plan/onnx/importer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/plan/models/model.h"
#include "tools/plan/onnx/guesses.h"
#include "tools/plan/onnx/norms.h"
#include "tools/plan/onnx/powers.h"
#include "tools/plan/pt2/module_names.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int64_t kOldestOpset = 11;
// Number of samples that stands for a batch of open size while shapes are computed. It is a prime,
// so that no other axis is a multiple of it.
constexpr int64_t kOpenBatch = 1000003;
constexpr int64_t kOpenTexts = 3;                     // made-up texts of an open batch, one for each length
constexpr int64_t kMaxBatch = 1000000;                // largest batch that a model may fix
constexpr uint64_t kMaxComputed = uint64_t{1} << 28;  // limit of spend(): about half a minute's work

bool is_floating(uint32_t stored) {
  const auto type = static_cast<OnnxType>(stored);
  return type == OnnxType::kFloat || type == OnnxType::kHalf || type == OnnxType::kDouble ||
         type == OnnxType::kBfloat16;
}

bool is_float(const OnnxTensor& tensor) { return is_floating(tensor.type); }

// Splits `ids`, without the batch, into runs. A run is factors that are consecutive in `ids` and,
// in the same order, consecutive in memory.
std::vector<std::vector<int>> runs_of(const TensorView& view, const std::vector<int>& ids) {
  std::vector<std::vector<int>> runs;
  for (size_t n = 1; n < ids.size(); ++n) {
    const bool goes_on = n > 1 && view.place(ids[n]) == view.place(ids[n - 1]) + 1;
    if (!goes_on) runs.emplace_back();
    runs.back().push_back(ids[n]);
  }
  return runs;
}

// Returns an order of the factors with fewer runs, after one transposition: of three blocks after
// the batch, the first two are exchanged. The last run of block 1 and the first run of block 3
// become one. If the runs are in reverse order in memory, the blocks that begin with run 0 and with
// run 1 become the first two.
std::vector<int> one_run_nearer(const TensorView& view, const std::vector<std::vector<int>>& runs) {
  size_t end = view.place(runs[1].front()), begin = view.place(runs[0].front());
  bool is_backwards = true;
  for (size_t r = 1; r < runs.size() && is_backwards; ++r) {
    if (view.place(runs[r].front()) < view.place(runs[r - 1].back())) continue;
    end = view.place(runs[r - 1].back()) + 1, begin = view.place(runs[r].front());
    is_backwards = false;
  }
  std::vector<int> ids = {TensorView::kBatch};
  const auto add = [&](size_t first, size_t last) {
    for (size_t n = first; n < last; ++n) ids.push_back(view.memory[n].id);
  };
  if (is_backwards) add(begin, view.memory.size());
  add(end, begin);
  add(1, end);
  if (!is_backwards) add(begin, view.memory.size());
  return ids;
}

// Returns the sizes and strides with which a parameter's numbers are read in this order of factors.
std::vector<ImportedTensor::Axis> walk_of(const TensorView& view, const std::vector<int>& ids) {
  std::vector<ImportedTensor::Axis> walk;
  for (const int id : ids) {
    int64_t stride = 1;
    for (size_t n = view.place(id) + 1; n < view.memory.size(); ++n) stride *= view.memory[n].size;
    walk.push_back({view.size(id), stride});
  }
  return walk;
}

// True if a weight of the net is a batch-norm's running statistic, which is no parameter.
bool is_statistic(const std::string& weight) {
  return weight.ends_with(".running_mean") || weight.ends_with(".running_var");
}
// True if the exporter made up the tensor's name, because it computed or transposed the tensor.
bool is_exporters_name(const std::string& name) {
  const bool is_counted = name.starts_with("val_") && name.find_first_not_of("0123456789", 4) == std::string::npos;
  return name.empty() || is_counted || name.starts_with("/") || name.find("::") != std::string::npos;
}

// Returns PyTorch's name of the node's module; "" if it is unknown, or is the net itself. The older
// exporter names nodes "/layer1/layer1.0/conv/Conv": a part that begins with the part before it, as
// in a Sequential, includes that part.
std::string module_of(const OnnxNode& node) {
  if (!node.module.empty() || !node.name.starts_with("/")) return node.module;
  std::string module, before;
  for (size_t at = 1, end; (end = node.name.find('/', at)) != std::string::npos; at = end + 1) {
    const std::string part = node.name.substr(at, end - at);
    const bool holds = !before.empty() && part.starts_with(before + ".");
    module += (module.empty() ? "" : ".") + (holds ? part.substr(before.size() + 1) : part);
    before = part;
  }
  return module;
}

// Returns a name of the model as files of weights spell it: parts are separated by '.', not by '/'.
std::string plain_name(std::string name) {
  std::replace(name.begin(), name.end(), '/', '.');
  while (!name.empty() && name.front() == '.') name.erase(0, 1);
  return name;
}

TensorView constant_view(const std::vector<int64_t>& shape) {
  TensorView view;
  for (const int64_t size : shape) {
    view.axes.emplace_back();
    if (size == 1) continue;
    const int id = static_cast<int>(view.axes.size());
    view.memory.push_back({id, size});
    view.axes.back() = {id};
  }
  return view;
}

// True if the op's result for two equal samples is its result for one sample, repeated. Such an op
// computes each sample by itself.
bool repeats_with(NodeReader& reader, std::vector<const KnownNumbers*> inputs, const std::vector<size_t>& repeating,
                  const KnownNumbers& of_one) {
  std::vector<KnownNumbers> doubled(inputs.size());
  for (const size_t n : repeating) {
    doubled[n] = twice(*inputs[n]);
    inputs[n] = &doubled[n];
  }
  const auto of_two = computed(reader, inputs);
  if (!of_two || of_one.shape.empty()) return false;
  const KnownNumbers right = twice(of_one);
  return of_two->shape == right.shape && of_two->numbers == right.numbers;
}

}  // namespace

ImportValue tensor_value(const TensorView& view, double factor) {
  ImportValue value;
  value.form = ImportForm::kTensor;
  value.view = view;
  value.factor = factor;
  return value;
}

ImportValue constant_value(const OnnxTensor& tensor, bool is_listed) {
  ImportValue value;
  value.form = ImportForm::kConstant;
  value.tensor = &tensor;
  value.is_parameter = is_listed && is_float(tensor) && tensor.is_trained.value_or(tensor.elements() > 1);
  value.view = constant_view({tensor.shape.begin(), tensor.shape.end()});
  return value;
}

ImportValue constant_value(KnownNumbers numbers) {
  ImportValue value;
  value.form = ImportForm::kConstant;
  value.view = constant_view(numbers.shape);
  value.known = std::make_shared<KnownNumbers>(std::move(numbers));
  return value;
}

ImportValue repeated_value(ImportValue constant, int64_t batch) {
  constant.view.memory.insert(constant.view.memory.begin(), {TensorView::kBatch, batch});
  constant.view.axes[0].insert(constant.view.axes[0].begin(), TensorView::kBatch);
  constant.repeats = true;
  return constant;
}

ImportValue one_sample_of(ImportValue constant) {
  if (!constant.repeats) return constant;
  constant.view = constant.view.of_one_sample();
  constant.repeats = false;
  if (constant.known) {
    KnownNumbers known = *constant.known;
    known.shape = constant.view.shape();
    constant.known = std::make_shared<KnownNumbers>(std::move(known));
  }
  return constant;
}

const char* form_text(ImportForm form) {
  switch (form) {
    case ImportForm::kConstant: return "a constant";
    case ImportForm::kOfParameter: return "a function of a parameter";
    case ImportForm::kTerms: return "a sum of constants";
    case ImportForm::kMean: return "a mean over the last axis";
    case ImportForm::kCentred: return "what a mean over the last axis was taken from";
    case ImportForm::kSquare: return "a square";
    case ImportForm::kVariance:
    case ImportForm::kDeviation:
    case ImportForm::kInverse: return "a variance";
    case ImportForm::kNormed:
    case ImportForm::kScaled: return "a normalised value before its weight and bias";
    case ImportForm::kErf:
    case ImportForm::kErfTerm: return "an error function";
    case ImportForm::kPowers: return "powers of a value";
    case ImportForm::kScores:
    case ImportForm::kWeights:
    case ImportForm::kIsNan: return "the scores of an attention";
    case ImportForm::kTokens: return "tokens";
    case ImportForm::kMasked:
    case ImportForm::kMaskedSum: return "a text without its padding";
    case ImportForm::kIsLarge: return "a comparison";
    case ImportForm::kUniform:
    case ImportForm::kKept: return "random numbers";
    case ImportForm::kUnknown:
    case ImportForm::kTensor: break;
  }
  return "a value";
}

// ---- a node's inputs ----

ImportValue Importer::value(NodeReader& reader, size_t n) {
  if (!reader.has_input(n)) return reader.refuse("input " + std::to_string(n) + " is missing"), ImportValue();
  const std::string& name = reader.node().inputs[n];
  const auto found = values_.find(name);
  if (found == values_.end())
    return reader.refuse("reads " + json_shown(name) + ", which nothing before it writes"), ImportValue();
  if (found->second.form == ImportForm::kUnknown) {
    reader.note_lack();
    if (net_.refused.empty()) reader.refuse("reads " + json_shown(name) + ", an output that is not available (yet)");
  }
  return found->second;
}

std::optional<TensorView> Importer::whole(NodeReader& reader, const ImportValue& value) {
  if (value.form == ImportForm::kUnknown) return std::nullopt;
  const bool is_of_one =
      value.form == ImportForm::kConstant && !value.repeats && value.view.axes.size() > 2 && value.view.axes[0].empty();
  if (is_of_one) return held(reader, repeated_value(value, 1));
  if (value.form == ImportForm::kConstant && value.repeats) return held(reader, value);
  if (value.is_constant())
    return reader.refuse("reads a constant of the model where a value of the net must be"), std::nullopt;
  const bool is_norm =
      value.form == ImportForm::kNormed || value.form == ImportForm::kScaled;  // a norm without a weight or a bias
  if (const auto own = value.form == ImportForm::kTensor ? std::nullopt
                       : is_norm                         ? append_part_of_norm(*this, reader, value)
                                                         : settled(reader, value);
      own && own->form == ImportForm::kTensor)
    return whole(reader, *own);
  if (reader.failed()) return std::nullopt;
  if (value.form != ImportForm::kTensor) {
    return reader.refuse(std::string("reads ") + form_text(value.form) + ", which is available within a layer alone"),
           std::nullopt;
  }
  if (!value.expanded.empty())
    return reader.refuse("reads what was expanded to " + json(value.expanded).dump() +
                         "; available is that in a product or a sum"),
           std::nullopt;
  if (value.factor == 1) return value.view;
  const double factor = shortest(value.factor);
  std::string& made = made_[value.view.node + " times " + json(factor).dump()];
  if (!made.empty()) return value.view.by(made);
  made = unique_name(value.view.node + ".scale");
  return append({{"op", "scale"}, {"factor", factor}}, made, {value.view.node}, value.view);
}

// Appends a node that writes one sample's numbers of a constant, once for all samples. Returns its
// output with the batch of `value`, along which the numbers repeat.
std::optional<TensorView> Importer::held(NodeReader& reader, const ImportValue& value) {
  const ImportValue constant = stored(reader.node(), one_sample_of(value));
  const std::vector<int64_t> shape = constant.view.shape();
  // False if no tensor has the constant's numbers, or if their first axis is not 1 (the batch
  // alone).
  const bool suits = constant.tensor != nullptr && shape[0] == 1;
  if (!suits)
    return reader.refuse("reads a constant of the model, " + json(value.view.shape()).dump() +
                         ", where a value of the net must be"),
           std::nullopt;
  TensorView view = value.view;
  view.memory = {view.memory[0]};
  for (const int id : constant.view.ids()) view.memory.push_back({id, constant.view.size(id)});
  int64_t sample = 1;
  for (size_t n = 1; n < view.memory.size(); ++n) sample *= view.memory[n].size;
  view.written = {batch_, sample};
  const std::string name = learned(reader.node(), constant, constant.view.ids(), {1, sample});
  once_.insert(name);
  return view.by(name);
}

// Returns a text that is equal for two views if and only if their node, axes and order in memory
// are equal.
std::string Importer::text_of(const TensorView& view) {
  std::string text = view.node + json(view.axes).dump();
  for (const Factor& factor : view.memory) text += " " + std::to_string(factor.id) + "x" + std::to_string(factor.size);
  return text;
}

// Returns a key of a value that is no tensor yet.
std::string Importer::text_of(const ImportValue& value) {
  std::string text = std::to_string(static_cast<int>(value.form)) + " of " + text_of(value.view);
  if (value.other)
    text += " by " + text_of(value.other->view) + std::to_string(reinterpret_cast<uintptr_t>(value.other->tensor));
  return text + json({value.factor, value.dropout, value.epsilon, value.is_centred, value.groups, value.powers}).dump();
}

std::optional<ImportValue> Importer::append_settled(NodeReader& reader, const ImportValue& value) {
  if (value.form == ImportForm::kPowers) return append_powers(*this, reader, value);
  if (value.form == ImportForm::kScores || value.form == ImportForm::kWeights)
    return append_scores(*this, reader, value);
  return append_part_of_norm(*this, reader, value);
}

std::optional<ImportValue> Importer::settled(NodeReader& reader, const ImportValue& value) {
  const bool is_in_the_making = value.form == ImportForm::kPowers || value.form == ImportForm::kScores ||
                                value.form == ImportForm::kWeights || is_part_of_norm(value);
  if (!is_in_the_making) return value;
  const std::string key = text_of(value);
  if (const auto found = settled_.find(key); found != settled_.end()) return found->second;
  const auto made = append_settled(reader, value);
  if (made) settled_.emplace(key, *made);
  return made;
}

std::optional<ImportValue> Importer::product_settled(NodeReader& reader, const ImportValue& value) {
  const bool is_product = value.form == ImportForm::kScores || value.form == ImportForm::kWeights;
  return is_product ? settled(reader, value) : value;
}

void Importer::add_norm_parts(json& node, const std::string& name, const ImportValue& weight, const ImportValue* bias) {
  const auto add = [&](const char* part, const ImportValue& numbers) {
    const std::vector<int64_t> shape = numbers.view.shape();
    int64_t channels = 1;
    for (const int64_t size : shape) channels *= size;
    add_weight(name + "." + part, numbers, numbers.view.ids(), {channels});
  };
  is_absent(weight, 1) ? void(node["weight"] = false) : add("weight", weight);
  if (node.at("op") == "rms_norm") return;
  bias == nullptr || is_absent(*bias, 0) ? void(node["bias"] = false) : add("bias", *bias);
}

bool Importer::is_absent(const ImportValue& part, float number) {
  return part.tensor != nullptr && part.tensor->is_made() && !part.tensor->is_trained.value_or(false) &&
         std::all_of(part.tensor->numbers.begin(), part.tensor->numbers.end(),
                     [number](float n) { return n == number; });
}

ImportValue Importer::stored(const OnnxNode& node, const ImportValue& constant) {
  return stored(plain_name(node.name.empty() ? node.op : node.name) + ".numbers", constant);
}

ImportValue Importer::stored(const std::string& name, const ImportValue& constant) {
  if (constant.form != ImportForm::kConstant || constant.tensor != nullptr || !constant.known->is_whole() ||
      constant.known->of_texts)
    return constant;
  ImportValue& made = stored_[constant.known.get()];
  if (made.tensor == nullptr) {
    auto tensor = std::make_shared<OnnxTensor>();
    tensor->name = name;
    tensor->shape.assign(constant.known->shape.begin(), constant.known->shape.end());
    tensor->type = static_cast<uint32_t>(OnnxType::kFloat);
    tensor->numbers.assign(constant.known->numbers.begin(), constant.known->numbers.end());
    net_.own.push_back(tensor);
    made = constant;
    made.tensor = tensor.get();
    made.is_parameter = false;
  }
  ImportValue result = constant;
  result.tensor = made.tensor;
  return result;
}

// A file that was exported for a fixed batch size may contain constants with equal numbers for each
// sample. The result repeats one sample's numbers. A tensor that the file calls a parameter is
// returned unchanged, because it has numbers of its own for each sample.
ImportValue Importer::repeating(const ImportValue& constant, const TensorView& beside) {
  const bool may_be = batch_ > 1 && constant.form == ImportForm::kConstant && !constant.repeats && !constant.rows &&
                      !constant.view.axes.empty() && constant.view.axes.size() == beside.axes.size() &&
                      !beside.axes[0].empty() && beside.axes[0][0] == TensorView::kBatch &&
                      constant.view.axis_size(0) == beside.axis_size(0) &&
                      !(constant.tensor != nullptr && constant.tensor->is_trained.value_or(false));
  const auto known = may_be ? known_of(constant, true) : std::nullopt;
  if (!known || known->of_texts) return constant;
  KnownNumbers one = *known;
  const size_t each = known->numbers.size() / static_cast<size_t>(batch_);
  one.shape[0] /= batch_;
  one.numbers.resize(each);
  for (size_t n = each; n < known->numbers.size(); ++n) {
    if (known->numbers[n] != one.numbers[n % each]) return constant;
  }
  const ImportValue sample = constant_value(std::move(one));
  if (constant.tensor == nullptr) return repeated_value(sample, batch_);
  ImportValue& made = samples_[constant.tensor];
  if (made.tensor == nullptr) made = stored(constant.tensor->name, sample);
  return repeated_value(made, batch_);
}

std::optional<TensorView> Importer::tensor(NodeReader& reader, size_t n) { return whole(reader, value(reader, n)); }

std::optional<KnownNumbers> Importer::known_of(const ImportValue& value, bool of_parameters) const {
  if (value.form != ImportForm::kConstant || value.repeats) return std::nullopt;
  // Work for spend(): 1 for kCopiedAtOnce numbers that are copied, and kWorkOfFloat for each float
  // that is read from the file.
  constexpr uint64_t kCopiedAtOnce = 16, kWorkOfFloat = 16;
  if (value.known) {
    spend(value.known->numbers.size() / kCopiedAtOnce);
    return value.known->is_whole() ? std::optional(*value.known) : std::nullopt;
  }
  if ((value.is_parameter && !of_parameters) || value.tensor->elements() > kMaxKnown) return std::nullopt;
  const std::vector<int> ids = value.view.ids();
  for (size_t n = 0; n < ids.size(); ++n) {
    if (value.view.memory[n].id != ids[n]) return std::nullopt;  // a transposition moved the axes
  }
  KnownNumbers known = {value.view.shape(), {}, false};
  const auto type = static_cast<OnnxType>(value.tensor->type);
  known.is_integer = !is_float(*value.tensor);
  if (known.is_integer && type != OnnxType::kInt64 && type != OnnxType::kInt32 && type != OnnxType::kBool)
    return std::nullopt;
  spend(value.tensor->elements() * (known.is_integer ? 1 : kWorkOfFloat));
  if (known.is_integer) {
    for (const int64_t number : file_.integers(*value.tensor)) known.numbers.push_back(static_cast<double>(number));
  } else {
    for (const float number : file_.floats(*value.tensor))
      known.numbers.push_back(shortest(static_cast<double>(number)));
  }
  return known;
}

std::optional<double> Importer::known_scalar(const ImportValue& value) const {
  const std::optional<KnownNumbers> known = known_of(value);
  return known && !known->of_texts && known->numbers.size() == 1 ? std::optional(known->numbers[0]) : std::nullopt;
}

std::optional<KnownNumbers> Importer::known(NodeReader& reader, size_t n) {
  const ImportValue found = value(reader, n);
  if (found.form == ImportForm::kUnknown) return std::nullopt;
  std::optional<KnownNumbers> numbers = known_of(found, true);
  if (!numbers || numbers->of_texts) {
    reader.refuse("input " + std::to_string(n) + " must be known before the net runs");
    return std::nullopt;
  }
  return numbers;
}

std::optional<ImportValue> Importer::parameter(NodeReader& reader, size_t n) {
  const ImportValue found = value(reader, n);
  if (found.form == ImportForm::kUnknown) return std::nullopt;
  if (found.form == ImportForm::kConstant && found.tensor != nullptr) return found;
  reader.refuse("input " + std::to_string(n) + " must be a constant of the model");
  return std::nullopt;
}

std::optional<ImportValue> Importer::bias(NodeReader& reader, size_t n) {
  if (reader.has_input(n)) return parameter(reader, n);
  const ImportValue* left_out = reader.node().bias.empty() ? nullptr : find(reader.node().bias);
  return left_out == nullptr ? std::nullopt : std::optional(*left_out);
}

bool Importer::is_output(const std::string& value) const { return value == output_ || value == net_.output; }

const OnnxNode* Importer::only_reader_of(const std::string& value) const {
  const auto found = uses_.find(value);
  return found == uses_.end() || found->second.times != 1 || is_output(value) ? nullptr : found->second.reader;
}

const OnnxNode* Importer::writer_of(const std::string& value) const {
  const auto found = uses_.find(value);
  return found == uses_.end() ? nullptr : found->second.writer;
}

const ImportValue* Importer::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

// ---- a node's outputs ----

void Importer::set(NodeReader& reader, const ImportValue& value, size_t output) {
  const std::vector<int64_t> shape = value.view.shape();
  if (value.form != ImportForm::kConstant && std::count(shape.begin(), shape.end(), 0) > 0)
    return reader.refuse("writes " + json(shape).dump() + ", which holds no numbers");
  if (output < reader.node().outputs.size()) values_[reader.node().outputs[output]] = value;
}

void Importer::set_tensor(NodeReader& reader, const TensorView& view, size_t output) {
  ImportValue value;
  value.form = ImportForm::kTensor;
  value.view = view;
  set(reader, value, output);
}

void Importer::pass(NodeReader& reader, const ImportValue& value) {
  ++net_.left_out;
  set(reader, value);
}

// ---- the net's nodes ----

std::string Importer::name_of(const OnnxNode& node, const OnnxTensor* parameter) {
  std::string name;
  if (parameter != nullptr) {
    const std::string& own = parameter->parameter.empty() ? parameter->name : parameter->parameter;
    name = own;
    for (const char* ending : {".weight", ".bias", ".in_proj_weight", ".in_proj_bias", ".running_mean"}) {
      if (name.ends_with(ending)) name.erase(name.size() - std::string_view(ending).size());
    }
    if (name == own) name.clear();
  }
  // True if nothing has the name yet. Exporters keep one of several equal parameters, so that two
  // layers may find the same name.
  const auto is_free = [this](const std::string& each) {
    return !each.empty() && names_.count(each) + names_.count(each + ".weight") + names_.count(each + ".bias") == 0;
  };
  // If a product's weight has lost its name, the bias names the layer. But exporters keep one of
  // equal biases, so the name may belong to another layer.
  const std::string module = module_of(node);
  const bool is_within = !module.empty() && (name == module || name.starts_with(module + "."));
  const bool is_others =
      node.op == "MatMul" && !module.empty() && !is_within && parameter != nullptr && parameter->name.ends_with("bias");
  if (is_free(name) && !(is_others && is_free(module))) return unique_name(plain_name(name));
  const std::string own = plain_name(!node.name.empty() ? node.name : node.outputs.empty() ? "" : node.outputs[0]);
  const std::string older = own.empty() ? node.op : own;
  // If the weight of a product lost the module's name, the exporter transposed it. If the weight of
  // a norm that is written as a chain lost it, the exporter added axes. Other such weights were
  // computed, for example a convolution's from a batch-norm's numbers.
  const bool is_layer = node.op == "MatMul" || node.op == "Add" || node.op == "Mul";
  const bool is_transposed = is_layer && parameter != nullptr && is_exporters_name(parameter->name);
  if (!(is_transposed || !name.empty()) || !is_free(module)) return unique_name(older);
  const std::string unique = unique_name(module);
  older_names_[unique] = older;
  return unique;
}

std::string Importer::unique_name(const std::string& name) {
  if (names_.insert(name).second) return name;
  int& ending = endings_.try_emplace(name, 1).first->second;
  std::string unique;
  do unique = name + "_" + std::to_string(++ending);
  while (!names_.insert(unique).second);
  return unique;
}

TensorView Importer::append(json node, const std::string& name, const std::vector<std::string>& inputs,
                            const TensorView& layout) {
  double elements = 1;
  for (const int64_t d : layout.written) elements *= static_cast<double>(d);
  if (elements > 9e15) refuse("node " + json_shown(name) + ": writes more numbers than any machine holds");
  const bool is_once = !inputs.empty() &&
                       std::all_of(inputs.begin(), inputs.end(), [this](const auto& input) { return has_once(input); });
  const bool may_mix = is_once || node.at("op") == "add" || node.at("op") == "multiply";
  if (is_once) once_.insert(name);
  if (is_once && (node.at("op") == "batch_norm" || node.at("op") == "dropout" || node.at("op") == "drop_path"))
    refuse("node " + json_shown(name) +
           ": does with each sample something else, but reads what is the same for each, which is not available");
  if (!may_mix && std::any_of(inputs.begin(), inputs.end(), [this](const auto& input) { return has_once(input); }))
    refuse("node " + json_shown(name) +
           ": reads what is the same for each sample beside what is not, which is available in a sum or a product");
  node["name"] = name;
  node["inputs"] = inputs;
  places_[name] = nodes_.size();
  if (!layout.written.empty()) written_[name] = layout.written;
  nodes_.push_back(std::move(node));
  return layout.by(name);
}

json* Importer::node_called(const std::string& name) {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &nodes_[found->second];
}

void Importer::replace_at_end(const std::string& name, const json& node) {
  const size_t place = places_.at(name);
  nodes_.erase(nodes_.begin() + static_cast<long>(place));
  nodes_.push_back(node);
  for (size_t n = place; n < nodes_.size(); ++n) places_[nodes_[n].at("name")] = n;
}

TensorView Importer::written_as(const TensorView& view, const std::vector<int64_t>& shape) {
  if (view.written == shape) return view;
  TensorView result = view;
  result.written = shape;
  const std::vector<int64_t> sample(shape.begin() + 1, shape.end());
  std::string& made = made_[view.node + " as " + json(sample).dump()];
  if (!made.empty()) return result.by(made);
  made = unique_name(view.node + ".as");
  return append({{"op", "reshape"}, {"shape", sample}}, made, {view.node}, result);
}

std::optional<TensorView> Importer::in_order(NodeReader& reader, const TensorView& view, const std::vector<int>& ids) {
  if (ids.size() != view.memory.size() || ids[0] != TensorView::kBatch)
    return reader.refuse("works along the batch, which is not available"), std::nullopt;
  const std::vector<std::vector<int>> runs = runs_of(view, ids);
  if (runs.size() <= 1) return view;
  if (runs.size() > 3) {  // one transposition reorders at most three runs
    const auto nearer = in_order(reader, view, one_run_nearer(view, runs));
    return nearer ? in_order(reader, *nearer, ids) : std::nullopt;
  }
  std::vector<size_t> present(runs.size());  // indices of the runs, sorted by their position in memory
  for (size_t r = 0; r < runs.size(); ++r) present[r] = r;
  std::sort(present.begin(), present.end(),
            [&](size_t a, size_t b) { return view.place(runs[a][0]) < view.place(runs[b][0]); });
  std::vector<int64_t> now = {view.memory[0].size}, then = now;
  std::vector<int64_t> order;
  const auto size_of = [&](const std::vector<int>& run) {
    int64_t size = 1;
    for (const int id : run) size *= view.size(id);
    return size;
  };
  for (const size_t r : present) now.push_back(size_of(runs[r]));
  TensorView result = view;
  result.memory = {view.memory[0]};
  for (size_t r = 0; r < runs.size(); ++r) {
    then.push_back(size_of(runs[r]));
    order.push_back(1 + std::find(present.begin(), present.end(), r) - present.begin());
    for (const int id : runs[r]) result.memory.push_back({id, view.size(id)});
  }
  const TensorView before = written_as(view, now);
  result.written = then;
  std::string& made = made_[before.node + " in " + json(order).dump()];
  if (!made.empty()) return result.by(made);
  made = unique_name(before.node + ".in_order");
  return append({{"op", "transpose"}, {"order", order}}, made, {before.node}, result);
}

std::optional<TensorView> Importer::images(NodeReader& reader, const TensorView& view) {
  const std::vector<int64_t> shape = view.shape();
  if ((shape.size() != 4 && shape.size() != 3) || view.axes[0] != std::vector<int>{TensorView::kBatch}) {
    return reader.refuse("must read images, [N,C,H,W], or signals, [N,C,L]; reads " + json(shape).dump()), std::nullopt;
  }
  std::vector<int> ids = {TensorView::kBatch};
  for (const size_t axis : shape.size() == 4 ? std::vector<size_t>{2, 3, 1} : std::vector<size_t>{2, 1}) {
    ids.insert(ids.end(), view.axes[axis].begin(), view.axes[axis].end());
  }
  const auto ordered = in_order(reader, view, ids);
  if (!ordered) return std::nullopt;
  return written_as(*ordered, shape.size() == 4 ? std::vector<int64_t>{shape[0], shape[2], shape[3], shape[1]}
                                                : std::vector<int64_t>{shape[0], 1, shape[2], shape[1]});
}

std::optional<TensorView> Importer::rows(NodeReader& reader, const TensorView& view) {
  if (view.axes.empty()) return reader.refuse("must read rows, [...,C]"), std::nullopt;
  const std::vector<int>& last = view.axes.back();
  if (std::count(last.begin(), last.end(), TensorView::kBatch) > 0)
    return reader.refuse("works along the batch, which is not available"), std::nullopt;
  bool is_last = last.size() < view.memory.size();
  for (size_t n = 0; n < last.size() && is_last; ++n)
    is_last = view.memory[view.memory.size() - last.size() + n].id == last[n];
  std::vector<int> ids;
  for (const Factor& factor : view.memory) {
    if (std::count(last.begin(), last.end(), factor.id) == 0) ids.push_back(factor.id);
  }
  ids.insert(ids.end(), last.begin(), last.end());
  const auto ordered = is_last ? std::optional(view) : in_order(reader, view, ids);
  if (!ordered) return std::nullopt;
  const int64_t columns = ordered->axis_size(ordered->axes.size() - 1);
  if (ordered->written.size() >= 2 && ordered->written.back() == columns) return ordered;
  int64_t rest = 1;
  for (size_t n = 1; n < ordered->memory.size() - last.size(); ++n) rest *= ordered->memory[n].size;
  return written_as(*ordered,
                    rest == 1 ? std::vector<int64_t>{batch_, columns} : std::vector<int64_t>{batch_, rest, columns});
}

std::string Importer::learned(const OnnxNode& node, const ImportValue& constant, const std::vector<int>& ids,
                              const std::vector<int64_t>& shape) {
  // Constants within nodes may have the same name, or none. So the key contains the tensor's
  // address.
  std::string key =
      "learned " + std::to_string(reinterpret_cast<uintptr_t>(constant.tensor)) + json(ids).dump() + json(shape).dump();
  if (!constant.functions.empty()) key += " functions " + json(constant.functions).dump();
  if (constant.rows) {
    spend(16 * constant.rows->size());
    key += " rows " + json(*constant.rows).dump();
  }
  for (const Factor& factor : constant.view.memory) key += ',' + std::to_string(factor.size);
  if (request_.untie) key += " of " + node.outputs.at(0);
  std::string& made = made_[key];
  if (!made.empty()) return made;
  if (!constant.functions.empty()) {
    ImportValue parameter = constant;
    parameter.functions.clear();
    std::string of = learned(node, parameter, ids, shape);
    for (const json& function : constant.functions)
      of = append(function, unique_name(of + "." + function.at("op").get<std::string>()), {of}, TensorView()).node;
    return made_[key] = of;
  }
  if (const auto before = learned_.find(constant.tensor);
      before != learned_.end() && constant.is_parameter && !request_.untie)
    return made = again(constant, before->second, {"", shape, walk_of(constant.view, ids)});
  const OnnxTensor& tensor = *constant.tensor;
  const std::string name = plain_name(!tensor.parameter.empty() ? tensor.parameter
                                      : !tensor.name.empty()    ? tensor.name
                                                                : node.name);
  made = unique_name(name.empty() ? "constant" : name);
  learned_[constant.tensor] = {made, shape, walk_of(constant.view, ids)};
  if (!constant.is_parameter) {
    freeze(made, why_frozen(constant));
  } else if (const auto guess = guess_of(node, constant); guess) {
    freeze(made, *guess);
  } else {
    note_trained(made, constant);
  }
  if (constant.rows) return append_rows(constant, made, ids, shape), made;
  add_weight(made, constant, ids, shape);
  append({{"op", "learned"}, {"shape", shape}}, made, {}, TensorView());
  return made;
}

// Returns the name of a node that gives a parameter another shape than the node `before`, which has
// the parameter. One node has the parameter, so all its gradients are added up. Refuses a change
// that is no reshape of a sample.
std::string Importer::again(const ImportValue& constant, const Learned& before, const Learned& now) {
  const bool is_same = before.walk == now.walk && before.shape.size() > 1 && now.shape.size() > 1 &&
                       before.shape[0] == now.shape[0] && !constant.rows;
  if (!is_same) {
    refuse("tensor " + json_shown(constant.tensor->name) + ": is read as " + json(before.shape).dump() + " and as " +
           json(now.shape).dump() + ", which are two layers' (yet)");
    return before.name;
  }
  const std::string name = unique_name(before.name + ".as");
  append({{"op", "reshape"}, {"shape", std::vector<int64_t>(now.shape.begin() + 1, now.shape.end())}}, name,
         {before.name}, TensorView());
  return name;
}

// Appends a node that writes rows of a table [V,C] as [rows,C] or, transposed, as [C,rows].
void Importer::append_rows(const ImportValue& constant, const std::string& name, const std::vector<int>& ids,
                           const std::vector<int64_t>& shape) {
  ImportValue table = constant;
  table.view = constant.table;
  table.rows = nullptr;
  add_weight(name, table);
  const std::vector<int64_t> sides = table.view.shape();
  // The view's factors: in as_it_lies the rows' come first, in transposed the columns'.
  std::vector<int> as_it_lies, transposed;
  size_t rows = constant.view.memory.size();
  for (int64_t columns = 1; columns < sides[1]; columns *= constant.view.memory[rows].size) --rows;
  for (const Factor& factor : constant.view.memory) as_it_lies.push_back(factor.id);
  transposed.assign(as_it_lies.begin() + static_cast<long>(rows), as_it_lies.end());
  transposed.insert(transposed.end(), as_it_lies.begin(), as_it_lies.begin() + static_cast<long>(rows));
  const bool is_transposed = ids != as_it_lies;
  if (is_transposed && ids != transposed)
    refuse("tensor " + json_shown(constant.tensor->name) + ": its rows are read in an order that is not available");
  append({{"op", "learned_rows"}, {"shape", sides}, {"rows", *constant.rows}, {"turned", is_transposed}, {"as", shape}},
         name, {}, TensorView());
}

void Importer::add_weight(const std::string& name, const ImportValue& parameter) {
  add_weight(name, parameter, parameter.view.ids(), parameter.view.shape());
}

void Importer::add_weight(const std::string& name, const ImportValue& parameter, const std::vector<int>& ids,
                          const std::vector<int64_t>& shape) {
  net_.weights.push_back({name, parameter.tensor, {shape.begin(), shape.end()}, walk_of(parameter.view, ids)});
  names_.insert(name);
  if (is_statistic(name)) return;
  const OnnxTensor& tensor = *parameter.tensor;
  if (tensor.is_made() && !tensor.is_trained.value_or(false)) return freeze(name, Finding::kAbsent);
  const bool is_within_node = is_of_torch() && !parameter.is_parameter;  // PyTorch exports no parameters within nodes
  if (!tensor.is_trained.value_or(!is_within_node)) return freeze(name, why_frozen(parameter));
  if (tensor.is_frozen || parameter.is_detached) return freeze(name, Finding::kFixed);
  note_trained(name, parameter);
}

bool Importer::is_asked_to_train(const std::string& parameter) const {
  const auto names_it = [&](const std::string& pattern) { return matches_pattern(pattern, parameter); };
  return std::any_of(request_.train.begin(), request_.train.end(), names_it);
}

void Importer::freeze(const std::string& parameter, Finding why) {
  if (net_.frozen.insert(parameter).second) note(why, parameter);
}

Finding Importer::why_frozen(const ImportValue& constant) const {
  const OnnxTensor& tensor = *constant.tensor;
  const bool is_of_module =
      tensor.is_trained && is_modules_name(tensor.name) && !(tensor.is_copy && tensor.parameter.empty());
  return is_of_module ? Finding::kBuffer : Finding::kConstant;
}

bool Importer::is_modules_own(const ImportValue& constant) const {
  if (constant.tensor == nullptr || !constant.is_parameter) return false;
  return constant.tensor->is_trained.value_or(is_of_torch() && is_modules_name(constant.tensor->name));
}

bool Importer::is_before_weights(const std::string& name) const {
  static const std::set<std::string> kHaveWeights = {"conv",         "conv_transpose", "linear",   "batch_norm",
                                                     "layer_norm",   "group_norm",     "rms_norm", "embedding",
                                                     "learned_rows", "learned"};
  std::vector<std::string> open = {name};
  std::set<std::string> seen;
  bool reads_input = false;
  while (!open.empty()) {
    const std::string next = open.back();
    open.pop_back();
    if (!seen.insert(next).second) continue;
    reads_input = reads_input || next == kNetImages;
    const auto place = places_.find(next);
    if (place == places_.end()) continue;
    const json& node = nodes_[place->second];
    if (kHaveWeights.count(node.at("op")) > 0 && net_.frozen.count(next) == 0) return false;
    for (const json& input : node.at("inputs")) open.push_back(input.get<std::string>());
  }
  return reads_input;
}

// True for a constant that torch's older exporter named, because it computed the constant.
bool Importer::is_made_up(const std::string& value) const {
  const ImportValue* found = find(value);
  return is_of_torch() && value.starts_with("onnx::") && found != nullptr && found->form == ImportForm::kConstant &&
         found->tensor != nullptr && !found->tensor->is_trained;
}

// True for a product with a constant of is_made_up() if a sum with another such constant follows.
// True for that sum, too.
bool Importer::is_of_frozen_norm(const OnnxNode& node) const {
  const auto has_made_up = [this](const OnnxNode& each) {
    return std::any_of(each.inputs.begin(), each.inputs.end(),
                       [this](const std::string& input) { return is_made_up(input); });
  };
  if (!has_made_up(node)) return false;
  if (node.op == "Mul" && !node.outputs.empty()) {
    const OnnxNode* sum = only_reader_of(node.outputs[0]);
    return sum != nullptr && sum->op == "Add" && has_made_up(*sum);
  }
  if (node.op != "Add") return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& input) {
    const OnnxNode* product = writer_of(input);
    return product != nullptr && product->op == "Mul" && has_made_up(*product);
  });
}

// Returns the reason to take a parameter for a buffer. Returns nothing if the file states which of
// them it is, or if it is taken for a parameter.
std::optional<Finding> Importer::guess_of(const OnnxNode& node, const ImportValue& constant) const {
  const OnnxTensor& tensor = *constant.tensor;
  if (tensor.is_trained || tensor.name.ends_with("weight") || tensor.name.ends_with("bias")) return std::nullopt;
  if (constant.meets_input) return Finding::kInput;
  if (is_of_frozen_norm(node)) return Finding::kFrozenNorm;
  if (tensor.elements() > kMaxKnown) return std::nullopt;
  return guess_of_table(file_.floats(tensor), {tensor.shape.begin(), tensor.shape.end()});
}

void Importer::guess_filter(const std::string& name, const ImportValue& weight) {
  const OnnxTensor& tensor = *weight.tensor;
  if (tensor.is_trained || tensor.elements() > kMaxKnown) return;
  if (is_fixed_filter(file_.floats(tensor), {tensor.shape.begin(), tensor.shape.end()})) freeze(name, Finding::kFilter);
}

// Records findings of a tensor that is trained, but perhaps should not be, or that differs from the
// module's tensor.
void Importer::note_trained(const std::string& name, const ImportValue& constant) {
  if (net_.frozen.count(name) > 0) return;
  const OnnxTensor& tensor = *constant.tensor;
  // Exporters also rename weights of linear layers and norms if they change the shape. These have
  // the same numbers as the module's parameters, so they do not count as computed.
  const bool is_reshaped =
      (name.ends_with(".weight") || name.ends_with(".bias")) && !tensor.name.starts_with("onnx::Conv");
  const bool is_made_up = is_of_torch() && tensor.name.starts_with("onnx::") && !is_reshaped;
  const bool is_layers =
      tensor.name.ends_with("weight") || tensor.name.ends_with("bias") || !is_modules_name(tensor.name);
  if (tensor.is_computed || is_made_up) note(Finding::kComputed, name);
  if (tensor.is_copy) note(tensor.is_made() ? Finding::kRestored : Finding::kEqual, name);
  if (!tensor.is_trained && !is_layers) note(Finding::kOwn, name);
}

// Records findings about the file as a whole, for example parameters of the module that are
// missing.
void Importer::note_whole_file() {
  for (const std::string& name : model_.lost) note(Finding::kLost, name);
  const auto draws = [](const json& node) {
    return node.at("op") == "dropout" || node.at("op") == "drop_path" || node.value("dropout", 0.0) > 0;
  };
  const auto is_of_training = [](const OnnxNode& node) {
    const auto is_on = [](const OnnxAttribute& attribute) {
      return attribute.name == "training_mode" && attribute.integer != 0;
    };
    return node.op == "Dropout" || std::any_of(node.attributes.begin(), node.attributes.end(), is_on);
  };
  const bool may_lack = !model_.producer.empty() && std::none_of(nodes_.begin(), nodes_.end(), draws) &&
                        std::none_of(model_.nodes.begin(), model_.nodes.end(), is_of_training);
  if (may_lack) net_.findings.add(Finding::kNoDropout);
  if (!model_.producer.empty()) {
    net_.findings.add(Finding::kNoGradient);
    for (const json& node : nodes_) {
      if (node.at("op") == "embedding") note(Finding::kEveryRow, node.at("name").get<std::string>() + ".weight");
    }
  }
  for (const OnnxNode& node : model_.nodes) {
    if (node.origin == kIdleDropout) note(Finding::kIdleDropout, node.name);
  }
  if (net_.graph.contains("image") && !normalises_input()) net_.findings.add(Finding::kNoMean);
}

bool Importer::normalises_input() const {
  static const std::set<std::string> kNormalise = {"add",        "multiply",   "scale",
                                                   "batch_norm", "group_norm", "layer_norm"};
  return std::any_of(nodes_.begin(), nodes_.end(), [this](const json& node) {
    return kNormalise.count(node.at("op")) > 0 && is_before_weights(node.at("inputs").at(0).get<std::string>());
  });
}

// Unfreezes the parameters that --train names, also if the findings froze them.
void Importer::take_orders() {
  std::set<std::string> taken;
  for (const std::string& pattern : request_.train) {
    bool matches = false;
    for (const ImportedTensor& weight : net_.weights) {
      if (!matches_pattern(pattern, weight.name)) continue;
      matches = true;
      if (net_.frozen.erase(weight.name) > 0) taken.insert(weight.name);
    }
    if (!matches) refuse("--train: " + json_shown(pattern) + " matches no parameter of the net");
  }
  net_.findings.keep([&](const std::string& name) { return taken.count(name) == 0; });
}

// ---- the model ----

ImportedNet Importer::import() {
  const LongWork work("reading the model's nodes");
  net_.graph["nodes"] = json::array();
  check_model();
  if (!has_single_writers()) return std::move(net_);
  index_nodes();
  read_constants();
  find_mode();
  read_input();
  find_output();
  const std::vector<bool> wanted = wanted_nodes();
  for (size_t n = 0; n < model_.nodes.size(); ++n) {
    if (wanted[n]) {
      read_node(model_.nodes[n]);
    } else {
      ++net_.left_out;
    }
    leave_read_inputs(n);
  }
  finish();
  tie_shared();
  note_whole_file();
  net_.findings.keep([this](const std::string& name) { return weight_called(name) != net_.weights.end(); });
  name_as_stored();
  if (net_.refused.empty()) take_orders();
  return std::move(net_);
}

void Importer::check_model() {
  const auto opset = model_.opsets.find("");
  if (opset == model_.opsets.end() || opset->second < kOldestOpset) {
    refuse("opset: " + (opset == model_.opsets.end() ? std::string("not said") : std::to_string(opset->second)) +
           "; must be " + std::to_string(kOldestOpset) + " or later");
  }
  for (const std::string& line : model_.refused) refuse(line);
  if (model_.has_functions) refuse("functions of the model's own are not available (yet)");
  if (model_.has_sparse) refuse("sparse constants are not available (yet)");
}

// Requires that each value has one writer, so that a name means one thing. value() requires that
// the writer comes before its readers, so that the model has no cycle.
bool Importer::has_single_writers() {
  const auto refuses = [&](const std::string& reason) { return refuse(reason), false; };
  std::set<std::string> written;
  for (const OnnxTensor& tensor : model_.constants) {
    if (tensor.name.empty()) return refuses("a constant has no name; must have one");
    if (!written.insert(tensor.name).second)
      return refuses("tensor " + json_shown(tensor.name) + ": two constants have this name; must be one");
  }
  std::set<std::string> inputs;  // names of the inputs; older files list the constants here, too
  for (const OnnxValue& input : model_.inputs) {
    if (input.name.empty()) return refuses("an input has no name; must have one");
    if (!inputs.insert(input.name).second)
      return refuses("input " + json_shown(input.name) + ": two inputs have this name; must be one");
  }
  written.merge(inputs);
  for (const OnnxNode& node : model_.nodes) {
    for (const std::string& output : node.outputs) {
      if (output.empty() || written.insert(output).second) continue;
      NodeReader(node, net_.refused)
          .refuse("writes " + json_shown(output) + ", which is there before it; must have one writer");
      return false;
    }
  }
  return true;
}

void Importer::spend(uint64_t numbers) const {
  computed_ += numbers;
  if (computed_ <= kMaxComputed) return;
  throw UserError(file_.path() + ": its nodes compute with more than " + std::to_string(kMaxComputed) +
                  " numbers before the net runs, which is the most that is available");
}

void Importer::index_nodes() {
  for (size_t n = 0; n < model_.nodes.size(); ++n) {
    const OnnxNode& node = model_.nodes[n];
    for (const std::string& input : node.inputs) {
      Uses& uses = uses_[input];
      uses.last = n;
      if (node.op == "Shape") continue;
      uses.reader = &node;
      ++uses.times;
    }
    for (const std::string& output : node.outputs) {
      if (!output.empty()) uses_[output].writer = &node;
    }
  }
}

// Erases the values that no node after node `node` reads. This saves memory, because models compute
// with long lists.
void Importer::leave_read_inputs(size_t node) {
  for (const std::string& input : model_.nodes[node].inputs) {
    const Uses& uses = uses_.at(input);
    if (uses.last == node && uses.writer != nullptr && !is_output(input)) values_.erase(input);
  }
}

void Importer::read_constants() {
  // A single number is a parameter if the module has a name for it and nodes compute with it. In a
  // file that torch did not write, it is a plain number.
  static const std::set<std::string> kComputes = {"Add",      "Sub",  "Mul", "Div",  "Exp", "Sigmoid",    "Tanh",
                                                  "Softplus", "Relu", "Abs", "Sqrt", "Pow", "Reciprocal", "Neg"};
  for (const OnnxTensor& tensor : model_.constants) {
    ImportValue& value = values_[tensor.name] = constant_value(tensor, true);
    const auto uses = uses_.find(tensor.name);
    const bool may_be = is_float(tensor) && tensor.elements() == 1 && !tensor.is_trained && uses != uses_.end() &&
                        uses->second.reader != nullptr && kComputes.count(uses->second.reader->op) > 0;
    if (!may_be) continue;
    value.is_parameter = (is_of_torch() && is_modules_name(tensor.name)) || is_asked_to_train(plain_name(tensor.name));
    if (!value.is_parameter && !is_of_torch()) net_.findings.add(Finding::kNumber, tensor.name);
  }
}

void Importer::read_input() {
  std::vector<const OnnxValue*> inputs;
  for (const OnnxValue& input : model_.inputs) {
    if (values_.count(input.name) == 0) inputs.push_back(&input);
  }
  for (const auto& [name, shape] : request_.inputs) {
    if (std::none_of(inputs.begin(), inputs.end(),
                     [&name = name](const OnnxValue* input) { return input->name == name; }))
      refuse("--input: " + json_shown(name) + " is no input of the model");
  }
  const auto is_of_numbers = [](const OnnxValue* input) { return is_floating(input->type); };
  if (inputs.size() == 1 && is_of_numbers(inputs[0])) return read_images(*inputs[0]);
  if (!inputs.empty() && std::none_of(inputs.begin(), inputs.end(), is_of_numbers)) return read_texts(inputs);
  refuse("has " + std::to_string(inputs.size()) +
         " inputs; available are one of images, or texts: integers of tokens, and of a mask, types and positions");
}

std::vector<int64_t> Importer::shape_of(const OnnxValue& input) const {
  std::vector<int64_t> shape;
  for (const OnnxDimension& d : input.shape) shape.push_back(d.size);
  if (const auto given = request_.inputs.find(input.name); given != request_.inputs.end())
    shape.assign(given->second.begin(), given->second.end());
  return shape;
}

void Importer::read_images(const OnnxValue& input) {
  std::vector<int64_t> shape = shape_of(input);
  const bool is_float = input.type == static_cast<uint32_t>(OnnxType::kFloat);
  if (shape.size() != 4 || !is_float)
    return refuse("input " + json_shown(input.name) + ": must be images of FLOAT, [N,C,H,W]; has " +
                  std::to_string(shape.size()) + " dimensions and type " + std::to_string(input.type));
  for (size_t d = 1; d < 4; ++d) {
    if (shape[d] > 65535)
      return refuse("input " + json_shown(input.name) + ": has a side of " + std::to_string(shape[d]) +
                    "; must be at most 65535");
    if (shape[d] <= 0)
      return refuse("input " + json_shown(input.name) + ": its size is open; give --input " + input.name +
                    "=1,3,224,224, as it is");
  }
  const bool is_open = input.shape.empty() || input.shape[0].size <= 0;
  batch_ = shape[0] = is_open ? kOpenBatch : input.shape[0].size;
  if (!is_open && batch_ > kMaxBatch)
    return refuse("input " + json_shown(input.name) + ": has a batch of " + std::to_string(batch_) +
                  "; must be at most " + std::to_string(kMaxBatch));
  net_.graph["image"] = {shape[2], shape[3], shape[1]};
  ImportValue images;
  images.form = ImportForm::kTensor;
  images.view = TensorView::of(kNetImages, shape, {0, 2, 3, 1}, {shape[0], shape[2], shape[3], shape[1]});
  values_[input.name] = images;
}

// Reads the inputs of a net of texts. One input is the tokens. The names of the other inputs show
// what they are: a mask, types of tokens, or positions from 0 on.
void Importer::read_texts(const std::vector<const OnnxValue*>& inputs) {
  const auto named = [](const OnnxValue& input, std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](const char* word) { return input.name.find(word) != std::string::npos; });
  };
  const OnnxValue* tokens = nullptr;
  for (const OnnxValue* input : inputs) {
    const std::vector<int64_t> shape = shape_of(*input);
    if (shape.size() != 2)
      return refuse("input " + json_shown(input->name) + ": must be [N,T] of texts; has " +
                    std::to_string(shape.size()) + " dimensions");
    if (shape[1] > 0) texts_.length = shape[1];
    if (named(*input, {"mask", "type", "segment", "position"})) continue;
    if (tokens != nullptr)
      return refuse("inputs " + json_shown(tokens->name) + " and " + json_shown(input->name) +
                    ": one must be tokens, and others be named a mask, types, or positions");
    tokens = input;
  }
  if (tokens == nullptr) return refuse("has no input of tokens: each is named a mask, types, or positions");
  if (texts_.length == 0)
    return refuse("input " + json_shown(tokens->name) + ": the length of its texts is open; give --input " +
                  tokens->name + "=1,128, of as many tokens as each is cut or padded to");
  if (texts_.length > 65535)
    return refuse("input " + json_shown(tokens->name) + ": has texts of " + std::to_string(texts_.length) +
                  " tokens; must be at most 65535");
  const bool is_open = tokens->shape.empty() || tokens->shape[0].size <= 0;
  batch_ = texts_.texts = is_open ? kOpenTexts : tokens->shape[0].size;
  if (batch_ > kMaxBatch / texts_.length)
    return refuse("input " + json_shown(tokens->name) + ": has " + std::to_string(batch_) + " texts of " +
                  std::to_string(texts_.length) + " tokens; must be " + std::to_string(kMaxBatch) +
                  " tokens at most, or leave the batch open");
  for (const OnnxValue* input : inputs) {
    const std::vector<int64_t> shape = shape_of(*input);
    if (shape[1] > 0 && shape[1] != texts_.length)
      return refuse("input " + json_shown(input->name) + ": has texts of " + std::to_string(shape[1]) +
                    " tokens, and another of " + std::to_string(texts_.length));
    KnownNumbers numbers = text_mask(texts_);
    const bool are_positions = named(*input, {"position"}), are_types = named(*input, {"type", "segment"});
    if (input == tokens || (are_types && has_types_)) {
      values_[input->name] = text_input(input == tokens ? kNetTokens : kNetTypes);
    } else {
      if (are_positions || are_types) {
        numbers.of_texts = false;
        for (size_t i = 0; i < numbers.numbers.size(); ++i)
          numbers.numbers[i] = are_positions ? static_cast<double>(static_cast<int64_t>(i) % texts_.length) : 0;
      }
      values_[input->name] = constant_value(std::move(numbers));
    }
  }
}

ImportValue Importer::text_input(const char* name) const {
  const std::vector<int64_t> shape = {texts_.texts, texts_.length};
  ImportValue value;
  value.form = ImportForm::kTokens;
  value.view = TensorView::of(name, shape, {0, 1}, shape);
  return value;
}

bool Importer::set_pad(int64_t token) {
  if (!pad_) pad_ = token;
  return *pad_ == token;
}

// Returns a reduction's axes if they are known before any node is read; otherwise none.
std::vector<int64_t> Importer::axes_of(const OnnxNode& reduction) const {
  for (const OnnxAttribute& attribute : reduction.attributes) {
    if (attribute.name == "axes") return attribute.integers;
  }
  if (reduction.inputs.size() < 2) return {};
  const std::optional<KnownNumbers> known = known_early(reduction.inputs[1]);
  return known ? known->integers() : std::vector<int64_t>();
}

std::optional<KnownNumbers> Importer::known_early(const std::string& value) const {
  if (const ImportValue* listed = find(value); listed != nullptr) return known_of(*listed, true);
  const OnnxNode* constant = writer_of(value);
  const bool is_constant = constant != nullptr && constant->op == "Constant" && constant->attributes.size() == 1 &&
                           constant->attributes[0].tensor;
  return is_constant ? known_of(constant_value(*constant->attributes[0].tensor, false)) : std::nullopt;
}

void Importer::find_mode() {
  for (const OnnxNode& node : model_.nodes) {
    bool is_trained = node.domain.empty() && node.op == "BatchNormalization" && reprise::is_in_training(model_, node);
    if (node.domain.empty() && node.op == "Dropout" && node.inputs.size() > 2) {
      const std::optional<KnownNumbers> known = known_early(node.inputs[2]);
      is_trained = known && known->numbers.size() == 1 && known->numbers[0] != 0;
    }
    in_training_ = in_training_ || is_trained;
  }
}

// Returns the value that a node divides by its Euclidean length, row by row; "" if the node does
// something else.
std::string Importer::divided_by_length(const OnnxNode& node) const {
  if (node.op != "Div" || node.inputs.size() != 2) return "";
  const OnnxNode* length = writer_of(node.inputs[1]);
  const auto is_beside = [](const OnnxNode& each) {
    return each.op == "Expand" || each.op == "Clip" || each.op == "Max";
  };
  const OnnxNode* before = &node;  // writers are before their readers; other models are refused later
  while (length != nullptr && length < before && !length->inputs.empty() && is_beside(*length)) {
    before = length;
    length = writer_of(length->inputs[0]);
  }
  if (length == nullptr || length->op != "ReduceL2" || length->inputs.empty() || length->inputs[0] != node.inputs[0])
    return "";
  const std::vector<int64_t> axes = axes_of(*length);
  return axes == std::vector<int64_t>{1} || axes == std::vector<int64_t>{-1} ? node.inputs[0] : "";
}

bool Importer::compares_pairs() const {
  return request_.loss == "infonce_loss" || request_.loss == "cosine_loss" || request_.loss == "similarity_loss";
}

// Returns the outputs as text, with the shapes that the file states. Shapes help to distinguish
// heads whose names an exporter made up.
std::string Importer::outputs_text() const {
  std::string text;
  for (const OnnxValue& output : model_.outputs) {
    std::string shape;
    for (const OnnxDimension& side : output.shape)
      shape += (shape.empty() ? " [" : ",") + (side.size > 0 ? std::to_string(side.size) : "N");
    text += (text.empty() ? "" : ", ") + json_shown(output.name) + shape + (shape.empty() ? "" : "]");
  }
  return text;
}

// Finds the output. The model may end in a softmax, a sigmoid of labels or, for pairs, a division
// by the length. That op belongs to the loss, which reads the numbers before it.
void Importer::find_output() {
  std::vector<std::string> names;
  for (const OnnxValue& output : model_.outputs) names.push_back(output.name);
  const bool is_named = !request_.output.empty();
  if (is_named && std::count(names.begin(), names.end(), request_.output) == 0)
    return refuse("--model-output: " + json_shown(request_.output) + " is no output of the model, which has " +
                  outputs_text());
  if (!is_named && names.size() != 1)
    return refuse("has " + std::to_string(names.size()) + " outputs" +
                  (names.empty() ? "" : ", " + outputs_text() + "; --model-output NAME says which the net computes"));
  output_ = net_.output = is_named ? request_.output : names[0];
  const OnnxNode* last = writer_of(output_);
  if (last == nullptr || !last->domain.empty()) return;
  if (const std::string divided = compares_pairs() ? divided_by_length(*last) : ""; !divided.empty()) {
    net_.ending = last->op;
    output_ = divided;
  }
  if (last->inputs.size() != 1) return;
  const bool has_classes = request_.loss.empty() || request_.loss == "class_loss",
             ends_in_softmax = last->op == "Softmax" || last->op == "LogSoftmax";
  if (has_classes && ends_in_softmax) {
    NodeReader reader(*last, net_.refused);
    const auto opset = model_.opsets.find("");
    softmax_axis_ = reader.integer("axis", opset != model_.opsets.end() && opset->second < 13 ? 1 : -1);
    reader.finish();
  } else if (request_.loss != "binary_loss" || last->op != "Sigmoid") {
    return;
  }
  net_.ending = last->op;
  output_ = last->inputs[0];
}

// Returns for each node whether the output depends on it. Visits the nodes from the last to the
// first.
std::vector<bool> Importer::wanted_nodes() const {
  std::set<std::string> names = {output_};
  std::vector<bool> wanted(model_.nodes.size());
  for (size_t n = model_.nodes.size(); n-- > 0;) {
    const OnnxNode& node = model_.nodes[n];
    wanted[n] = std::any_of(node.outputs.begin(), node.outputs.end(),
                            [&](const std::string& output) { return names.count(output) > 0; });
    if (wanted[n]) names.insert(node.inputs.begin(), node.inputs.end());
  }
  return wanted;
}

// Computes the node if its inputs are known. A comparison has no gradient, so that its inputs may
// be parameters.
bool Importer::compute(NodeReader& reader) {
  static const std::set<std::string> kComparisons = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"};
  const bool compares = kComparisons.count(reader.node().op) > 0;
  std::vector<std::optional<KnownNumbers>> numbers;
  std::vector<const KnownNumbers*> inputs;
  std::vector<size_t> repeating;  // inputs that repeat along the batch, for which one sample is computed
  for (const std::string& input : reader.node().inputs) {
    const auto found = input.empty() ? values_.end() : values_.find(input);
    const bool is_rows = found != values_.end() && found->second.known && found->second.known->is_rows();
    if (found != values_.end() && found->second.repeats) repeating.push_back(numbers.size());
    numbers.push_back(found == values_.end() ? std::nullopt
                      : is_rows              ? std::optional(*found->second.known)
                                             : known_of(one_sample_of(found->second), compares));
    if (!input.empty() && !numbers.back()) return false;
  }
  for (const auto& each : numbers) inputs.push_back(each ? &*each : nullptr);
  std::optional<KnownNumbers> result = computed(reader, inputs);
  if (!result || reader.node().outputs.empty()) return false;
  if (!repeating.empty() && !repeats_with(reader, inputs, repeating, *result)) return false;
  for (const KnownNumbers* input : inputs) spend(input == nullptr ? 0 : input->numbers.size());
  spend(result->numbers.size());
  const ImportValue value = constant_value(std::move(*result));
  pass(reader, repeating.empty() ? value : repeated_value(value, batch_));
  return true;
}

void Importer::read_node(const OnnxNode& node) {
  NodeReader reader(node, net_.refused);
  const OnnxOp* found = nullptr;
  for (const OnnxOps* ops : {&image_ops(), &row_ops(), &pointwise_ops(), &layout_ops(), &text_ops()}) {
    for (const OnnxOp& op : *ops) found = node.domain.empty() && node.op == op.op ? &op : found;
  }
  if (!compute(reader)) {
    if (found == nullptr) {
      reader.refuse("the op is not available (yet)");
    } else {
      found->read(*this, reader);
    }
  }
  const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& input) {
    const ImportValue* value = find(input);
    return !input.empty() && value != nullptr && value->form == ImportForm::kUnknown;
  });
  // Refuses attributes that were not read. A node that was refused, or that reads a value of a
  // refused node, was not read completely.
  if (found != nullptr && !follows && !reader.failed()) reader.finish();
  for (const std::string& output : node.outputs) values_.try_emplace(output);
}

// Removes nodes that no node reads, because the layer that they are part of replaced them.
void Importer::leave_out_unread() {
  lay_alike();
  std::set<std::string> read;
  std::vector<bool> stays(nodes_.size());
  for (size_t n = nodes_.size(); n-- > 0;) {
    const std::string op = nodes_[n].at("op");
    stays[n] = n + 1 == nodes_.size() || op == "loss_head" || read.count(nodes_[n].at("name")) > 0;
    if (!stays[n]) continue;
    for (const json& input : nodes_[n].at("inputs")) read.insert(input.get<std::string>());
  }
  std::set<std::string> left;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (stays[n]) {
      net_.graph["nodes"].push_back(nodes_[n]);
    } else {
      left.insert(nodes_[n].at("name").get<std::string>());
    }
  }
  const auto is_left = [&](const std::string& tensor) {
    return left.count(tensor) > 0 || left.count(tensor.substr(0, tensor.rfind('.'))) > 0;
  };
  std::erase_if(net_.weights, [&](const ImportedTensor& weight) { return is_left(weight.name); });
  std::erase_if(net_.frozen, is_left);
}

// True if a tensor that several nodes read is one parameter. Exporters of ONNX also keep one of
// several equal tensors, for example of the biases of new layers, which are all zeros. So for
// numbers that are all equal tie_shared() decides: the same two nodes must also share another
// tensor.
bool Importer::is_shared(const ImportedTensor& weight) const {
  if (weight.tensor->is_trained) return true;  // the file states which tensor of the module this is
  const std::vector<float> numbers = numbers_of(file_, weight);
  return std::any_of(numbers.begin(), numbers.end(), [&](float number) { return number != numbers[0]; });
}

// Makes each tensor of the model that several nodes share one parameter of the net, whose gradients
// are added up. Frozen tensors need not be tied, because no step changes them.
void Importer::tie_shared() {
  const auto node_of = [](const std::string& weight) { return weight.substr(0, weight.rfind('.')); };
  std::map<const OnnxTensor*, const ImportedTensor*> first;
  std::map<const OnnxTensor*, bool> are_shared;
  std::map<std::string, std::string> tied, alike;
  std::set<std::pair<std::string, std::string>> sharing;
  for (const ImportedTensor& weight : net_.weights) {
    if (net_.frozen.count(weight.name) > 0 || request_.untie) continue;
    const auto [entry, is_new] = first.try_emplace(weight.tensor, &weight);
    const ImportedTensor& other = *entry->second;
    if (is_new) continue;
    const auto known = are_shared.find(weight.tensor);
    const bool shared = known != are_shared.end() ? known->second : (are_shared[weight.tensor] = is_shared(weight));
    if (shared && is_statistic(weight.name) != is_statistic(other.name)) {
      refuse("tensor " + json_shown(weight.tensor->name) + ": is read by " + json_shown(other.name) + " and by " +
             json_shown(weight.name) + ", of which one is a running statistic and the other trained");
    } else if (other.shape == weight.shape && other.walk == weight.walk) {
      (shared ? tied : alike)[weight.name] = other.name;
      if (shared) sharing.emplace(node_of(weight.name), node_of(other.name));
      if (shared && !weight.tensor->is_trained) note(Finding::kTied, weight.name);
    } else if (shared) {
      refuse("tensor " + json_shown(weight.tensor->name) + ": is read by " + json_shown(other.name) + " as " +
             json(other.shape).dump() + " and by " + json_shown(weight.name) + " as " + json(weight.shape).dump() +
             (other.shape == weight.shape ? " in another order" : "") + ", which are two layers' (yet)");
    }
  }
  for (const auto& [name, other] : alike) {
    if (sharing.count({node_of(name), node_of(other)}) > 0) {
      tied[name] = other;
    } else {
      note(Finding::kAlike, name);
    }
  }
  std::erase_if(net_.weights, [&](const ImportedTensor& weight) { return tied.count(weight.name) > 0; });
  if (!tied.empty()) net_.graph["tied"].update(tied);
}

// Returns PyTorch's names: the names of the model's tensors if they are the module's, else names
// that follow from the nodes. If an exporter joined several tensors, the layer after which the
// tensor is named keeps the name.
std::vector<std::string> Importer::stored_names(const std::vector<ImportedTensor*>& weights) const {
  const auto layer_of = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::map<const OnnxTensor*, size_t> uses;
  std::set<std::string> attentions, taken;  // attentions: layers of nn.MultiheadAttention; taken: names in use
  for (const ImportedTensor* weight : weights) {
    const std::string& name = weight->tensor->name;
    if (name.ends_with("in_proj_weight") || name.ends_with("in_proj_bias")) attentions.insert(layer_of(weight->name));
    ++uses[weight->tensor];
  }
  for (const OnnxTensor& constant : model_.constants) {
    if (constant.name.ends_with(".out_proj.weight")) attentions.insert(layer_of(layer_of(constant.name)));
  }
  const auto of_tensor = [](const ImportedTensor& weight) { return weight.tensor->name; };
  const auto of_layer = [&](const ImportedTensor& weight) {
    const std::string layer = layer_of(weight.name);
    const bool is_packed = places_.count(layer) > 0 && attentions.count(layer) > 0 &&
                           (weight.name == layer + ".weight" || weight.name == layer + ".bias");
    return is_packed ? layer + ".in_proj_" + weight.name.substr(layer.size() + 1) : weight.name;
  };
  const auto is_modules = [](const ImportedTensor& weight) {
    return !weight.tensor->is_made() && !is_exporters_name(weight.tensor->name);
  };
  std::vector<std::string> names(weights.size());
  const auto name_where = [&](const auto& applies, const auto& name_of) {
    for (size_t n = 0; n < names.size(); ++n) {
      if (!names[n].empty() || !applies(*weights[n])) continue;
      const std::string name = name_of(*weights[n]);
      if (taken.insert(name).second) names[n] = name;
    }
  };
  const auto is_any = [](const ImportedTensor&) { return true; };
  name_where(
      [&](const auto& weight) {
        return is_modules(weight) && (uses[weight.tensor] == 1 || of_layer(weight) == weight.tensor->name);
      },
      of_tensor);
  name_where(is_any, of_layer);
  name_where(is_modules, of_tensor);
  for (size_t n = 0; n < names.size(); ++n) {
    if (!names[n].empty()) continue;
    names[n] = weights[n]->name;
    while (!taken.insert(names[n]).second) names[n] += "_";
  }
  return names;
}

// Returns the form in which the module stores the weight. It is the form of the model's tensor if
// this tensor has the module's name. A tensor that lost its name was transposed or got axes.
StoredForm Importer::form_of(const ImportedTensor& weight, const std::string& name) const {
  struct Axis {
    int64_t stride, size;
    size_t place;  // index in weight.walk
  };
  StoredForm form;
  form.own = form.shape = weight.shape;
  std::vector<Axis> axes;
  int64_t elements = 1;
  bool is_in_order = true;
  for (const ImportedTensor::Axis& axis : weight.walk) {
    elements *= axis.size;
    if (axis.size == 1) continue;
    is_in_order = is_in_order && (axes.empty() || axes.back().stride > axis.stride);
    axes.push_back({axis.stride, axis.size, axes.size()});
  }
  std::vector<uint64_t> shape = weight.tensor->shape;
  int64_t all = 1;
  for (size_t n = shape.size(); n-- > 0;) {  // in a new head, the axis of the classes has another size
    const int64_t stride = all, side = static_cast<int64_t>(shape[n]);
    all *= side;
    const auto is_resized = [&](const Axis& axis) {
      return axis.stride == stride && axis.size != side && side == head_.channels && axis.size == request_.classes;
    };
    if (weight.is_of_head && std::any_of(axes.begin(), axes.end(), is_resized))
      shape[n] = static_cast<uint64_t>(request_.classes);
  }
  int64_t held = 1;
  for (const uint64_t side : shape) held *= static_cast<int64_t>(side);
  const bool is_named = name == weight.tensor->name,
             is_signal = weight.shape.size() == 4 && shape.size() == 3 && is_in_order;
  if (weight.tensor->is_made() || elements != held || !(is_named || is_signal)) return form;
  form.shape = shape;
  if (shape.empty()) form.sides = {1}, form.order = {0};
  if (is_in_order) return form;
  std::vector<Axis> sorted = axes;
  std::sort(sorted.begin(), sorted.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  form.order.resize(axes.size());
  for (size_t n = 0; n < sorted.size(); ++n) {
    form.sides.push_back(static_cast<uint64_t>(sorted[n].size));
    form.order[sorted[n].place] = n;
  }
  return form;
}

// Gives parameters the names and forms of the module's files of weights.
void Importer::name_as_stored() {
  std::vector<ImportedTensor*> weights;
  for (std::vector<ImportedTensor>* list : {&net_.weights, &net_.drawn}) {
    for (ImportedTensor& weight : *list) {
      weight.is_of_head = is_of_head(weight);
      weights.push_back(&weight);
    }
  }
  const std::vector<std::string> names = stored_names(weights);
  std::map<std::string, std::string> renamed;
  for (size_t n = 0; n < names.size(); ++n) {
    ImportedTensor& weight = *weights[n];
    const std::string own = weight.name, &name = names[n];
    weight.form = form_of(weight, name);
    json stored = json::object();
    if (name != own) stored["name"] = name;
    if (!weight.form.shape.empty() && (weight.form.shape != weight.shape || !weight.form.sides.empty()))
      stored["shape"] = weight.form.shape;
    if (!weight.form.sides.empty()) stored["sides"] = weight.form.sides, stored["order"] = weight.form.order;
    if (!stored.empty()) net_.graph["stored"][own] = stored;
    if (name != own) weight.form.before.push_back(own);
    const size_t dot = own.rfind('.');
    const auto older = dot == std::string::npos ? older_names_.end() : older_names_.find(own.substr(0, dot));
    if (older != older_names_.end()) weight.form.before.push_back(older->second + own.substr(dot));
    renamed[own] = weight.name = name;
  }
  for (ImportedTensor& copy : net_.copies) {
    if (const auto found = renamed.find(copy.name); found != renamed.end()) copy.name = found->second;
  }
  std::set<std::string> frozen;
  for (const std::string& name : net_.frozen) frozen.insert(renamed.count(name) > 0 ? renamed[name] : name);
  net_.frozen = frozen;
  net_.findings.rename(renamed);
}

ImportedNet net_of_onnx(const OnnxFile& file, const ImportRequest& request) {
  ImportedNet net = Importer(file, request, true).import();
  if (net.graph.contains("tokens")) net = Importer(file, request, false).import();
  const std::string open = std::to_string(kOpenBatch);
  for (std::string& line : net.refused) {  // write an open batch as people do: [N,C,H,W]
    for (size_t at = line.find(open); at != std::string::npos; at = line.find(open, at))
      line.replace(at, open.size(), "N");
  }
  return net;
}

namespace {
std::vector<float> finite_numbers_of(const OnnxFile& file, const OnnxTensor& tensor) {
  std::vector<float> numbers = file.floats(tensor);
  if (std::all_of(numbers.begin(), numbers.end(), [](float number) { return std::isfinite(number); })) return numbers;
  throw UserError(file.path() + ": tensor " + json_shown(tensor.name) + ": holds what is not finite");
}
}  // namespace

std::vector<float> stored_numbers_of(const OnnxFile& file, const ImportedTensor& weight) {
  return weight.form.sides.empty() ? numbers_of(file, weight) : finite_numbers_of(file, *weight.tensor);
}

std::vector<float> numbers_of(const OnnxFile& file, const ImportedTensor& weight) {
  std::vector<float> stored = finite_numbers_of(file, *weight.tensor);
  int64_t stride = 1;
  bool is_in_order = true;
  for (size_t axis = weight.walk.size(); axis-- > 0; stride *= weight.walk[axis].size)
    is_in_order = is_in_order && weight.walk[axis].stride == stride;
  if (is_in_order) return stored;
  std::vector<float> numbers(stored.size());
  std::vector<int64_t> digits(weight.walk.size());
  int64_t at = 0;
  for (float& number : numbers) {
    number = stored[static_cast<size_t>(at)];
    for (size_t axis = digits.size(); axis-- > 0;) {
      const ImportedTensor::Axis& a = weight.walk[axis];
      at += a.stride;
      if (++digits[axis] < a.size) break;
      at -= a.size * a.stride;
      digits[axis] = 0;
    }
  }
  return numbers;
}

}  // namespace reprise
