// The net that an ONNX model says, as a recipe's model takes it, or all that stands against it.
// Here so that what is not available is named at once, by node, op and attribute, and never trained wrongly.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/onnx/onnx_file.h"

namespace reprise {

struct ImportRequest {
  int classes = 0;                                      // of a new head; 0: the model's own stays
  std::map<std::string, std::vector<uint64_t>> inputs;  // by name: shapes in place of the model's
  std::string output = {};                              // of a model that has several: what the net computes
  std::string loss;  // of what the model writes, whatever that is: the op of the net's last node; "": the last layer, a linear one, becomes a loss_head
};

// A tensor of the net as files of weights have it: the numbers of one of the model's, maybe in another order.
struct ImportedTensor {
  struct Axis {
    int64_t size, stride;  // in numbers of the model's tensor
    bool operator==(const Axis&) const = default;
  };
  std::string name;
  const OnnxTensor* tensor;     // of the file's model
  std::vector<uint64_t> shape;  // in the file of weights
  std::vector<Axis> walk;       // its numbers are read so, the last axis innermost
};

struct ImportedNet {
  nlohmann::json graph;  // "image" or "text", "nodes", and "tied" (tools/models/net.h)
  std::vector<ImportedTensor> weights;
  std::vector<ImportedTensor> copies;  // of weights, which the file has once more: what is written back to it goes there, too
  std::vector<std::shared_ptr<const OnnxTensor>> own;  // tensors of weights that are none of the file's, but numbers that it computes
  std::set<std::string> frozen;  // parameters that were constants of the model, or that it does not have: they are not trained
  std::string head;  // the name of the last layer, whose parameters are HEAD.weight and HEAD.bias; "" where it has none such
  std::string output;  // of the model's: what the net computes
  // "Softmax", "LogSoftmax", "Sigmoid", or "Div" by the vector's length, in which the model ends, where the net's loss has it itself; else "".
  std::string ending;
  std::string tied;  // of a language model: the embedding whose table is the head's weight, too; "": the head has its own
  std::map<std::string, size_t> joined;  // what became one node: "gelu", "layer_norm", "attention", ..., and how often
  size_t left_out = 0;                   // nodes that compute nothing, or nothing that the output needs
  std::vector<std::string> refused;      // one line each; where there is one, the rest is not whole
};

ImportedNet net_of_onnx(const OnnxFile& file, const ImportRequest& request);

// The numbers of one of its weights. Throws UserError where one is not finite.
std::vector<float> numbers_of(const OnnxFile& file, const ImportedTensor& weight);

}  // namespace reprise
