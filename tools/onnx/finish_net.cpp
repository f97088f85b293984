// How a net ends: its last layer and the loss that it becomes, a classifier's head, a language model's, or a loss of whatever is written.
#include <algorithm>

#include "tools/formats/json_text.h"
#include "tools/onnx/importer.h"

namespace reprise {

using nlohmann::json;

void Importer::finish() {
  if (!net_.refused.empty()) return;
  if (texts_.texts > 0) net_.graph["text"] = {{"length", texts_.length}, {"pad", pad_.value_or(0)}};
  const std::string& output = output_;
  const ImportValue* value = find(output);
  if (value == nullptr) return refuse("output " + json_shown(output) + ": no node writes it");
  const bool is_of_tokens = texts_.texts > 0 && value->form == ImportForm::kTensor && value->view.axes.size() == 3;
  const int64_t rank = static_cast<int64_t>(value->view.axes.size()), of_classes = is_of_tokens ? 2 : 1;
  if (softmax_axis_ && *softmax_axis_ != of_classes && *softmax_axis_ != of_classes - rank) {
    return refuse("output " + json_shown(net_.output) + ": is a softmax along axis " + std::to_string(*softmax_axis_) + "; must be along the classes, axis " +
                  std::to_string(of_classes));
  }
  if (!request_.loss.empty()) return append_loss(request_.loss);
  const json* last = value->form == ImportForm::kTensor && value->factor == 1 ? node_called(value->view.node) : nullptr;
  if (is_of_tokens) {
    become_language_model(*value);
    return leave_out_unread();
  }
  const bool has_logits = value->view.axes.size() == 2 && (value->form != ImportForm::kConstant || value->repeats);
  if (!has_logits) {
    return refuse("output " + json_shown(output) + ": is " + json(value->view.shape()).dump() + "; must be a classifier's logits, [N,K]; of whatever else it is, --loss says by what it is judged");
  }
  if (last == nullptr || last->at("op") != "linear" || value->view.written != value->view.shape()) return append_loss("class_loss");
  become_head(value->view);
  leave_out_unread();
}

// The last linear layer and its loss are one node.
void Importer::become_head(const TensorView& logits) {
  net_.head = logits.node;
  json& node = *node_called(net_.head);
  turn_output_major(node);
  node["op"] = "loss_head";
  node["classes"] = node.at("features");
  node.erase("features");
  if (request_.classes == 0) return;
  node["classes"] = request_.classes;
  const auto is_of_head = [&](const ImportedTensor& weight) {
    return weight.name == net_.head + ".weight" || weight.name == net_.head + ".bias";
  };
  std::erase_if(net_.weights, is_of_head);
}

// The logits of each token's next one: the last linear layer and its loss are one node, whose weight may be the embedding's table.
void Importer::become_language_model(const ImportValue& logits) {
  const std::string name = logits.view.node;
  const std::string output = "output " + json_shown(output_) + ": is " + json(logits.view.shape()).dump() + ", ";
  json* head = node_called(name);
  const bool is_of_tokens =
      logits.view.axes[0] == std::vector<int>{TensorView::kBatch} && logits.view.axis_size(1) == texts_.length && logits.view.axis_size(0) == batch_;
  if (head == nullptr || head->at("op") != "linear" || logits.factor != 1 || !is_of_tokens)
    return refuse(output + "which is available of a language model alone: what a linear layer writes for each token");
  if (request_.classes > 0) return refuse(output + "of a language model, whose classes are its tokens; leave --classes out");
  if (pad_) return refuse(output + "of a language model, whose samples have no padding; the model compares tokens with " + std::to_string(*pad_));
  become_head(logits.view);
  const auto own = weight_called(name + ".weight");
  for (const json& node : nodes_) {
    const auto table = node.at("op") == "embedding" ? weight_called(node.at("name").get<std::string>() + ".weight") : own;
    if (table == own || !is_tied(*own, *table)) continue;
    net_.tied = node.at("name");
    net_.graph["tied"][own->name] = table->name;
    ImportedTensor copy = *own;
    copy.name = table->name;
    if (copy.tensor != table->tensor) net_.copies.push_back(copy);
    net_.weights.erase(own);
    break;
  }
  net_.graph.erase("text");
  net_.graph["tokens"] = {{"length", texts_.length}};
}

// One tensor of the file, or one and its copy, as exporters write a table that is turned beside the table itself.
bool Importer::is_tied(const ImportedTensor& head, const ImportedTensor& table) const {
  if (head.shape != table.shape) return false;
  return (head.tensor == table.tensor && head.walk == table.walk) || numbers_of(file_, head) == numbers_of(file_, table);
}

std::vector<ImportedTensor>::iterator Importer::weight_called(const std::string& name) {
  return std::find_if(net_.weights.begin(), net_.weights.end(), [&](const ImportedTensor& weight) { return weight.name == name; });
}

// Of a linear layer the weight as [out,in].
void Importer::turn_output_major(json& node) {
  if (node.erase("input_major") == 0) return;
  const auto weight = weight_called(node.at("name").get<std::string>() + ".weight");
  std::swap(weight->shape[0], weight->shape[1]);
  std::swap(weight->walk[0], weight->walk[1]);
}

// The layers that may have an adapter lie all as [in,out], or none does.
void Importer::lay_alike() {
  const auto lies_otherwise = [](const json& node) { return (node.at("op") == "linear" && !node.contains("input_major")) || node.at("op") == "conv"; };
  if (std::none_of(nodes_.begin(), nodes_.end(), lies_otherwise)) return;
  for (json& node : nodes_) turn_output_major(node);
}

// What the model writes, the numbers of a sample or a map's with the channels last, and its loss behind it.
void Importer::append_loss(const std::string& loss) {
  const OnnxNode* last = writer_of(output_);
  if (last == nullptr) return refuse("output " + json_shown(output_) + ": no node writes it");
  NodeReader reader(*last, net_.refused);
  std::optional<TensorView> view = whole(reader, *find(output_));
  if (!view) return;
  const std::vector<int64_t> shape = view->shape();
  if (shape.size() < 2) return refuse("output " + json_shown(output_) + ": is " + json(shape).dump() + "; must be [N,K] or [N,K,H,W]");
  const bool is_map = shape.size() == 4;
  const bool is_vector = shape.size() == 2 || (is_map && shape[2] == 1 && shape[3] == 1);
  if (compares_pairs() && !is_vector) return refuse("output " + json_shown(output_) + ": is " + json(shape).dump() + "; of pairs it must be a vector of each input, [N,K]");
  view = is_map ? images(reader, *view) : rows(reader, *view);
  if (!view) return;
  if (is_vector) view = written_as(*view, {shape[0], shape[1]});
  find_last_layer(view->node);
  if (request_.classes > 0) renew_last_layer();
  append({{"op", loss}}, unique_name("loss"), {view->node}, *view);
  leave_out_unread();
}

// The layer that makes the channels of the output, from which on they are only worked on one by one.
void Importer::find_last_layer(std::string name) {
  static const std::set<std::string> kKeepsChannels = {"relu", "relu6", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "softplus", "mish", "gelu", "leaky_relu", "elu",
                                                       "global_pool", "avg_pool", "max_pool", "dropout", "resize_nearest", "resize_bilinear", "resize_bilinear_aligned"};
  const json* node = node_called(name);
  while (node != nullptr && kKeepsChannels.count(node->at("op")) > 0) {
    name = node->at("inputs").at(0);
    node = node_called(name);
  }
  const bool is_layer = node != nullptr && (node->at("op") == "linear" || (node->at("op") == "conv" && node->value("groups", 1) == 1));
  if (is_layer) net_.head = name;
}

void Importer::renew_last_layer() {
  if (net_.head.empty()) return refuse("output " + json_shown(output_) + ": --classes: its channels are not those of a linear layer or a convolution");
  json& node = *node_called(net_.head);
  node[node.at("op") == "linear" ? "features" : "channels"] = request_.classes;
  std::erase_if(net_.weights, [&](const ImportedTensor& weight) { return weight.name == net_.head + ".weight" || weight.name == net_.head + ".bias"; });
}

}  // namespace reprise
