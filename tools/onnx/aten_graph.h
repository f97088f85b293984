// A graph of PyTorch's aten ops, as torch.export writes it, and the same as nodes of ONNX.
// Here because both kinds of files are one kind of net: whoever reads a net reads ONNX's ops alone.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/onnx/onnx_file.h"

namespace reprise {

// A size is a number, or an expression in symbols that is known only when the net runs.
struct AtenInteger {
  int64_t value = 0;
  std::string symbol;  // empty: `value`
};

// One argument, or a list of them.
struct AtenArgument {
  enum class Kind { kNone, kTensors, kIntegers, kNumbers, kText, kOther };  // kIntegers: flags and types of numbers, too
  Kind kind = Kind::kNone;
  std::vector<std::string> tensors;  // names of values; "" for one of a list that is absent
  std::vector<AtenInteger> integers;
  std::vector<double> numbers;
  std::string text;
};

struct AtenNode {
  std::string name, target;                                     // "aten.conv2d.default"
  std::vector<std::pair<std::string, AtenArgument>> arguments;  // those that are given; the schema's defaults are not
  std::vector<std::string> outputs;
};

struct AtenGraph {
  std::vector<AtenNode> nodes;
  std::map<std::string, OnnxValue> values;          // type and shape of each; an expression is a dimension's name
  std::map<std::string, std::string> tensor_names;  // of values that are parameters, buffers and constants: the module's names
  std::vector<std::string> inputs, outputs;
};

// Adds its nodes and outputs to a model that has its inputs and constants. A node that has no translation stays as it is, in the domain
// "torch", with what stands against it in its op, so that whoever reads the model refuses it beside all others. What an op changes in
// place is another value from there on. Ends at once where the model has more than kMostOnnxNodes. Dropout becomes a Dropout where the graph was exported in training, and nothing where it was
// not.
void add_aten_nodes(const AtenGraph& graph, OnnxModel& model);

}  // namespace reprise
