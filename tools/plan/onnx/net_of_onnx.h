// Turns an ONNX model into a net as a recipe's model accepts it, or lists all reasons against it by
// node, op and attribute. A model that is not understood is refused, and not trained wrongly.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/files/weights/stored_form.h"
#include "tools/plan/onnx/findings.h"
#include "tools/plan/onnx/onnx_file.h"

namespace reprise {

struct ImportRequest {
  int classes = 0;                                      // classes of a new head; 0: the model's own head stays
  std::map<std::string, std::vector<uint64_t>> inputs;  // shapes of inputs, by name; they replace the model's
  std::string output = {};                              // the output that the net computes; empty: the only one
  // The op of the net's last node, a loss of the model's output. Empty: a loss_head if the last
  // layer is linear, otherwise a class_loss.
  std::string loss;
  std::vector<std::string> train = {};  // Patterns of parameters that are trained, whatever the import guesses.
  bool untie = false;                   // true: tensors of the net that share one tensor of the file get one each
};

// A tensor of the net as files of weights have it: the numbers of a tensor of the model, possibly
// in another order.
struct ImportedTensor {
  struct Axis {
    int64_t size, stride;  // stride: distance in the model's tensor between neighbours on this axis, in elements
    bool operator==(const Axis&) const = default;
  };
  std::string name;             // name in the net's nodes; in the finished net the name under which it is stored
  const OnnxTensor* tensor;     // the tensor of the file's model
  std::vector<uint64_t> shape;  // stored_shape() of the net's tensor
  std::vector<Axis> walk;       // axes in which the numbers are read, the last one innermost
  StoredForm form = {};         // the tensor's form in files of weights
  bool is_of_head = false;
};

struct ImportedNet {
  nlohmann::json graph;  // "image" or "text", "nodes", "tied" and "stored" (tools/plan/models/net.h)
  std::vector<ImportedTensor> weights;
  std::vector<ImportedTensor> copies;  // Second copies of weights in the file; an export writes them, too.
  // Owns the tensors of weights whose numbers the import computed, because the file does not store
  // them.
  std::vector<std::shared_ptr<const OnnxTensor>> own;
  std::set<std::string> frozen;  // names of parameters that are not trained; the findings give reasons
  Findings findings;
  // Nodes that have parameters for each class: the layers that make the classes, and norms and sums
  // after them.
  std::set<std::string> head;
  // Parameters of the head if the request asks for other classes; `weights` then has none of them.
  std::vector<ImportedTensor> drawn;
  std::string output;  // the model's output that the net computes
  // The op in which the model ends and which the net's loss contains: "Softmax", "LogSoftmax",
  // "Sigmoid", or "Div" by the vector's length; otherwise "".
  std::string ending;
  // Language models: the embedding whose table is the head's weight, too; "" if the head has its
  // own.
  std::string tied;
  // For each op of the net, such as "gelu" or "attention", the number of its nodes that replace a
  // chain of several nodes of the model. Has only ops with such nodes.
  std::map<std::string, size_t> joined;
  size_t left_out = 0;  // number of the model's nodes for which the net has no node, or that the output does not need
  std::vector<std::string> refused;      // reasons, one line each; if there is one, the other members are incomplete
};

ImportedNet net_of_onnx(const OnnxFile& file, const ImportRequest& request);

// Returns the numbers of a weight in the net's order. stored_numbers_of() returns them in the order
// of files of weights. Throws UserError if a number is not finite.
std::vector<float> numbers_of(const OnnxFile& file, const ImportedTensor& weight);
std::vector<float> stored_numbers_of(const OnnxFile& file, const ImportedTensor& weight);

}  // namespace reprise
