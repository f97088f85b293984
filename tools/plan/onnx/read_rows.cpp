// Ops of ONNX that read rows [...,C]: linear layers, layer norms, and an attention's products and
// softmax.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/files/formats/json_text.h"
#include "lib/op.h"
#include "tools/plan/onnx/importer.h"

namespace reprise {
namespace {

using nlohmann::json;

// Returns the layout of rows whose last axis is replaced by an axis of `columns` elements.
TensorView widened(const TensorView& rows, int64_t columns) {
  TensorView layout = rows;
  const int id = rows.fresh_id();
  layout.memory.resize(rows.memory.size() - rows.axes.back().size());
  layout.axes.back().clear();
  if (columns != 1) {
    layout.memory.push_back({id, columns});
    layout.axes.back() = {id};
  }
  layout.written.back() = columns;
  return layout;
}

// True if PyTorch's own parameter is [in,out], as in transformers' Conv1D. Its name then ends in
// ".weight"; a weight that an exporter transposed has lost this name.
bool is_input_major(const ImportValue& weight, bool transposed) {
  const std::vector<int>& in = weight.view.axes[transposed ? 0 : 1];
  return weight.tensor->name.ends_with(".weight") && !in.empty() && weight.view.memory.size() > 1 &&
         weight.view.memory.front().id == in.front();
}

// Appends a linear layer. `weight` is [out,in], or [in,out] if it is `transposed`; `named` is the
// tensor that names the layer.
void append_linear(Importer& net, NodeReader& reader, const ImportValue& weight, bool transposed,
                   const ImportValue* bias, const OnnxTensor* named) {
  const auto x = net.tensor(reader, 0);
  if (!x) return;
  const std::vector<int64_t> shape = weight.view.shape();
  if (shape.size() != 2)
    return reader.refuse("its weight has " + std::to_string(shape.size()) + " dimensions; must have two");
  const int64_t in = shape[transposed ? 0 : 1], out = shape[transposed ? 1 : 0];
  const auto rows = net.rows(reader, *x);
  if (!rows || reader.failed()) return;
  if (rows->written.back() != in)
    return reader.refuse("its weight " + json(shape).dump() + " does not suit rows of " +
                         std::to_string(rows->written.back()));
  const std::string name = net.name_of(reader.node(), named);
  ImportValue stored = weight;
  json node = {{"op", "linear"}, {"features", out}, {"bias", bias != nullptr}};
  const bool by_input = is_input_major(weight, transposed);
  if (by_input) node["input_major"] = true;
  if (transposed != by_input) stored.view = weight.view.transposed({1, 0});
  net.add_weight(name + ".weight", stored);
  if (bias != nullptr) net.add_weight(name + ".bias", *bias);
  net.set_tensor(reader, net.append(node, name, {rows->node}, widened(*rows, out)));
}

void read_gemm(Importer& net, NodeReader& reader) {
  const auto weight = net.parameter(reader, 1);
  const auto bias = net.bias(reader, 2);
  reader.require_number("alpha", 1);
  reader.require_number("beta", 1);
  reader.require_integer("transA", 0);
  const bool transposed = reader.integer("transB", 0) == 0;
  if (!weight || (reader.has_input(2) && !bias)) return;
  append_linear(net, reader, *weight, transposed, bias ? &*bias : nullptr, weight->tensor);
}

// Returns the constant named "...bias" that a sum adds to each row of the product; null for none.
// This constant names the layer if an exporter renamed the transposed weight.
const OnnxTensor* bias_behind(Importer& net, const OnnxNode& node) {
  const OnnxNode* sum = node.outputs.empty() ? nullptr : net.only_reader_of(node.outputs[0]);
  if (sum == nullptr || sum->op != "Add") return nullptr;
  for (const std::string& input : sum->inputs) {
    const ImportValue* value = net.find(input);
    if (value != nullptr && value->form == ImportForm::kConstant && value->tensor != nullptr &&
        value->tensor->name.ends_with("bias"))
      return value->tensor;
  }
  return nullptr;
}

// ---- products of two values, and softmaxes ----

// A factor of a product: a list of matrices. is_transposed: memory has the matrices transposed, so
// that no node needs to transpose them.
struct Matrices {
  TensorView view;
  std::vector<int> which;  // ids of the factors that index the matrices, the batch first
  bool is_transposed = false;
};

bool lies_in_order(const TensorView& view, const std::vector<int>& ids) {
  for (size_t n = 0; n < ids.size(); ++n) {
    if (view.memory[n].id != ids[n]) return false;
  }
  return true;
}

std::optional<Matrices> matrices_of(Importer& net, NodeReader& reader, const TensorView& x) {
  const size_t rank = x.axes.size();
  Matrices matrices;
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    for (const int id : x.axes[axis])
      matrices.which.insert(id == TensorView::kBatch ? matrices.which.begin() : matrices.which.end(), id);
  }
  const auto &down = x.axes[rank - 2], &across = x.axes[rank - 1];
  std::vector<int> ids = matrices.which, is_transposed = matrices.which;
  ids.insert(ids.end(), down.begin(), down.end());
  ids.insert(ids.end(), across.begin(), across.end());
  is_transposed.insert(is_transposed.end(), across.begin(), across.end());
  is_transposed.insert(is_transposed.end(), down.begin(), down.end());
  if (ids.empty() || ids[0] != TensorView::kBatch)
    return reader.refuse("multiplies along the batch, which is not available"), std::nullopt;
  matrices.is_transposed = !lies_in_order(x, ids) && lies_in_order(x, is_transposed);
  const auto ordered = net.in_order(reader, x, matrices.is_transposed ? is_transposed : ids);
  if (!ordered) return std::nullopt;
  int64_t count = 1;
  for (const int id : matrices.which) count *= id == TensorView::kBatch ? 1 : x.size(id);
  std::vector<int64_t> written = {net.batch(), count, x.axis_size(rank - 2), x.axis_size(rank - 1)};
  if (matrices.is_transposed) std::swap(written[2], written[3]);
  if (count == 1) written.erase(written.begin() + 1);
  matrices.view = net.written_as(*ordered, written);
  return matrices;
}

// Returns the sizes of the axes before the last two, with the position of the batch among them as a
// negative number. Two values can only be multiplied if their results are equal.
std::vector<int64_t> matrix_axes(const TensorView& x) {
  std::vector<int64_t> sizes;
  for (size_t axis = 0; axis + 2 < x.axes.size(); ++axis) {
    int64_t before = 1;
    sizes.push_back(x.axis_size(axis));
    for (const int id : x.axes[axis]) {
      if (id == TensorView::kBatch) sizes.push_back(-before);
      before *= x.size(id);
    }
  }
  return sizes;
}

std::optional<TensorView> append_product(Importer& net, NodeReader& reader, const TensorView& a, const TensorView& b) {
  const size_t rank = a.axes.size();
  if (rank < 3 || b.axes.size() != rank || matrix_axes(a) != matrix_axes(b) ||
      a.axis_size(rank - 1) != b.axis_size(rank - 2))
    return reader.refuse("multiplies " + json(a.shape()).dump() + " by " + json(b.shape()).dump() +
                         "; available are [...,M,K] by [...,K,N], alike in all axes before"),
           std::nullopt;
  const auto first = matrices_of(net, reader, a), second = matrices_of(net, reader, b);
  if (!first || !second) return std::nullopt;
  TensorView layout = first->view;
  layout.memory.resize(first->which.size());
  for (const int id : layout.axes[rank - 2]) layout.memory.push_back({id, first->view.size(id)});
  layout.axes[rank - 1].clear();
  for (const int id : second->view.axes[rank - 1]) {
    layout.axes[rank - 1].push_back(std::max(layout.fresh_id(), first->view.fresh_id()));
    layout.memory.push_back({layout.axes[rank - 1].back(), second->view.size(id)});
  }
  std::vector<int64_t>& written = layout.written;
  written[written.size() - 2] = a.axis_size(rank - 2);
  written.back() = b.axis_size(rank - 1);
  json node = {{"op", "product"}};
  if (first->is_transposed) node["turned_a"] = true;
  if (second->is_transposed) node["turned_b"] = true;
  return net.append(node, net.name_of(reader.node()), {first->view.node, second->view.node}, layout);
}

std::vector<size_t> exchanged(size_t rank, size_t a, size_t b) {
  std::vector<size_t> order(rank);
  for (size_t axis = 0; axis < rank; ++axis) order[axis] = axis;
  std::swap(order[a], order[b]);
  return order;
}

std::optional<TensorView> append_softmax(Importer& net, NodeReader& reader, const TensorView& x, size_t axis) {
  const std::vector<size_t> order = exchanged(x.axes.size(), axis, x.axes.size() - 1);
  const auto rows = net.rows(reader, x.transposed(order));
  if (!rows || reader.failed()) return std::nullopt;
  return net.append({{"op", "softmax"}}, net.name_of(reader.node()), {rows->node}, *rows).transposed(order);
}

// ---- attention ----

// q, k or v [...,T,D], with its heads: [N,T,H D] in memory.
struct Heads {
  TensorView view;
  int64_t heads = 1, length = 1, width = 1;
};

std::optional<Heads> heads_of(Importer& net, NodeReader& reader, const TensorView& view) {
  const size_t rank = view.axes.size();
  if (rank < 3) return reader.refuse("an attention's part must be [N,H,T,D] or [N,T,D]"), std::nullopt;
  Heads part;
  std::vector<int> ids = {TensorView::kBatch}, heads;
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    for (const int id : view.axes[axis]) {
      if (id != TensorView::kBatch) heads.push_back(id);
    }
  }
  ids.insert(ids.end(), view.axes[rank - 2].begin(), view.axes[rank - 2].end());
  ids.insert(ids.end(), heads.begin(), heads.end());
  ids.insert(ids.end(), view.axes[rank - 1].begin(), view.axes[rank - 1].end());
  if (ids.size() != view.memory.size())
    return reader.refuse("an attention along the batch is not available"), std::nullopt;
  for (const int id : heads) part.heads *= view.size(id);
  part.length = view.axis_size(rank - 2);
  part.width = view.axis_size(rank - 1);
  const auto ordered = net.in_order(reader, view, ids);
  if (!ordered) return std::nullopt;
  part.view = *ordered;
  return part;
}

// Returns the layer whose output has q, k and v as its three parts, in this order; "" for none.
std::string packed_by(Importer& net, const Heads& q, const Heads& k, const Heads& v) {
  std::string source;
  int64_t first = 0;
  for (const Heads* part : {&q, &k, &v}) {
    const json* node = net.node_called(part->view.node);
    const int64_t width = part->heads * part->width;
    const bool is_part =
        node != nullptr && node->at("op") == "slice" && node->at("axis") == part->view.written.size() - 1;
    if (!is_part || node->at("first") != first || node->at("count") != width) return "";
    if (first > 0 && node->at("inputs")[0] != source) return "";
    source = node->at("inputs")[0];
    first += width;
  }
  const json* layer = net.node_called(source);
  return layer != nullptr && layer->at("op") == "linear" && layer->at("features") == first ? source : "";
}

// True if one attention node can compute this attention. A sequence must attend to itself, the
// batch must be the first axis, and all heads must have equal width, at most kAttentionMaxHead.
bool is_one_attention(const TensorView& q, const TensorView& k, const TensorView& v) {
  const size_t rank = q.axes.size();
  if (rank < 3 || k.axes.size() != rank || v.axes.size() != rank) return false;
  const std::vector<int64_t> of_q = q.shape(), of_k = k.shape(), of_v = v.shape();
  const auto is_at_front = [](const TensorView& x) { return !x.axes[0].empty() && x.axes[0][0] == TensorView::kBatch; };
  return of_q[rank - 1] <= static_cast<int64_t>(kAttentionMaxHead) && of_q[rank - 2] == of_k[rank - 2] &&
         of_k == of_v && of_q[rank - 1] == of_k[rank - 1] && is_at_front(q) && is_at_front(k) && is_at_front(v);
}

// Appends an attention for which there is no kernel. The scores, their softmax and the sum of the
// values are one node each.
void append_parts(Importer& net, NodeReader& reader, const ImportValue& scores, const ImportValue* mask, double dropout,
                  const TensorView& v) {
  std::optional<TensorView> weights = net.whole(reader, scores);
  if (weights && mask != nullptr) {
    const auto masked = net.append_two(reader, "add", *weights, *mask);
    weights = masked ? std::optional(masked->view) : std::nullopt;
  }
  if (weights) weights = append_softmax(net, reader, *weights, weights->axes.size() - 1);
  if (!weights || reader.failed()) return;
  if (dropout > 0)
    weights = net.append({{"op", "dropout"}, {"p", dropout}}, net.name_of(reader.node()), {weights->node}, *weights);
  const auto y = append_product(net, reader, *weights, v);
  if (y) net.set_tensor(reader, *y);
}

ImportValue scores_of(const TensorView& q, const TensorView& k, double scale) {
  ImportValue scores, keys;
  keys.form = ImportForm::kTensor;
  keys.view = k;
  scores.form = ImportForm::kScores;
  scores.view = q;
  scores.factor = scale;
  scores.other = std::make_shared<ImportValue>(keys);
  return scores;
}

void append_attention(Importer& net, NodeReader& reader, const TensorView& q_view, const TensorView& k_view,
                      const TensorView& v_view, double scale, double dropout, const Sight& sight,
                      const ImportValue* mask = nullptr) {
  const bool shares_heads =
      q_view.axes.size() == 4 && k_view.axes.size() == 4 && k_view.shape()[1] != q_view.shape()[1];
  if (mask != nullptr || (!is_one_attention(q_view, k_view, v_view) && !shares_heads)) {
    if (sight.causal || sight.masked)
      return reader.refuse(
          "an attention that is causal, or without padding, is not available (yet) with another mask or of other keys "
          "than queries");
    return append_parts(net, reader, scores_of(q_view, k_view, scale), mask, dropout, v_view);
  }
  const auto q = heads_of(net, reader, q_view), k = heads_of(net, reader, k_view), v = heads_of(net, reader, v_view);
  if (!q || !k || !v || reader.failed()) return;
  if (q->length != k->length || k->length != v->length)
    return reader.refuse("queries of " + std::to_string(q->length) + " places and keys of " +
                         std::to_string(k->length) + "; available is attention of a sequence to itself");
  if (k->heads != v->heads || q->heads % k->heads != 0 || q->width != k->width || k->width != v->width)
    return reader.refuse("its heads are of different widths or numbers");
  json node = {{"op", "attention"}, {"heads", q->heads}, {"causal", sight.causal}};
  if (sight.masked) node["masked"] = true;
  if (k->heads != q->heads) node["kv_heads"] = k->heads;
  if (std::abs(scale * std::sqrt(static_cast<double>(q->width)) - 1) > 1e-6) node["scale"] = scale;
  if (dropout > 0) node["dropout"] = dropout;
  std::vector<std::string> inputs;
  TensorView packed = q->view.by(packed_by(net, *q, *k, *v));
  if (!packed.node.empty()) {
    packed.written.back() = (q->heads + 2 * k->heads) * q->width;
    inputs = {net.written_as(packed, {net.batch(), q->length, packed.written.back()}).node};
  } else {
    for (const Heads* part : {&*q, &*k, &*v})
      inputs.push_back(net.written_as(part->view, {net.batch(), part->length, part->heads * part->width}).node);
  }
  TensorView layout = q->view;
  layout.written = {net.batch(), q->length, q->heads * q->width};
  net.note_joined("attention");
  net.set_tensor(reader, net.append(node, net.name_of(reader.node()), inputs, layout));
}

void read_matmul(Importer& net, NodeReader& reader) {
  const ImportValue a = net.value(reader, 0), b = net.value(reader, 1);
  if (a.form == ImportForm::kUnknown || b.form == ImportForm::kUnknown) return;
  if (b.form == ImportForm::kConstant) {
    const auto weight = net.parameter(reader, 1);
    if (!weight) return;
    const OnnxTensor* behind = bias_behind(net, reader.node());
    const bool has_name = weight->tensor->name.ends_with(".weight") || !weight->tensor->parameter.empty();
    const auto bias = net.bias(reader, 2);
    return append_linear(net, reader, *weight, true, bias ? &*bias : nullptr,
                         has_name || behind == nullptr ? weight->tensor : behind);
  }
  if (a.form == ImportForm::kWeights) {
    const auto v = net.whole(reader, b);
    if (v) append_attention(net, reader, a.view, a.other->view, *v, a.factor, a.dropout, {a.masked, a.causal});
    return;
  }
  // A product of two values is kept as scores until its reader is known.
  const auto first = net.settled(reader, a), second = net.settled(reader, b);
  if (!first || !second) return;
  for (const auto* each : {&*first, &*second}) {
    if (each->form != ImportForm::kTensor)
      return reader.refuse(std::string("multiplies ") + form_text(a.form) + " by " + form_text(b.form) +
                           ", which is not available (yet)");
  }
  const size_t rank = second->view.axes.size();
  if (rank < 3) return reader.refuse("multiplies along the batch, which is not available");
  ImportValue scores = scores_of(first->view, second->view.transposed(exchanged(rank, rank - 2, rank - 1)),
                                 first->factor * second->factor);
  net.set(reader, scores);
}

// ---- einsum ----

// The letters of an equation of two operands. shared: in both operands and the result; of_a, of_b:
// in one operand and the result; summed: in both operands only.
struct Letters {
  std::string a, b, c;  // the letters of the operands and the result
  std::string shared, of_a, of_b, summed;
};

std::optional<Letters> letters_of(std::string equation) {
  std::erase(equation, ' ');
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow ||
      equation.find('.') != std::string::npos)
    return std::nullopt;
  Letters l = {equation.substr(0, comma),
               equation.substr(comma + 1, arrow - comma - 1),
               equation.substr(arrow + 2),
               "",
               "",
               "",
               ""};
  const auto has = [](const std::string& word, char letter) { return word.find(letter) != std::string::npos; };
  for (const std::string* word : {&l.a, &l.b, &l.c}) {
    for (const char letter : *word) {
      if (std::count(word->begin(), word->end(), letter) > 1) return std::nullopt;  // it would be a diagonal
    }
  }
  for (const char letter : l.c) {
    if (!has(l.a, letter) && !has(l.b, letter)) return std::nullopt;
    (has(l.a, letter) && has(l.b, letter) ? l.shared : has(l.a, letter) ? l.of_a : l.of_b) += letter;
  }
  for (const char letter : l.a) {
    if (has(l.c, letter)) continue;
    if (!has(l.b, letter)) return std::nullopt;  // this letter would mean a sum over one operand alone
    l.summed += letter;
  }
  for (const char letter : l.b) {
    if (!has(l.c, letter) && !has(l.a, letter)) return std::nullopt;
  }
  return l;
}

// Returns a view with one axis for each letter of `apart`, and then one for each group of letters.
TensorView grouped_by(const TensorView& x, const std::string& letters, const std::string& apart,
                      const std::vector<std::string>& groups) {
  TensorView result = x;
  result.axes.clear();
  for (const char letter : apart) result.axes.push_back(x.axes[letters.find(letter)]);
  for (const std::string& group : groups) {
    result.axes.emplace_back();
    for (const char letter : group) {
      const auto& ids = x.axes[letters.find(letter)];
      result.axes.back().insert(result.axes.back().end(), ids.begin(), ids.end());
    }
  }
  return result;
}

// Reads a product of two values, whatever the order of their axes.
void read_einsum(Importer& net, NodeReader& reader) {
  const std::string equation = reader.text("equation", "");
  const auto letters = letters_of(equation);
  if (reader.node().inputs.size() != 2 || !letters)
    return reader.refuse("equation is " + json_shown(equation) +
                         "; available are products of two values, without a diagonal");
  const auto a = net.tensor(reader, 0), b = net.tensor(reader, 1);
  if (!a || !b) return;
  if (a->axes.size() != letters->a.size() || b->axes.size() != letters->b.size())
    return reader.refuse("equation does not suit what it reads");
  std::map<char, int64_t> sizes;
  for (size_t n = 0; n < letters->a.size(); ++n) sizes[letters->a[n]] = a->axis_size(n);
  for (size_t n = 0; n < letters->b.size(); ++n) {
    if (sizes.try_emplace(letters->b[n], b->axis_size(n)).first->second != b->axis_size(n))
      return reader.refuse("equation does not suit what it reads");
  }
  const TensorView first = grouped_by(*a, letters->a, letters->shared, {letters->of_a, letters->summed});
  const TensorView second = grouped_by(*b, letters->b, letters->shared, {letters->of_b, letters->summed});
  if (letters->c == letters->shared + letters->of_a + letters->of_b && letters->of_a.size() == 1 &&
      letters->of_b.size() == 1)
    return net.set(reader, scores_of(first, second, 1));
  const auto c =
      append_product(net, reader, first,
                     second.transposed(exchanged(second.axes.size(), second.axes.size() - 1, second.axes.size() - 2)));
  if (!c) return;
  const std::string written = letters->shared + letters->of_a + letters->of_b;
  std::vector<int64_t> shape;
  for (const char letter : written) shape.push_back(sizes.at(letter));
  const auto apart = c->reshaped(shape);
  if (!apart) return reader.refuse("leaves " + json(shape).dump() + ", which does not go on");
  std::vector<size_t> order;
  for (const char letter : letters->c) order.push_back(written.find(letter));
  net.set_tensor(reader, apart->transposed(order));
}

void read_softmax(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  const bool is_old = net.opset() < 13;  // the softmax is then over all axes from this one on
  int64_t axis = reader.integer("axis", is_old ? 1 : -1);
  if (x.form == ImportForm::kUnknown) return;
  const int64_t rank = static_cast<int64_t>(x.view.axes.size());
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank || (is_old && axis + 1 != rank))
    return reader.refuse("is along axis " + std::to_string(axis) + " of " + std::to_string(rank));
  if (x.form == ImportForm::kScores && axis + 1 == rank) {
    x.form = ImportForm::kWeights;
    return net.set(reader, x);
  }
  const auto whole = net.whole(reader, x);
  const auto y = whole ? append_softmax(net, reader, *whole, static_cast<size_t>(axis)) : std::nullopt;
  if (y) net.set_tensor(reader, *y);
}

// Reads opset 23's Attention: Q, K, V and a mask, of three dimensions with the number of heads, or
// of four.
void read_attention(Importer& net, NodeReader& reader) {
  std::optional<TensorView> parts[3];
  double factor = 1;  // factor of queries and keys, and thus of the scores
  for (size_t n = 0; n < 3; ++n) {
    ImportValue part = net.value(reader, n);
    if (n < 2 && part.form == ImportForm::kTensor) factor *= std::exchange(part.factor, 1.0);
    parts[n] = net.whole(reader, part);
  }
  for (size_t n = 4; n < reader.node().inputs.size(); ++n) {
    if (reader.has_input(n)) reader.refuse("earlier keys and values are not available (yet)");
  }
  Sight sight = {.masked = false, .causal = reader.integer("is_causal", 0) != 0};
  const ImportValue mask = reader.has_input(3) ? net.value(reader, 3) : ImportValue();
  const auto known = net.known_of(one_sample_of(mask));
  const auto seen = known ? sight_of(net.texts(), *known, known->is_integer) : std::nullopt;
  if (seen) {
    sight = {seen->masked, sight.causal || seen->causal};
  } else if (mask.form == ImportForm::kConstant) {
    const bool is_added = known
                              ? !known->is_integer && !known->of_texts
                              : mask.tensor != nullptr && mask.tensor->type == static_cast<uint32_t>(OnnxType::kFloat);
    if (!is_added)
      reader.refuse("its mask must be of padding, of what stands behind, or numbers that are added to the scores");
  }
  const int64_t heads = reader.integer("q_num_heads", 0), kv_heads = reader.integer("kv_num_heads", heads);
  double scale = reader.number("scale", 0);
  reader.require_number("softcap", 0);
  reader.integer("softmax_precision", 0);
  reader.require_integer("qk_matmul_output_mode", 0);
  if (!parts[0] || !parts[1] || !parts[2] || reader.failed()) return;
  const bool is_flat = parts[0]->axes.size() == 3;
  for (size_t n = 0; n < 3 && is_flat; ++n) {
    const int64_t own = n == 0 ? heads : kv_heads;
    const std::vector<int64_t> shape = parts[n]->shape();
    const auto split = own > 0 && shape.size() == 3 && shape[2] % own == 0
                           ? parts[n]->reshaped({shape[0], shape[1], own, shape[2] / own})
                           : std::nullopt;
    if (!split) return reader.refuse("q_num_heads and kv_num_heads must say the heads of [N,T,C]");
    parts[n] = split->transposed({0, 2, 1, 3});
  }
  if (scale == 0)
    scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, parts[0]->axis_size(parts[0]->axes.size() - 1))));
  append_attention(net, reader, *parts[0], *parts[1], *parts[2], scale * factor, 0, sight,
                   reader.has_input(3) && !seen ? &mask : nullptr);
  if (!is_flat || reader.failed()) return;
  const ImportValue* written = net.find(reader.node().outputs.at(0));
  const std::vector<int64_t> shape = written->view.shape();
  const auto flat = written->view.transposed({0, 2, 1, 3}).reshaped({shape[0], shape[2], shape[1] * shape[3]});
  if (flat) net.set_tensor(reader, *flat);
}

// ---- norms ----

void read_layer_norm(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto gamma = net.parameter(reader, 1);
  const std::optional<ImportValue> beta = net.bias(reader, 2);
  const double epsilon = reader.number("epsilon", 1e-5);
  const int64_t axis = reader.integer("axis", -1);
  reader.integer("stash_type", 1);
  for (size_t n = 1; n < reader.node().outputs.size(); ++n) {
    if (!reader.node().outputs[n].empty()) reader.refuse("its other outputs, mean and deviation, are not available");
  }
  if (!x || !gamma || (reader.has_input(2) && !beta)) return;
  if (axis != -1 && axis + 1 != static_cast<int64_t>(x->axes.size()))
    return reader.refuse("axis is " + std::to_string(axis) + "; available is the last");
  const auto rows = net.rows(reader, *x);
  if (!rows || reader.failed()) return;
  if (gamma->view.shape() != std::vector<int64_t>{rows->written.back()} ||
      (beta && beta->view.shape() != gamma->view.shape()))
    return reader.refuse("its scale " + json(gamma->view.shape()).dump() + " does not suit rows of " +
                         std::to_string(rows->written.back()));
  const std::string name = net.name_of(reader.node(), gamma->tensor);
  json node = {{"op", "layer_norm"}, {"epsilon", epsilon}};
  net.add_norm_parts(node, name, *gamma, beta ? &*beta : nullptr);
  net.set_tensor(reader, net.append(node, name, {rows->node}, *rows));
}

// Reads opset 23's RMSNormalization.
void read_rms_norm(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto gamma = net.parameter(reader, 1);
  const double epsilon = reader.number("epsilon", 1e-5);
  const int64_t axis = reader.integer("axis", -1);
  reader.integer("stash_type", 1);
  if (!x || !gamma) return;
  if (axis != -1 && axis + 1 != static_cast<int64_t>(x->axes.size()))
    return reader.refuse("axis is " + std::to_string(axis) + "; available is the last");
  const auto rows = net.rows(reader, *x);
  if (!rows || reader.failed()) return;
  if (gamma->view.shape() != std::vector<int64_t>{rows->written.back()})
    return reader.refuse("its scale " + json(gamma->view.shape()).dump() + " does not suit rows of " +
                         std::to_string(rows->written.back()));
  const std::string name = net.name_of(reader.node(), gamma->tensor);
  json node = {{"op", "rms_norm"}, {"epsilon", epsilon}};
  net.add_norm_parts(node, name, *gamma, nullptr);
  net.set_tensor(reader, net.append(node, name, {rows->node}, *rows));
}

}  // namespace

std::optional<ImportValue> append_scores(Importer& net, NodeReader& reader, const ImportValue& scores) {
  if (scores.masked || scores.causal)
    return reader.refuse("reads the scores of an attention that is causal, or without padding, otherwise than as one"),
           std::nullopt;
  ImportValue q = scores;
  q.form = ImportForm::kTensor;
  const size_t rank = scores.other->view.axes.size();
  const auto scaled = net.whole(reader, q);
  auto result =
      scaled ? append_product(net, reader, *scaled, scores.other->view.transposed(exchanged(rank, rank - 2, rank - 1)))
             : std::nullopt;
  if (result && scores.form == ImportForm::kWeights) {
    result = append_softmax(net, reader, *result, rank - 1);
    if (result && scores.dropout > 0)
      result =
          net.append({{"op", "dropout"}, {"p", scores.dropout}}, net.name_of(reader.node()), {result->node}, *result);
  }
  if (!result) return std::nullopt;
  ImportValue tensor;
  tensor.form = ImportForm::kTensor;
  tensor.view = *result;
  return tensor;
}

const OnnxOps& row_ops() {
  static const OnnxOps ops = {{"Gemm", read_gemm},
                              {"MatMul", read_matmul},
                              {"Einsum", read_einsum},
                              {"Softmax", read_softmax},
                              {"Attention", read_attention},
                              {"LayerNormalization", read_layer_norm},
                              {"RMSNormalization", read_rms_norm}};
  return ops;
}

}  // namespace reprise
