// A graph of PyTorch's aten ops, as torch.export writes it, and its translation into nodes of ONNX.
// Because of the translation, one reader (importer.h) reads both kinds of files.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/plan/onnx/onnx_file.h"

namespace reprise {

// One size: a number, or an expression in symbols that is known only at run time.
struct AtenInteger {
  int64_t value = 0;
  std::string symbol;  // empty: the size is `value`
};

// One argument of a node, or a list of arguments of one kind.
struct AtenArgument {
  // kIntegers is also the kind of flags and of types of numbers.
  enum class Kind { kNone, kTensors, kIntegers, kNumbers, kText, kOther };
  Kind kind = Kind::kNone;
  std::vector<std::string> tensors;  // names of values; "" for an absent element of a list
  std::vector<AtenInteger> integers;
  std::vector<double> numbers;
  std::string text;
};

struct AtenNode {
  std::string name, target;                                     // target: the op, for example "aten.conv2d.default"
  std::vector<std::pair<std::string, AtenArgument>> arguments;  // without arguments that have the schema's default
  std::vector<std::string> outputs;
  bool has_gradients = true;  // false within torch.no_grad()
};

struct AtenGraph {
  std::vector<AtenNode> nodes;
  std::map<std::string, OnnxValue> values;  // type and shape; a dimension's name may be an expression
  // For each value that is a parameter, buffer or constant, its name in the module.
  std::map<std::string, std::string> tensor_names;
  std::vector<std::string> inputs, outputs;
  // (value, buffer): the buffer contains the value after the run.
  std::vector<std::pair<std::string, std::string>> written;
};

// Adds the graph's nodes and outputs to a model that has the inputs and constants already. A node
// without a translation is added in the domain "torch", with the reason in its op: the importer
// reports it with all other refused nodes. A value that an op changes in place has another name
// after that op. A dropout becomes a Dropout if the graph was exported in training, and otherwise
// an Identity. Returns early, without the outputs, if the model has more than kMaxOnnxNodes nodes.
void add_aten_nodes(const AtenGraph& graph, OnnxModel& model);

}  // namespace reprise
