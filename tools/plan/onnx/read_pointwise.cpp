// Ops of ONNX that work element by element, on one value or on two of which one may be broadcast.
// Exporters write GELU, SiLU, hardswish, Mish and the layers of norms.h as chains of them.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "tools/files/formats/json_text.h"
#include "tools/plan/onnx/importer.h"
#include "tools/plan/onnx/norms.h"
#include "tools/plan/onnx/powers.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr double kRootHalf = 0.70710678118654752;
bool is_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// ---- of one value ----

// Returns a function of a parameter alone as a value. Its nodes are appended when the value is
// read.
std::optional<ImportValue> function_of_parameter(const ImportValue& x, const json& node) {
  if (!x.is_constant() || x.tensor == nullptr || !x.is_parameter) return std::nullopt;
  ImportValue result = x;
  constexpr size_t kMaxFunctions = 64;
  if (x.functions.size() == kMaxFunctions) return std::nullopt;
  result.form = ImportForm::kOfParameter;
  result.functions.push_back(node);
  return result;
}
bool is_of_parameter(Importer& net, NodeReader& reader, const ImportValue& x, const json& node) {
  const auto result = function_of_parameter(x, node);
  if (result) net.set(reader, *result);
  return result.has_value();
}

void append_unary(Importer& net, NodeReader& reader, const json& node) {
  const ImportValue value = net.value(reader, 0);
  if (value.form == ImportForm::kUnknown || reader.failed() || is_of_parameter(net, reader, value, node)) return;
  const auto x = net.whole(reader, value);
  if (x && !reader.failed()) net.set_tensor(reader, net.append(node, net.name_of(reader.node()), {x->node}, *x));
}

void read_relu(Importer& net, NodeReader& reader) { append_unary(net, reader, {{"op", "relu"}}); }
void read_sigmoid(Importer& net, NodeReader& reader) { append_unary(net, reader, {{"op", "sigmoid"}}); }
void read_tanh(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  if (!is_gelu_argument(x)) return append_unary(net, reader, {{"op", "tanh"}});
  x.form = ImportForm::kErf;
  x.by_tanh = true;
  net.set(reader, x);
}
void read_softplus(Importer& net, NodeReader& reader) { append_unary(net, reader, {{"op", "softplus"}}); }
void read_mish(Importer& net, NodeReader& reader) { append_unary(net, reader, {{"op", "mish"}}); }
void read_hardswish(Importer& net, NodeReader& reader) { append_unary(net, reader, {{"op", "hardswish"}}); }
void read_leaky_relu(Importer& net, NodeReader& reader) {
  append_unary(net, reader, {{"op", "leaky_relu"}, {"slope", reader.number("alpha", 0.01)}});
}
void read_elu(Importer& net, NodeReader& reader) {
  append_unary(net, reader, {{"op", "elu"}, {"alpha", reader.number("alpha", 1)}});
}
void read_gelu(Importer& net, NodeReader& reader) {
  const std::string form = reader.text("approximate", "none");
  if (form != "none" && form != "tanh")
    reader.refuse("approximate is " + json_shown(form) + "; available are \"none\" and \"tanh\"");
  append_unary(net, reader, {{"op", "gelu"}, {"tanh", form == "tanh"}});
}
void read_hardsigmoid(Importer& net, NodeReader& reader) {
  const double alpha = reader.number("alpha", 0.2), beta = reader.number("beta", 0.5);
  if (!is_near(alpha, 1.0 / 6) || beta != 0.5)
    reader.refuse("alpha is " + std::to_string(alpha) + " and beta " + std::to_string(beta) +
                  "; available are 1/6 and 0.5");
  append_unary(net, reader, {{"op", "hardsigmoid"}});
}

// Returns an input that must be one number, known before the net runs.
std::optional<double> number_of(Importer& net, NodeReader& reader, size_t n) {
  const auto given = net.known(reader, n);
  if (given && given->numbers.size() == 1) return given->numbers[0];
  if (given)
    reader.refuse("input " + std::to_string(n) + " must be one number, not " + std::to_string(given->numbers.size()));
  return std::nullopt;
}

// Appends a function of x as a node of its own.
TensorView append_function(Importer& net, NodeReader& reader, const TensorView& x, const json& node) {
  return net.append(node, net.name_of(reader.node()), {x.node}, x);
}

// Clips between two bounds, each of which may be infinite. One node is appended for each finite
// bound, and one node for ReLU and ReLU6.
void append_clip(Importer& net, NodeReader& reader, double minimum, double maximum) {
  constexpr double kNone = 3e38;
  if (minimum == 0 && maximum == 6) return append_unary(net, reader, {{"op", "relu6"}});
  if (minimum == 0 && maximum > kNone) return append_unary(net, reader, {{"op", "relu"}});
  if (minimum < -kNone && maximum > kNone) return net.pass(reader, net.value(reader, 0));
  if (!(minimum <= maximum))
    reader.refuse("clips to " + std::to_string(minimum) + " and " + std::to_string(maximum) +
                  "; the first must be the smaller");
  const json above = {{"op", "at_least"}, {"bound", minimum}}, below = {{"op", "at_most"}, {"bound", maximum}};
  if (maximum > kNone) return append_unary(net, reader, above);
  if (minimum < -kNone) return append_unary(net, reader, below);
  const auto x = net.tensor(reader, 0);
  if (x && !reader.failed())
    net.set_tensor(reader, append_function(net, reader, append_function(net, reader, *x, above), below));
}
void read_clip(Importer& net, NodeReader& reader) {
  double limits[2] = {reader.number("min", -INFINITY), reader.number("max", INFINITY)};
  for (size_t n = 0; n < 2; ++n) {
    if (!reader.has_input(n + 1)) continue;
    if (const auto given = number_of(net, reader, n + 1)) limits[n] = *given;
  }
  if (!reader.failed()) append_clip(net, reader, limits[0], limits[1]);
}
// Reads the larger, or the smaller, of a value and a number.
void read_limit(Importer& net, NodeReader& reader, bool is_minimum) {
  if (reader.node().inputs.size() != 2)
    return reader.refuse("has " + std::to_string(reader.node().inputs.size()) + " inputs; available are two");
  const auto limit = number_of(net, reader, 1);
  if (limit) append_clip(net, reader, is_minimum ? *limit : -INFINITY, is_minimum ? INFINITY : *limit);
}
void read_max(Importer& net, NodeReader& reader) { read_limit(net, reader, true); }
void read_min(Importer& net, NodeReader& reader) { read_limit(net, reader, false); }

void read_erf(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  if (x.form == ImportForm::kUnknown) return;
  if (x.form != ImportForm::kTensor || !is_near(x.factor, kRootHalf))
    return reader.refuse("is available within a GELU alone, of x / sqrt(2)");
  x.form = ImportForm::kErf;
  net.set(reader, x);
}

// Appends `times` op(f x), where op(f x) is a multiple of op(x), so that no node multiplies x by f
// first.
void append_of_multiple(Importer& net, NodeReader& reader, const ImportValue& value, const char* op, double times) {
  ImportValue x = value;
  if (times == 1 && is_of_parameter(net, reader, x, {{"op", op}})) return;
  const double factor = x.form == ImportForm::kTensor ? std::exchange(x.factor, 1) : 1;
  const auto whole = net.whole(reader, x);
  if (!whole) return;
  const TensorView y = append_function(net, reader, *whole, {{"op", op}});
  net.set(reader, tensor_value(y, times * (std::string(op) == "sqrt" ? std::sqrt(factor) : 1 / factor)));
}
void append_sqrt(Importer& net, NodeReader& reader, const ImportValue& x) {
  if (x.form == ImportForm::kVariance) {
    ImportValue deviation = x;
    deviation.form = ImportForm::kDeviation;
    return net.set(reader, deviation);
  }
  if (x.form == ImportForm::kTensor && x.factor < 0)
    return reader.refuse("takes the root of a value times a number below 0");
  append_of_multiple(net, reader, x, "sqrt", 1);
}
// Appends times / x.
void append_reciprocal(Importer& net, NodeReader& reader, const ImportValue& x, double times) {
  if (x.form == ImportForm::kDeviation && times == 1) {
    ImportValue inverse = x;
    inverse.form = ImportForm::kInverse;
    return net.set(reader, inverse);
  }
  if (x.form == ImportForm::kTensor && x.factor == 0) return reader.refuse("divides by 0");
  append_of_multiple(net, reader, x, "reciprocal", times);
}
void read_sqrt(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  if (x.form != ImportForm::kUnknown) append_sqrt(net, reader, x);
}
void read_reciprocal(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  if (x.form != ImportForm::kUnknown) append_reciprocal(net, reader, x, 1);
}
void read_exp(Importer& net, NodeReader& reader) { append_unary(net, reader, {{"op", "exp"}}); }
void read_neg(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  if (x.form == ImportForm::kUnknown || is_of_parameter(net, reader, x, {{"op", "scale"}, {"factor", -1}})) return;
  const auto whole = net.settled(reader, x);
  if (!whole) return;
  if (whole->form != ImportForm::kTensor) return reader.refuse(std::string("is the negative of ") + form_text(x.form));
  ImportValue negative = *whole;
  negative.factor = -negative.factor;
  net.pass(reader, negative);
}

// Reads the comparison in softplus as one exporter writes it: the result is x where x is above a
// limit, which must be 20 or more.
void read_greater(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  const auto limit = net.known(reader, 1);
  if (x.form == ImportForm::kUnknown || !limit) return;
  if (x.form != ImportForm::kTensor || x.factor != 1 || limit->numbers.size() != 1 || limit->numbers[0] < 20)
    return reader.refuse("is available within a softplus alone");
  x.form = ImportForm::kIsLarge;
  net.set(reader, x);
}
void read_where(Importer& net, NodeReader& reader) {
  const ImportValue is_large = net.value(reader, 0), x = net.value(reader, 1), softplus = net.value(reader, 2);
  if (is_large.form == ImportForm::kUnknown || x.form == ImportForm::kUnknown || softplus.form == ImportForm::kUnknown)
    return;
  if (is_filled_scores(net, reader)) return;
  const json* node = softplus.form == ImportForm::kTensor ? net.node_called(softplus.view.node) : nullptr;
  const bool is_of_x =
      is_large.form == ImportForm::kIsLarge && is_large.view.is_same(x.view) && softplus.view.is_laid_as(x.view);
  const bool is_softplus = node != nullptr && is_of_x && x.factor == 1 && softplus.factor == 1 &&
                           node->at("op") == "softplus" && node->at("inputs")[0] == x.view.node;
  if (!is_softplus) return reader.refuse("is available within a softplus and on the scores of an attention alone");
  net.pass(reader, softplus);
}

// Reads torch's Detach, which ONNX does not have (aten_graph.h). A parameter that is only read
// detached is not trained.
void read_detach(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  if (x.form == ImportForm::kUnknown) return;
  if (x.form == ImportForm::kConstant && x.is_parameter) {
    if (net.only_reader_of(reader.node().inputs[0]) != &reader.node())
      return reader.refuse("detaches a parameter that is read with its gradient, too, which is not available (yet)");
    ImportValue frozen = x;
    frozen.is_detached = true;
    return net.pass(reader, frozen);
  }
  if (x.form == ImportForm::kOfParameter)
    return reader.refuse("detaches a function of a parameter, which is not available (yet)");
  if (x.is_constant() || x.form == ImportForm::kTokens) return net.pass(reader, x);
  const auto whole = net.whole(reader, x);
  if (whole && !reader.failed())
    net.set_tensor(reader, net.append({{"op", "detach"}}, net.name_of(reader.node()), {whole->node}, *whole));
}

void read_dropout(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  double ratio = reader.number("ratio", 0.5);
  reader.integer("seed", 0);
  if (reader.has_input(1)) {
    if (const auto given = number_of(net, reader, 1)) ratio = *given;
  }
  if (reader.has_input(2)) net.known(reader, 2);  // the training mode, which does not matter here
  if (reader.failed() || x.form == ImportForm::kUnknown) return;
  if (ratio == 0) return net.pass(reader, x);
  if (x.form == ImportForm::kWeights) {
    x.dropout = ratio;
    return net.set(reader, x);
  }
  append_unary(net, reader, {{"op", "dropout"}, {"p", ratio}});
}

void read_identity(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  if (x.form != ImportForm::kUnknown) net.pass(reader, x);
}

// Reads a cast between types of floats, which changes nothing: the recipe sets how numbers are
// stored.
void read_cast(Importer& net, NodeReader& reader) {
  const auto to = static_cast<OnnxType>(reader.integer("to", 0));
  if (net.value(reader, 0).form == ImportForm::kUnknown) return;
  if (to != OnnxType::kFloat && to != OnnxType::kHalf && to != OnnxType::kBfloat16 && to != OnnxType::kDouble)
    return reader.refuse("casts a value of the net to integers");
  read_identity(net, reader);
}

// Reads a cast to the type of another value, which is a float if the net computes it.
void read_cast_like(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  const ImportValue like = net.value(reader, 1);
  if (x.form == ImportForm::kUnknown || like.form == ImportForm::kUnknown) return;
  const auto numbers = net.known_of(x), of_like = net.known_of(like);
  if ((of_like && of_like->is_integer) || like.form == ImportForm::kTokens)
    return reader.refuse("casts to integers, which is not available (yet)");
  if (!numbers) return net.pass(reader, x);
  KnownNumbers cast = *numbers;
  cast.is_integer = false;
  net.pass(reader, constant_value(std::move(cast)));
}

// ---- stochastic depth ----

// Reads one random number for each sample.
void read_uniform(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  if (reader.number("high", 1) != 1 || reader.number("low", 0) != 0) reader.refuse("is available between 0 and 1");
  reader.integer("dtype", 1);
  reader.number("seed", 0);
  if (reader.failed() || x.form == ImportForm::kUnknown) return;
  if (!x.has_own_shape())
    return reader.refuse(std::string("reads ") + form_text(x.form) + ", which is available within a layer alone");
  const std::vector<int64_t> shape = x.view.shape();
  const bool is_by_sample = !shape.empty() && shape[0] == net.batch() &&
                            std::all_of(shape.begin() + 1, shape.end(), [](int64_t n) { return n == 1; });
  if (!is_by_sample)
    return reader.refuse("is available with one number for each sample, as stochastic depth has it, not of " +
                         json(shape).dump());
  ImportValue uniform;
  uniform.form = ImportForm::kUniform;
  net.set(reader, uniform);
}

void read_less(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  const ImportValue y = net.value(reader, 1);
  if (x.form == ImportForm::kUnknown || y.form == ImportForm::kUnknown) return;
  const auto limit = net.known_scalar(y);
  if (x.form != ImportForm::kUniform || !limit || *limit <= 0 || *limit > 1)
    return reader.refuse("is available within stochastic depth alone");
  x.form = ImportForm::kKept;
  x.kept = *limit;
  net.set(reader, x);
}

bool is_drop_path(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& kept) {
  if (x.form != ImportForm::kTensor || kept.form != ImportForm::kKept || !is_near(kept.factor * kept.kept, 1))
    return false;
  const auto whole = net.whole(reader, x);
  if (!whole) return true;
  net.note_joined("drop_path");
  net.set_tensor(reader, net.append({{"op", "drop_path"}, {"p", shortest(1 - kept.kept)}}, net.name_of(reader.node()),
                                    {whole->node}, *whole));
  return true;
}

// ---- of two values ----

// Two values of which b is broadcast to a. `pairs` has the ids of factors that a and b share: the
// id in a, then the id in b.
struct BroadcastViews {
  TensorView a, b;
  std::vector<std::pair<int, int>> pairs;
  bool has(int id) const {
    return std::any_of(pairs.begin(), pairs.end(), [id](const auto& pair) { return pair.first == id; });
  }
};

// Pairs the factors of axis `axis` of a with the factors of axis `axis_of_b` of b, and splits them
// until their sizes are equal. Returns false if that is not possible.
bool pair_axis(BroadcastViews& both, size_t axis, size_t axis_of_b) {
  for (size_t n = 0; n < both.a.axes[axis].size() || n < both.b.axes[axis_of_b].size(); ++n) {
    if (n >= both.a.axes[axis].size() || n >= both.b.axes[axis_of_b].size()) return false;
    const int p = both.a.axes[axis][n], q = both.b.axes[axis_of_b][n];
    const int64_t of_a = both.a.size(p), of_b = both.b.size(q);
    if (of_a != of_b && (p == TensorView::kBatch || q == TensorView::kBatch)) return false;
    if (of_b > 1 && of_a > of_b && of_a % of_b == 0) both.a.cut(p, of_b);
    else if (of_a > 1 && of_b > of_a && of_b % of_a == 0) both.b.cut(q, of_a);
    else if (of_a != of_b) return false;
    both.pairs.emplace_back(p, q);
  }
  return true;
}

std::optional<BroadcastViews> broadcast(NodeReader& reader, const TensorView& a, const TensorView& b) {
  const std::vector<int64_t> of_a = a.shape(), of_b = b.shape();
  const auto refuse = [&] {
    return reader.refuse("of " + json(of_a).dump() + " and " + json(of_b).dump() +
                         ": must be of equal shapes, or one must be broadcast to the other"),
           std::nullopt;
  };
  BroadcastViews both = {a, b, {}};
  if (of_b.size() > of_a.size()) return refuse();
  for (size_t back = 1; back <= of_b.size(); ++back) {
    const size_t axis = of_a.size() - back, axis_of_b = of_b.size() - back;
    const bool is_one = both.b.axes[axis_of_b].empty();
    if (!is_one && !pair_axis(both, axis, axis_of_b)) return refuse();
  }
  return both;
}

bool is_wider(const TensorView& a, const TensorView& b) {
  const auto elements = [](const TensorView& v) {
    double n = 1;
    for (const Factor& factor : v.memory) n *= static_cast<double>(factor.size);
    return n;
  };
  return elements(a) > elements(b) || (elements(a) == elements(b) && a.axes.size() >= b.axes.size());
}

// Returns a shape for `a` in which each dimension is entirely in b, or entirely broadcast. Returns
// a's own shape if it has this property.
std::vector<int64_t> common_shape(const BroadcastViews& both) {
  const auto& memory = both.a.memory;
  std::vector<int64_t> grouped;
  for (size_t n = 0; n < memory.size(); ++n) {
    const bool goes_on = n > 1 && both.has(memory[n].id) == both.has(memory[n - 1].id);
    goes_on ? grouped.back() *= memory[n].size : (grouped.push_back(memory[n].size), 0);
  }
  size_t next = 0;
  for (const int64_t dimension : both.a.written) {
    int64_t rest = dimension;
    const size_t first = next;
    while (next < memory.size() && (rest > 1 || memory[next].size == 1)) {
      if (rest % memory[next].size != 0 || both.has(memory[next].id) != both.has(memory[first].id)) return grouped;
      rest /= memory[next++].size;
    }
    if (rest != 1) return grouped;
  }
  return next == memory.size() ? both.a.written : grouped;
}

// Returns the shape of b that fits `shape`, a shape of a: 1 in each dimension along which b is
// broadcast.
std::vector<int64_t> shape_beside(const BroadcastViews& both, const std::vector<int64_t>& shape) {
  std::vector<int64_t> result;
  size_t next = 0;
  for (const int64_t dimension : shape) {
    int64_t rest = dimension;
    bool is_in_b = false;
    while (next < both.a.memory.size() && (rest > 1 || both.a.memory[next].size == 1)) {
      is_in_b = is_in_b || both.has(both.a.memory[next].id);
      rest /= both.a.memory[next++].size;
    }
    result.push_back(is_in_b ? dimension : 1);
  }
  return result;
}

// Keeps only one sample's numbers of b, which all samples share.
void leave_out_batch(BroadcastViews& both) {
  both.b = both.b.of_one_sample();
  std::erase_if(both.pairs, [](const auto& pair) { return pair.second == TensorView::kBatch; });
}

std::optional<ImportValue> two_as_one(Importer& net, NodeReader& reader, const char* op, const TensorView& a,
                                      const ImportValue& given, double factor) {
  const bool is_transposed =
      given.form == ImportForm::kTensor && net.has_once(a.node) && !net.has_once(given.view.node);
  // The value that all samples share must be the second.
  if (is_transposed) return two_as_one(net, reader, op, given.view, tensor_value(a), factor);
  ImportValue second = net.repeating(given, a);
  if (second.form == ImportForm::kTensor && net.has_once(second.view.node))
    second.view.memory[0].size = a.memory[0].size;
  auto both = broadcast(reader, a, second.view);
  if (!both) return std::nullopt;
  if (second.repeats) leave_out_batch(*both);
  std::vector<int> ids;
  for (const Factor& factor_of_a : both->a.memory) {
    for (const auto& [p, q] : both->pairs) {
      if (p == factor_of_a.id) ids.push_back(q);
    }
  }
  const std::vector<int64_t> shape = common_shape(*both);
  std::vector<int64_t> beside = shape_beside(*both, shape);
  if (shape.size() > 4) return reader.refuse("is broadcast along axes that lie too far apart"), std::nullopt;
  std::string other;
  if (second.is_constant()) {
    while (beside.size() > 1 && beside.front() == 1) beside.erase(beside.begin());
    if (beside.size() == shape.size())
      return reader.refuse("has numbers of its own for each sample of a batch, which is not available"), std::nullopt;
    ImportValue constant = net.stored(reader.node(), one_sample_of(second));
    if (constant.tensor == nullptr) {
      return reader.refuse("reads numbers that the model computes, too many of them, or from the mask of padding"),
             std::nullopt;
    }
    constant.view = both->b;
    constant.meets_input = net.is_before_weights(a.node);
    other = net.learned(reader.node(), constant, ids, beside);
  } else {
    if (std::count(ids.begin(), ids.end(), TensorView::kBatch) == 0)
      return reader.refuse("is broadcast along the batch, which is not available"), std::nullopt;
    const auto ordered = net.in_order(reader, both->b, ids);
    if (!ordered) return std::nullopt;
    other = net.written_as(*ordered, beside).node;
  }
  const TensorView first = net.written_as(both->a, shape);
  if (reader.failed()) return std::nullopt;
  ImportValue result;
  result.form = ImportForm::kTensor;
  result.view = net.append({{"op", op}}, net.name_of(reader.node()), {first.node, other}, first);
  result.factor = factor;
  return result;
}

// Makes a constant the bias of a linear layer without one, if it is only added to each row of that
// layer.
bool becomes_bias(Importer& net, NodeReader& reader, const ImportValue& x, size_t place, const ImportValue& constant) {
  json* layer = net.node_called(x.view.node);
  if (layer == nullptr || layer->at("op") != "linear" || layer->at("bias") == true || constant.tensor == nullptr ||
      x.factor != 1)
    return false;
  const std::vector<int64_t> shape = constant.view.shape();
  const int64_t features = layer->at("features");
  if (!constant.is_parameter && !(features == 1 && !constant.tensor->name.empty())) return false;
  const std::vector<int>& last = x.view.axes.back();
  const bool is_last = features == 1 ? last.empty() : last.size() == 1 && x.view.memory.back().id == last[0];
  if (shape != std::vector<int64_t>{features} || !is_last) return false;
  // The input must be the product's own output, which only this sum reads.
  const std::string& name = reader.node().inputs[place];
  const OnnxNode* product = net.writer_of(name);
  if (net.only_reader_of(name) != &reader.node() || product == nullptr ||
      (product->op != "MatMul" && product->op != "Gemm"))
    return false;
  (*layer)["bias"] = true;
  net.add_weight(x.view.node + ".bias", constant);
  net.pass(reader, x);
  return true;
}

// Returns the function that x times the gate computes: "silu", "hardswish" or "mish"; "" for none.
std::string gated_by(Importer& net, const TensorView& x, const TensorView& gate) {
  const json* node = net.node_called(gate.node);
  if (node == nullptr || node->at("inputs").size() != 1 || !x.is_laid_as(gate)) return "";
  const auto reads_x = [&](const json& each) {
    return each.at("inputs").size() == 1 && each.at("inputs")[0] == x.node;
  };
  if (reads_x(*node) && node->at("op") == "sigmoid") return "silu";
  if (reads_x(*node) && node->at("op") == "hardsigmoid") return "hardswish";
  const json* below = node->at("op") == "tanh" ? net.node_called(node->at("inputs")[0]) : nullptr;
  return below != nullptr && below->at("op") == "softplus" && reads_x(*below) ? "mish" : "";
}

// Returns the value of y if y is a single known number and does not change the shape of x.
std::optional<double> number_beside(const Importer& net, const ImportValue& x, const ImportValue& y) {
  return y.view.axes.size() <= x.view.axes.size() ? net.known_scalar(y) : std::nullopt;
}

// Tests whether the node multiplies x by a number, or divides x by it; if so, sets the node's
// output and returns true. The functions below do the same for the case that their name states.
bool is_scaled_by_number(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& y, bool divides) {
  const auto number = x.form == ImportForm::kKept ? net.known_scalar(y) : number_beside(net, x, y);
  const bool is_zero = divides && number && *number == 0;
  if (number && !is_zero &&
      is_of_parameter(net, reader, x, {{"op", "scale"}, {"factor", divides ? 1 / *number : *number}}))
    return true;
  if (number && !is_zero && x.form == ImportForm::kErfTerm) {
    ImportValue term = x;
    term.times *= divides ? 1 / *number : *number;
    return net.set(reader, term), true;
  }
  const bool may_scale = x.form == ImportForm::kTensor || x.form == ImportForm::kScores || x.form == ImportForm::kKept;
  if (!number || !may_scale || (divides && *number == 0)) return false;
  ImportValue scaled = x;
  scaled.factor *= divides ? 1 / *number : *number;
  if (std::abs(scaled.factor - 1) < 1e-6) scaled.factor = 1;
  net.pass(reader, scaled);
  return true;
}

bool is_gelu(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& term) {
  if (x.form != ImportForm::kTensor || term.form != ImportForm::kErfTerm || !x.view.is_same(term.view)) return false;
  ImportValue gelu = x;
  gelu.view = net.append({{"op", "gelu"}, {"tanh", term.by_tanh}}, net.name_of(reader.node()), {x.view.node}, x.view);
  gelu.factor = 2 * x.factor * term.times;  // x (1 + erf(x / sqrt(2))) is twice the GELU
  if (std::abs(gelu.factor - 1) < 1e-6) gelu.factor = 1;
  net.note_joined("gelu");
  net.set(reader, gelu);
  return true;
}

bool is_gate(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& gate) {
  if (x.form != ImportForm::kTensor || gate.form != ImportForm::kTensor) return false;
  const std::string function = gated_by(net, x.view, gate.view);
  if (function.empty() || gate.factor != 1 || x.factor != 1) return false;
  net.note_joined(function);
  net.set_tensor(reader, net.append({{"op", function}}, net.name_of(reader.node()), {x.view.node}, x.view));
  return true;
}

// True if is(a, b) or is(b, a) is true.
template <typename Try>
bool either(const ImportValue& a, const ImportValue& b, const Try& is) {
  return is(a, b) || is(b, a);
}

// True if b must be the first operand of a sum, whatever the model's order. The result is written
// over the first operand. The fold of a norm, a sum and a ReLU (tools/plan/graph/fold.h) needs the
// norm first. Without a norm, the operand that was written later, the end of a branch, is first.
bool stands_first(Importer& net, const TensorView& b, const TensorView& a) {
  const json *of_a = net.node_called(a.node), *of_b = net.node_called(b.node);
  if (a.shape() != b.shape() || of_b == nullptr) return false;
  const auto is_norm = [](const json* node) { return node != nullptr && node->at("op") == "batch_norm"; };
  if (is_norm(of_a) || is_norm(of_b)) return !is_norm(of_a);
  return of_b > of_a;  // nodes are in the order in which they are written
}

// Returns the sum of constants as a value of form kTerms. All terms are added to another value
// later.
ImportValue sum_of_constants(const ImportValue& a, const ImportValue& b) {
  ImportValue sum;
  sum.form = ImportForm::kTerms;
  for (const ImportValue* part : {&a, &b}) {
    if (part->form == ImportForm::kTerms) {
      sum.terms.insert(sum.terms.end(), part->terms.begin(), part->terms.end());
    } else {
      sum.terms.push_back(*part);
    }
  }
  return sum;
}

// Reads a sum or a product that no function above has read: of two values, or of a value and a
// constant. A sum of constants is kept as terms; a product of constants is refused.
void read_any_two(Importer& net, NodeReader& reader, const char* op, ImportValue a, ImportValue b) {
  const bool multiplies = std::string(op) == "multiply";
  const auto is_fixed = [](const ImportValue& x) { return x.is_constant() || x.form == ImportForm::kTerms; };
  if (is_fixed(a) && is_fixed(b)) {
    if (multiplies) return reader.refuse("computes with the parameters alone, which is not available (yet)");
    constexpr size_t kMaxTerms = 64;
    ImportValue sum = sum_of_constants(a, b);
    if (sum.terms.size() > kMaxTerms)
      return reader.refuse("is a sum of more than " + std::to_string(kMaxTerms) +
                           " constants, which is the most that is available");
    return net.set(reader, sum);
  }
  if (is_fixed(a)) std::swap(a, b);
  for (auto [each, beside] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!each->expanded.empty() && beside->expanded.empty() && beside->view.shape() == each->expanded)
      each->expanded.clear();
  }
  if (b.form == ImportForm::kTerms && !multiplies) {
    const auto whole = net.whole(reader, a);
    const auto sum = whole ? net.append_two(reader, op, *whole, b) : std::nullopt;
    return sum ? net.set(reader, *sum) : void();
  }
  double factor = 1;
  for (ImportValue* each : {&a, &b}) {
    if (each->is_constant()) continue;
    if (multiplies && each->form == ImportForm::kTensor) factor *= each->factor, each->factor = 1;
    const auto whole = net.whole(reader, *each);
    if (!whole) return;
    each->view = *whole;
    each->form = ImportForm::kTensor;
  }
  if (b.form == ImportForm::kTensor &&
      (!is_wider(a.view, b.view) || (!multiplies && stands_first(net, b.view, a.view))))
    std::swap(a, b);
  const auto result = two_as_one(net, reader, op, a.view, b, factor);
  if (result) net.set(reader, *result);
}

void read_pow(Importer& net, NodeReader& reader) {
  ImportValue x = net.product_settled(reader, net.value(reader, 0)).value_or(ImportValue());
  const auto power = net.known(reader, 1);
  if (x.form == ImportForm::kUnknown || !power) return;
  const double exponent = power->numbers.size() == 1 ? power->numbers[0] : 0;
  if (const auto powers = exponent == 2 || exponent == 3 ? power_of(x, static_cast<int>(exponent)) : std::nullopt)
    return net.pass(reader, *powers);
  if (exponent == 0.5) return append_sqrt(net, reader, x);
  if (exponent == -1) return append_reciprocal(net, reader, x, 1);
  if (exponent == 1) return net.pass(reader, x);
  if (x.form != ImportForm::kCentred || exponent != 2)
    return reader.refuse("is available to the powers of 2, 3, 1/2 and -1");
  x.form = ImportForm::kSquare;
  net.set(reader, x);
}

// Reads a PReLU: x above 0, and slope * x below 0. The slope is a number or a parameter. The nodes
// compute relu(x) + slope * min(x, 0).
void read_prelu(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  ImportValue slope = net.value(reader, 1);
  if (!x || slope.form == ImportForm::kUnknown) return;
  // A slope of a single number is a parameter, too, unless the file states otherwise.
  if (slope.tensor != nullptr) slope.is_parameter = slope.tensor->is_trained.value_or(true);
  if (const auto number = net.known_scalar(slope))
    return append_unary(net, reader, {{"op", "leaky_relu"}, {"slope", *number}});
  if (slope.form != ImportForm::kConstant) return reader.refuse("its slope must be a constant of the model");
  const TensorView below = append_function(net, reader, *x, {{"op", "at_most"}, {"bound", 0}});
  const auto scaled = net.append_two(reader, "multiply", below, slope);
  const TensorView above = append_function(net, reader, *x, {{"op", "relu"}});
  const auto sum = scaled ? net.append_two(reader, "add", above, *scaled) : std::nullopt;
  if (sum) net.set(reader, *sum);
}

struct Two {
  ImportValue a, b;
  bool goes_on;  // false if the node has been read completely, or was refused
};
// Returns both operands. If `combine` can join them as sums of powers, sets the output to the
// result. Otherwise, operands that are powers are written by nodes.
Two two_of(Importer& net, NodeReader& reader,
           std::optional<ImportValue> (*combine)(const Importer&, const ImportValue&, const ImportValue&) = nullptr) {
  Two two = {net.value(reader, 0), net.value(reader, 1), true};
  two.goes_on = two.a.form != ImportForm::kUnknown && two.b.form != ImportForm::kUnknown;
  if (const auto powers = combine != nullptr && two.goes_on ? combine(net, two.a, two.b) : std::nullopt) {
    net.pass(reader, *powers);
    two.goes_on = false;
  }
  for (ImportValue* each : {&two.a, &two.b}) {
    if (!two.goes_on || each->form != ImportForm::kPowers) continue;
    const auto settled = net.settled(reader, *each);
    two.goes_on = settled.has_value();
    if (settled) *each = *settled;
  }
  return two;
}

void read_mul(Importer& net, NodeReader& reader) {
  const auto [a, b, goes_on] = two_of(net, reader, product_of_powers);
  if (!goes_on) return;
  if (a.form == ImportForm::kCentred && b.form == ImportForm::kCentred &&
      reader.node().inputs[0] == reader.node().inputs[1]) {
    ImportValue square = a;
    square.form = ImportForm::kSquare;
    return net.set(reader, square);
  }
  if (either(a, b, [&](const ImportValue& x, const ImportValue& y) {
        return is_scaled_by_number(net, reader, x, y, false) || is_gelu(net, reader, x, y) ||
               is_normed(net, reader, x, y, false) || is_norm_weight(net, reader, x, y) || is_gate(net, reader, x, y) ||
               is_drop_path(net, reader, x, y) || is_masked_value(net, reader, x, y);
      })) {
    return;
  }
  read_any_two(net, reader, "multiply", a, b);
}

// Reads a / b as a times 1 / b.
void divide(Importer& net, NodeReader& reader, const ImportValue& a, ImportValue b) {
  if (const auto numbers = net.known_of(b); numbers && a.form != ImportForm::kConstant) {
    KnownNumbers inverse = *numbers;
    for (double& number : inverse.numbers) number = 1 / number;
    inverse.is_integer = false;
    return read_any_two(net, reader, "multiply", a, constant_value(std::move(inverse)));
  }
  if (const auto inverse = function_of_parameter(b, {{"op", "reciprocal"}}); inverse && !a.is_constant())
    return read_any_two(net, reader, "multiply", a, *inverse);
  if (b.is_constant())
    return reader.refuse(std::string("divides ") + form_text(a.form) +
                         " by a constant of the model, which is not available (yet)");
  const std::vector<int64_t> expanded = std::exchange(b.expanded, {});
  const double factor = b.form == ImportForm::kTensor ? std::exchange(b.factor, 1) : 1;
  const auto whole = net.whole(reader, b);
  if (!whole || factor == 0) return reader.failed() ? void() : reader.refuse("divides by 0");
  ImportValue inverse = tensor_value(append_function(net, reader, *whole, {{"op", "reciprocal"}}), 1 / factor);
  inverse.expanded = expanded;
  read_any_two(net, reader, "multiply", a, inverse);
}

void read_div(Importer& net, NodeReader& reader) {
  const auto [a, b, goes_on] = two_of(net, reader);
  if (!goes_on || is_scaled_by_number(net, reader, a, b, true) || is_masked_mean(net, reader, a, b)) return;
  if (is_normed(net, reader, a, b, true)) return;
  if (const auto number = net.known_scalar(a); number && b.form != ImportForm::kConstant)
    return append_reciprocal(net, reader, b, *number);
  divide(net, reader, a, b);
}

void read_add(Importer& net, NodeReader& reader) {
  const auto [a, b, goes_on] = two_of(net, reader, sum_of_powers);
  if (!goes_on) return;
  const auto is_form_and_number = [&](const ImportValue& x, const ImportValue& y) {
    const auto number = number_beside(net, x, y);
    if (!number) return false;
    if (is_epsilon(net, reader, x, *number)) return true;
    ImportValue result = x;
    if (x.form == ImportForm::kErf && *number == 1) {
      result.form = ImportForm::kErfTerm;
    } else if (*number != 0) {
      return false;
    }
    net.set(reader, result);
    return true;
  };
  const auto is_sight = [&](const ImportValue& x, const ImportValue& y) {
    return is_sight_of_scores(net, reader, x, y);
  };
  if (either(a, b, is_form_and_number) || is_norm_bias(net, reader, a, b) || is_norm_bias(net, reader, b, a) ||
      either(a, b, is_sight))
    return;
  for (const auto& [x, place, constant] : {std::tuple(&a, size_t{0}, &b), std::tuple(&b, size_t{1}, &a)}) {
    if (x->form != ImportForm::kTensor || constant->form != ImportForm::kConstant) continue;
    if (becomes_bias(net, reader, *x, place, *constant) || become_positions(net, reader, *x, place, *constant)) return;
  }
  read_any_two(net, reader, "add", a, b);
}

void read_sub(Importer& net, NodeReader& reader) {
  const auto [a, b, goes_on] = two_of(net, reader);
  if (!goes_on) return;
  if (is_centred(net, reader, a, b)) return;
  // A constant that is subtracted and is no tensor of the module is seldom trained: it is a mask,
  // or the mean of images.
  const bool is_trained = net.is_modules_own(b);
  if (const auto numbers = net.known_of(b, !is_trained); numbers && a.form != ImportForm::kConstant) {
    KnownNumbers negated = *numbers;
    for (double& number : negated.numbers) number = -number;
    return read_any_two(net, reader, "add", a, constant_value(std::move(negated)));
  }
  if (const auto negative = function_of_parameter(b, {{"op", "scale"}, {"factor", -1}}); negative && !a.is_constant())
    return read_any_two(net, reader, "add", a, *negative);
  const auto settled = b.is_constant() ? std::nullopt : net.settled(reader, b);
  if (!settled || settled->form != ImportForm::kTensor)
    return reader.refuse(std::string("takes ") + form_text(b.form) + " from " + form_text(a.form) +
                         ", which is not available (yet)");
  ImportValue taken = *settled;
  taken.factor = -taken.factor;
  read_any_two(net, reader, "add", a, taken);
}

}  // namespace

std::optional<ImportValue> Importer::append_two(NodeReader& reader, const char* op, const TensorView& a,
                                                const ImportValue& second) {
  if (second.form == ImportForm::kTerms) {
    std::optional<ImportValue> sum = tensor_value(a);
    for (const ImportValue& term : second.terms) sum = sum ? append_two(reader, op, sum->view, term) : std::nullopt;
    return sum;
  }
  ImportValue other = second;
  if (!second.is_constant()) {
    const auto whole = this->whole(reader, second);
    if (!whole) return std::nullopt;
    other.view = *whole;
  }
  return two_as_one(*this, reader, op, a, other, 1);
}

const OnnxOps& pointwise_ops() {
  static const OnnxOps ops = {{"Relu", read_relu},
                              {"Sigmoid", read_sigmoid},
                              {"Tanh", read_tanh},
                              {"Softplus", read_softplus},
                              {"Mish", read_mish},
                              {"HardSwish", read_hardswish},
                              {"HardSigmoid", read_hardsigmoid},
                              {"LeakyRelu", read_leaky_relu},
                              {"Elu", read_elu},
                              {"Gelu", read_gelu},
                              {"Clip", read_clip},
                              {"Erf", read_erf},
                              {"Max", read_max},
                              {"Min", read_min},
                              {"PRelu", read_prelu},
                              {"Sqrt", read_sqrt},
                              {"Reciprocal", read_reciprocal},
                              {"Exp", read_exp},
                              {"Neg", read_neg},
                              {"Pow", read_pow},
                              {"Dropout", read_dropout},
                              {"Detach", read_detach},
                              {"Identity", read_identity},
                              {"Cast", read_cast},
                              {"CastLike", read_cast_like},
                              {"Mul", read_mul},
                              {"Div", read_div},
                              {"Add", read_add},
                              {"Sub", read_sub},
                              {"RandomUniformLike", read_uniform},
                              {"Less", read_less},
                              {"Greater", read_greater},
                              {"Where", read_where}};
  return ops;
}

}  // namespace reprise
