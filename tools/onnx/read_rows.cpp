// Ops of ONNX that read rows [...,C]: linear layers, layer norms, and the products and softmax of an attention.
#include <algorithm>
#include <cmath>

#include "tools/formats/json_text.h"
#include "tools/onnx/importer.h"

namespace reprise {
namespace {

using nlohmann::json;

// What a layer makes of rows whose last axis becomes so wide.
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

// The weight of a linear layer, [out,in], and its bias; `weight` is [in,out] where it is `transposed`.
void append_linear(Importer& net, NodeReader& reader, const ImportValue& weight, bool transposed, const ImportValue* bias,
                   const OnnxTensor* named) {
  const auto x = net.tensor(reader, 0);
  if (!x) return;
  const std::vector<int64_t> shape = weight.view.shape();
  if (shape.size() != 2) return reader.refuse("its weight has " + std::to_string(shape.size()) + " dimensions; must have two");
  const int64_t in = shape[transposed ? 0 : 1], out = shape[transposed ? 1 : 0];
  const auto rows = net.rows(reader, *x);
  if (!rows || reader.failed()) return;
  if (rows->written.back() != in)
    return reader.refuse("its weight " + json(shape).dump() + " does not suit rows of " + std::to_string(rows->written.back()));
  const std::string name = net.name_of(reader.node(), named);
  ImportValue stored = weight;
  if (transposed) stored.view = weight.view.transposed({1, 0});
  net.add_weight(name + ".weight", stored);
  if (bias != nullptr) net.add_weight(name + ".bias", *bias);
  net.set_tensor(reader,
                 net.append({{"op", "linear"}, {"features", out}, {"bias", bias != nullptr}}, name, {rows->node}, widened(*rows, out)));
}

void read_gemm(Importer& net, NodeReader& reader) {
  const auto weight = net.parameter(reader, 1);
  const auto bias = reader.has_input(2) ? net.parameter(reader, 2) : std::nullopt;
  reader.require_number("alpha", 1);
  reader.require_number("beta", 1);
  reader.require_integer("transA", 0);
  const bool transposed = reader.integer("transB", 0) == 0;
  if (!weight || (reader.has_input(2) && !bias)) return;
  append_linear(net, reader, *weight, transposed, bias ? &*bias : nullptr, weight->tensor);
}

// The constant that a sum behind the product adds to each row: it names the layer, where exporters have renamed a transposed weight.
const OnnxTensor* bias_behind(Importer& net, const OnnxNode& node) {
  const OnnxNode* sum = node.outputs.empty() ? nullptr : net.only_reader_of(node.outputs[0]);
  if (sum == nullptr || sum->op != "Add") return nullptr;
  for (const std::string& input : sum->inputs) {
    const ImportValue* value = net.find(input);
    if (value != nullptr && value->form == ImportForm::kConstant && value->tensor != nullptr && value->tensor->name.ends_with("bias"))
      return value->tensor;
  }
  return nullptr;
}

// ---- attention ----

// q, k or v [...,T,D], with its heads: in memory [N,T,H D].
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
  if (ids.size() != view.memory.size()) return reader.refuse("an attention along the batch is not available"), std::nullopt;
  for (const int id : heads) part.heads *= view.size(id);
  part.length = view.axis_size(rank - 2);
  part.width = view.axis_size(rank - 1);
  const auto ordered = net.in_order(reader, view, ids);
  if (!ordered) return std::nullopt;
  part.view = *ordered;
  return part;
}

// Where q, k and v are the three parts of what one layer writes, in this order: that layer.
std::string packed_by(Importer& net, const Heads& q, const Heads& k, const Heads& v) {
  std::string source;
  int64_t first = 0;
  for (const Heads* part : {&q, &k, &v}) {
    const json* node = net.node_called(part->view.node);
    const int64_t width = part->heads * part->width;
    const bool is_part = node != nullptr && node->at("op") == "slice" && node->at("axis") == part->view.written.size() - 1;
    if (!is_part || node->at("first") != first || node->at("count") != width) return "";
    if (first > 0 && node->at("inputs")[0] != source) return "";
    source = node->at("inputs")[0];
    first += width;
  }
  const json* layer = net.node_called(source);
  return layer != nullptr && layer->at("op") == "linear" && layer->at("features") == first ? source : "";
}

void append_attention(Importer& net, NodeReader& reader, const TensorView& q_view, const TensorView& k_view, const TensorView& v_view,
                      double scale, double dropout, const Sight& sight) {
  const auto q = heads_of(net, reader, q_view), k = heads_of(net, reader, k_view), v = heads_of(net, reader, v_view);
  if (!q || !k || !v || reader.failed()) return;
  if (q->length != k->length || k->length != v->length)
    return reader.refuse("queries of " + std::to_string(q->length) + " places and keys of " + std::to_string(k->length) +
                         "; available is attention of a sequence to itself");
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
    const OnnxTensor* bias = bias_behind(net, reader.node());
    return append_linear(net, reader, *weight, true, nullptr,
                         weight->tensor->name.ends_with(".weight") || bias == nullptr ? weight->tensor : bias);
  }
  if (a.form == ImportForm::kTensor && b.form == ImportForm::kTensor) {
    const size_t rank = b.view.axes.size();
    if (rank < 3 || a.view.axes.size() != rank || a.view.shape()[rank - 1] != b.view.shape()[rank - 2])
      return reader.refuse("a product of two values of the net is available within an attention alone");
    std::vector<size_t> order(rank);
    for (size_t axis = 0; axis < rank; ++axis) order[axis] = axis;
    std::swap(order[rank - 1], order[rank - 2]);
    ImportValue scores = a, keys = b;
    keys.view = b.view.transposed(order);
    keys.factor = 1;
    scores.form = ImportForm::kScores;
    scores.factor = a.factor * b.factor;
    scores.other = std::make_shared<ImportValue>(keys);
    return net.set(reader, scores);
  }
  if (a.form == ImportForm::kWeights) {
    const auto v = net.whole(reader, b);
    if (v) append_attention(net, reader, a.view, a.other->view, *v, a.factor, a.dropout, {a.masked, a.causal});
    return;
  }
  reader.refuse(std::string("multiplies ") + form_text(a.form) + " by " + form_text(b.form) + ", which is not available (yet)");
}

void read_softmax(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  const int64_t axis = reader.integer("axis", -1), rank = static_cast<int64_t>(x.view.axes.size());
  if (x.form == ImportForm::kUnknown) return;
  if (x.form != ImportForm::kScores || (axis != -1 && axis != rank - 1))
    return reader.refuse("is available within an attention alone, over the keys");
  x.form = ImportForm::kWeights;
  net.set(reader, x);
}

// Opset 23's: Q, K, V and a mask; of three dimensions with the number of heads, or of four.
void read_attention(Importer& net, NodeReader& reader) {
  std::optional<TensorView> parts[3];
  for (size_t n = 0; n < 3; ++n) parts[n] = net.tensor(reader, n);
  for (size_t n = 4; n < reader.node().inputs.size(); ++n) {
    if (reader.has_input(n)) reader.refuse("earlier keys and values are not available (yet)");
  }
  Sight sight = {.masked = false, .causal = reader.integer("is_causal", 0) != 0};
  if (reader.has_input(3)) {
    const auto mask = net.known_of(net.value(reader, 3));
    const auto seen = mask ? sight_of(net.texts(), *mask, mask->is_integer) : std::nullopt;
    if (!seen) reader.refuse("has a mask that is neither of padding nor of what stands behind, which is not available (yet)");
    sight = {seen && seen->masked, sight.causal || (seen && seen->causal)};
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
    const auto split =
        own > 0 && shape.size() == 3 && shape[2] % own == 0 ? parts[n]->reshaped({shape[0], shape[1], own, shape[2] / own}) : std::nullopt;
    if (!split) return reader.refuse("q_num_heads and kv_num_heads must say the heads of [N,T,C]");
    parts[n] = split->transposed({0, 2, 1, 3});
  }
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, parts[0]->axis_size(parts[0]->axes.size() - 1))));
  append_attention(net, reader, *parts[0], *parts[1], *parts[2], scale, 0, sight);
  if (!is_flat || reader.failed()) return;
  const ImportValue* written = net.find(reader.node().outputs.at(0));
  const std::vector<int64_t> shape = written->view.shape();
  const auto flat = written->view.transposed({0, 2, 1, 3}).reshaped({shape[0], shape[2], shape[1] * shape[3]});
  if (flat) net.set_tensor(reader, *flat);
}

// ---- norms ----

void read_layer_norm(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto gamma = net.parameter(reader, 1), beta = net.parameter(reader, 2);
  const double epsilon = reader.number("epsilon", 1e-5);
  const int64_t axis = reader.integer("axis", -1);
  reader.integer("stash_type", 1);
  for (size_t n = 1; n < reader.node().outputs.size(); ++n) {
    if (!reader.node().outputs[n].empty()) reader.refuse("its other outputs, mean and deviation, are not available");
  }
  if (!x || !gamma || !beta) return;
  if (axis != -1 && axis + 1 != static_cast<int64_t>(x->axes.size()))
    return reader.refuse("axis is " + std::to_string(axis) + "; available is the last");
  const auto rows = net.rows(reader, *x);
  if (!rows || reader.failed()) return;
  if (gamma->view.shape() != std::vector<int64_t>{rows->written.back()} || beta->view.shape() != gamma->view.shape())
    return reader.refuse("its scale " + json(gamma->view.shape()).dump() + " does not suit rows of " +
                         std::to_string(rows->written.back()));
  const std::string name = net.name_of(reader.node(), gamma->tensor);
  net.add_weight(name + ".weight", *gamma);
  net.add_weight(name + ".bias", *beta);
  net.set_tensor(reader, net.append({{"op", "layer_norm"}, {"epsilon", epsilon}}, name, {rows->node}, *rows));
}

}  // namespace

const OnnxOps& row_ops() {
  static const OnnxOps ops = {{"Gemm", read_gemm},
                              {"MatMul", read_matmul},
                              {"Softmax", read_softmax},
                              {"Attention", read_attention},
                              {"LayerNormalization", read_layer_norm}};
  return ops;
}

}  // namespace reprise
