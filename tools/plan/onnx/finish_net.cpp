// Finishes an imported net. Its last linear layer and the loss become one node, the head of a
// classifier or of a language model. Otherwise, a loss node is appended to the net's output.
#include <algorithm>

#include "lib/attributes.h"
#include "tools/files/formats/json_text.h"
#include "tools/plan/onnx/importer.h"

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
    return refuse("output " + json_shown(net_.output) + ": is a softmax along axis " + std::to_string(*softmax_axis_) +
                  "; must be along the classes, axis " + std::to_string(of_classes));
  }
  if (!request_.loss.empty()) return append_loss(request_.loss);
  const json* last = value->form == ImportForm::kTensor && value->factor == 1 ? node_called(value->view.node) : nullptr;
  if (is_of_tokens) {
    become_language_model(*value);
    return leave_out_unread();
  }
  const std::vector<int64_t> shape = value->view.shape();
  const bool are_vectors = shape.size() == 2 || (shape.size() == 4 && shape[2] == 1 && shape[3] == 1);
  const bool has_logits = are_vectors && (value->form != ImportForm::kConstant || value->repeats);
  if (!has_logits) {
    return refuse("output " + json_shown(output) + ": is " + json(value->view.shape()).dump() +
                  "; must be a classifier's logits, [N,K]; of whatever else it is, --loss says by what it is judged");
  }
  const auto logits = last != nullptr && last->at("op") == "linear" ? as_vectors(value->view) : std::nullopt;
  if (!logits) return append_loss("class_loss");
  become_head(*logits);
  leave_out_unread();
}

// Returns the output of the last linear layer as [N,K]. The layer may write one row of a map, as
// after a pool and a convolution. Then it is changed to read only this row.
std::optional<TensorView> Importer::as_vectors(const TensorView& logits) {
  const std::vector<int64_t> shape = logits.shape();
  if (logits.written == shape) return logits;
  json layer = *node_called(logits.node);
  const std::string input = layer.at("inputs").at(0);
  const auto written = written_.find(input);
  const bool is_row =
      shape.size() == 2 && logits.written.size() > 2 && logits.written.back() == shape[1] &&
      written != written_.end() &&
      std::all_of(logits.written.begin() + 1, logits.written.end() - 1, [](int64_t side) { return side == 1; });
  if (!is_row) return std::nullopt;
  TensorView row;
  row.node = input;
  row.written = written->second;
  layer["inputs"] = {written_as(row, {shape[0], written->second.back()}).node};
  replace_at_end(logits.node, layer);
  TensorView result = logits;
  result.written = shape;
  return result;
}

// Replaces the last linear layer and its loss by one node.
void Importer::become_head(const TensorView& logits) {
  net_.head = {logits.node};
  head_.channels = logits.written.back();
  json& node = *node_called(logits.node);
  turn_output_major(node);
  node["op"] = "loss_head";
  node["classes"] = node.at("features");
  node.erase("features");
  if (request_.classes == 0) return;
  node["classes"] = request_.classes;
  draw_head();
}

bool Importer::is_of_head(const ImportedTensor& weight) const {
  return net_.head.count(weight.name) + net_.head.count(weight.name.substr(0, weight.name.rfind('.'))) > 0;
}

// Removes the numbers of the head's weights, which will be drawn, and gives the weights the shapes
// of the new classes.
void Importer::draw_head() {
  for (const ImportedTensor& weight : net_.weights) {
    if (!is_of_head(weight)) continue;
    const json* layer = node_called(weight.name.substr(0, weight.name.rfind('.')));
    const bool is_matrix = layer != nullptr && weight.name.ends_with(".weight") && weight.shape.size() > 1;
    const bool is_second = is_matrix && (layer->at("op") == "conv_transpose" || layer->contains("input_major"));
    ImportedTensor drawn = weight;
    const size_t axis = layer == nullptr ? weight.shape.size() - 1 : is_second ? 1 : 0;  // axis of the classes
    const auto place = std::count_if(weight.shape.begin(), weight.shape.begin() + static_cast<long>(axis),
                                     [](uint64_t side) { return side > 1; });
    if (static_cast<size_t>(place) < drawn.walk.size() && drawn.walk[static_cast<size_t>(place)].size == head_.channels)
      drawn.walk[static_cast<size_t>(place)].size = request_.classes;
    drawn.shape[axis] = static_cast<uint64_t>(request_.classes);
    net_.drawn.push_back(drawn);
    net_.frozen.erase(weight.name);
  }
  std::erase_if(net_.weights, [&](const ImportedTensor& weight) { return is_of_head(weight); });
}

// Replaces the last linear layer, which writes the logits of each next token, and its loss by one
// node. The layer's weight may be the embedding's table.
void Importer::become_language_model(const ImportValue& logits) {
  const std::string name = logits.view.node;
  const std::string output = "output " + json_shown(output_) + ": is " + json(logits.view.shape()).dump() + ", ";
  json* head = node_called(name);
  const bool is_of_tokens = logits.view.axes[0] == std::vector<int>{TensorView::kBatch} &&
                            logits.view.axis_size(1) == texts_.length && logits.view.axis_size(0) == batch_;
  if (head == nullptr || head->at("op") != "linear" || logits.factor != 1 || !is_of_tokens)
    return refuse(output + "which is available of a language model alone: what a linear layer writes for each token");
  if (request_.classes > 0)
    return refuse(output + "of a language model, whose classes are its tokens; leave --classes out");
  if (pad_)
    return refuse(output + "of a language model, whose samples have no padding; the model compares tokens with " +
                  std::to_string(*pad_));
  become_head(logits.view);
  const auto own = weight_called(name + ".weight");
  for (const json& node : nodes_) {
    const auto table = node.at("op") == "embedding" && !request_.untie
                           ? weight_called(node.at("name").get<std::string>() + ".weight")
                           : own;
    if (table == own || !is_tied(*own, *table)) continue;
    net_.tied = node.at("name");
    net_.graph["tied"][own->name] = table->name;
    ImportedTensor copy = *own;
    copy.name = table->name;
    if (copy.tensor != table->tensor) net_.copies.push_back(copy);
    net_.frozen.erase(own->name);
    net_.weights.erase(own);
    break;
  }
  net_.graph.erase("text");
  net_.graph["tokens"] = {{"length", texts_.length}};
}

// True if the weight of the head and the table are one tensor of the file, or two tensors with
// equal numbers. Exporters may write a transposed copy of the table next to it.
bool Importer::is_tied(const ImportedTensor& head, const ImportedTensor& table) const {
  if (head.shape != table.shape) return false;
  return (head.tensor == table.tensor && head.walk == table.walk) ||
         numbers_of(file_, head) == numbers_of(file_, table);
}

std::vector<ImportedTensor>::iterator Importer::weight_called(const std::string& name) {
  return std::find_if(net_.weights.begin(), net_.weights.end(),
                      [&](const ImportedTensor& weight) { return weight.name == name; });
}

// Stores the weight of a linear layer as [out,in].
void Importer::turn_output_major(json& node) {
  if (node.erase("input_major") == 0) return;
  const auto weight = weight_called(node.at("name").get<std::string>() + ".weight");
  std::swap(weight->shape[0], weight->shape[1]);
  std::swap(weight->walk[0], weight->walk[1]);
}

// Stores the weights of all layers that may have an adapter as [out,in], unless all are [in,out].
void Importer::lay_alike() {
  const auto lies_otherwise = [](const json& node) {
    return (node.at("op") == "linear" && !node.contains("input_major")) || node.at("op") == "conv";
  };
  if (std::none_of(nodes_.begin(), nodes_.end(), lies_otherwise)) return;
  for (json& node : nodes_) turn_output_major(node);
}

// Appends the loss of the model's output. The output is numbers [N,K] for each sample, or a map
// [N,K,H,W], which the loss reads as [N,H,W,K].
void Importer::append_loss(const std::string& loss) {
  const OnnxNode* last = writer_of(output_);
  if (last == nullptr) return refuse("output " + json_shown(output_) + ": no node writes it");
  NodeReader reader(*last, net_.refused);
  std::optional<TensorView> view = whole(reader, *find(output_));
  if (!view) return;
  const std::vector<int64_t> shape = view->shape();
  if (shape.size() < 2)
    return refuse("output " + json_shown(output_) + ": is " + json(shape).dump() + "; must be [N,K] or [N,K,H,W]");
  const bool is_map = shape.size() == 4;
  const bool is_vector = shape.size() == 2 || (is_map && shape[2] == 1 && shape[3] == 1);
  if (compares_pairs() && !is_vector)
    return refuse("output " + json_shown(output_) + ": is " + json(shape).dump() +
                  "; of pairs it must be a vector of each input, [N,K]");
  view = is_map ? images(reader, *view) : rows(reader, *view);
  if (!view) return;
  if (is_vector) view = written_as(*view, {shape[0], shape[1]});
  head_.channels = view->written.back();
  if (!find_head(view->node)) head_.sizes.clear(), head_.layers.clear();
  for (const auto& [name, key] : head_.sizes) net_.head.insert(name);
  if (request_.classes > 0) renew_head();
  append({{"op", loss}}, unique_name("loss"), {view->node}, *view);
  leave_out_unread();
}

// Follows the output's channels from node `name` back to the layers that make them. Returns false
// if other nodes make the channels. Each node in between must keep the channels apart, and must
// write them as its innermost axis.
bool Importer::find_head(const std::string& name) {
  static const std::set<std::string> kKeeps = {
      "relu",    "gelu",      "softmax", "global_pool",    "avg_pool",        "max_pool",
      "dropout", "drop_path", "detach",  "resize_nearest", "resize_bilinear", "resize_bilinear_aligned"};
  static const std::map<std::string, const char*> kLayers = {{"linear", "features"},
                                                             {"conv", "channels"},
                                                             {"conv_transpose", "channels"}};
  if (!head_.seen.insert(name).second) return true;
  const json* node = node_called(name);
  head_.stop = name;
  if (node == nullptr) return false;
  const std::string op = node->at("op");
  if (const auto layer = kLayers.find(op); layer != kLayers.end()) {
    if (node->value("groups", 1) != 1 || node->at(layer->second) != head_.channels) return false;
    head_.sizes.emplace_back(name, layer->second);
    head_.layers.push_back(name);
    return true;
  }
  if (op == "add" || op == "multiply") return find_head_of_two(name);
  if (op == "learned") {  // one number for each channel
    const std::vector<int64_t> shape = node->at("shape");
    const bool is_of_channels = std::all_of(shape.begin(), shape.end() - 1, [](int64_t side) { return side == 1; });
    if (!is_of_channels) return false;
    head_.sizes.emplace_back(name, "shape");
    return true;
  }
  const std::string input = node->at("inputs").at(0);
  const bool is_norm = op == "batch_norm" || op == "layer_norm" || op == "rms_norm";
  const auto is_it = [&](const UnaryFunctionInfo& function) { return op == function.word; };
  if (kKeeps.count(op) > 0 || is_norm || std::any_of(std::begin(kUnaryFunctions), std::end(kUnaryFunctions), is_it)) {
    if (is_norm) head_.sizes.emplace_back(name, nullptr);
    return find_head(input);
  }
  const auto written = written_.find(name);
  const int64_t last = written == written_.end() ? 0 : static_cast<int64_t>(written->second.size()) - 1;
  const bool is_kept = (op == "reshape" && node->at("shape").back() == head_.channels) ||
                       (op == "slice" && node->at("axis") != last && last > 0) ||
                       (op == "transpose" && node->at("order").back() == node->at("order").size());
  if (!is_kept) return false;
  if (op == "reshape") head_.sizes.emplace_back(name, "shape");
  return find_head(input);
}

// Follows both inputs of a sum or a product back to the layers. Each input must have the channels,
// or one number for all channels.
bool Importer::find_head_of_two(const std::string& name) {
  const std::vector<std::string> inputs = node_called(name)->at("inputs");
  for (const std::string& input : inputs) {
    const json* node = node_called(input);
    const auto written = written_.find(input);
    const bool is_learned = node != nullptr && node->at("op") == "learned";
    const int64_t own = is_learned                  ? node->at("shape").back().get<int64_t>()
                        : written == written_.end() ? 0
                                                    : written->second.back();
    if (own == 1 && head_.channels != 1) continue;
    if (own != head_.channels) return head_.stop = name, false;
    if (!find_head(input)) return false;
  }
  return true;
}

// Changes the sizes in the head's layers to the new number of classes, and removes the numbers of
// their weights (draw_head()).
void Importer::renew_head() {
  if (head_.layers.empty()) {
    const json* node = node_called(head_.stop);
    const std::string who =
        node == nullptr ? "the input's"
                        : "those of node " + json_shown(head_.stop) + " (" + node->at("op").get<std::string>() + ")";
    return refuse("output " + json_shown(output_) + ": --classes: its channels are " + who +
                  ", not of a linear layer or a convolution; without --classes its " + std::to_string(head_.channels) +
                  " stay");
  }
  for (const auto& [name, key] : head_.sizes) {
    if (key == nullptr) continue;
    json& size = node_called(name)->at(key);
    (size.is_array() ? size.back() : size) = request_.classes;
  }
  draw_head();
}

}  // namespace reprise
