// A call of an aten op being translated: what it is given is asked for, and what nobody asked for stands against it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/onnx/aten_graph.h"

namespace reprise {

OnnxAttribute integer_attribute(const std::string& name, int64_t value);
OnnxAttribute integers_attribute(const std::string& name, std::vector<int64_t> values);
OnnxAttribute number_attribute(const std::string& name, double value);
OnnxAttribute text_attribute(const std::string& name, const std::string& value);

// What values are called in the model, which changes where an op changes one in place.
class AtenNames {
 public:
  explicit AtenNames(const AtenGraph& graph) : graph_(graph) {}

  std::string name(const std::string& value) const;
  bool is_stale(const std::string& value) const { return stale_.count(value) > 0; }  // another view of it was changed in place
  void share(const std::string& value, const std::string& with);                     // they are views of the same numbers
  void change(const std::string& value, const std::string& into);                    // in place: from here on it is what `into` is

 private:
  const std::string& last(const std::string& value) const;
  std::vector<std::string>& views(const std::string& value);
  const AtenGraph& graph_;
  std::map<std::string, std::string> now_;        // of values that were changed: the last that they became
  std::map<std::string, size_t> group_of_;        // an index of groups_
  std::vector<std::vector<std::string>> groups_;  // values that share their numbers
  std::set<std::string> stale_;
};

class AtenCall {
 public:
  // `op`: ONNX's op that writes the output.
  AtenCall(const AtenNode& node, const std::string& op, const AtenGraph& graph, const AtenNames& names)
      : node_(node), op_(op), graph_(graph), names_(names) {}

  const AtenNode& node() const { return node_; }
  void give_up(const std::string& reason);  // the first one stays
  const std::string& reason() const { return reason_; }
  void finish();  // gives up where an argument was not asked for
  std::vector<OnnxNode>& made() { return made_; }

  // Arguments. Values by torch's names; what reads one for an ONNX node takes value().
  bool has(const std::string& name) { return find(name) != nullptr; }  // and is not None
  std::string first();                                                 // the first argument, a tensor
  std::string tensor(const std::string& name);                         // "" where there is none
  std::vector<std::string> tensors(const std::string& name);
  int64_t integer(const std::string& name, int64_t absent);
  std::vector<int64_t> integers(const std::string& name, const std::vector<int64_t>& absent);
  double number(const std::string& name, double absent);
  std::vector<double> numbers(const std::string& name);
  std::string text(const std::string& name, const std::string& absent);
  void ignore(const std::string& name) { asked_.insert(name); }
  void require(const std::string& name, double right, double absent);
  bool is_tensor(const std::string& name);

  const OnnxValue& meta(const std::string& value);  // type and shape
  int64_t rank(const std::string& value) { return static_cast<int64_t>(meta(value).shape.size()); }
  int64_t axis(const std::string& value, int64_t dim);   // counted from the front
  int64_t size(const std::string& value, int64_t axis);  // gives up where it is open
  const std::string& output(size_t n = 0);
  bool has_same_shape(const std::string& a, const std::string& b);

  // Nodes. Each returns the name of what it writes; without `to` a value of its own.
  std::string value(const std::string& name);  // the model's name; gives up where the value is stale
  std::string add(const std::string& op, const std::vector<std::string>& inputs, std::vector<OnnxAttribute> attributes = {},
                  const std::string& to = "");
  void write(const std::vector<std::string>& inputs, std::vector<OnnxAttribute> attributes = {}) {
    add(op_, inputs, std::move(attributes), output());
  }
  void write_identity(const std::string& input) { add("Identity", {input}, {}, output()); }
  std::string open_size(const std::string& symbol);  // a list of one, that of the input which has it; gives up where none has
  std::string integers_constant(const std::vector<int64_t>& values);
  std::string integer_constant(int64_t value);
  std::string number_constant(const std::vector<uint64_t>& shape, float value);  // that often
  std::string numbers_constant(const std::vector<float>& values);

 private:
  const AtenArgument* find(const std::string& name);
  const AtenArgument* find(const std::string& name, AtenArgument::Kind kind, const char* words);
  std::string constant(OnnxTensor tensor);
  const AtenNode& node_;
  const std::string op_;
  const AtenGraph& graph_;
  const AtenNames& names_;
  std::string reason_;
  std::set<std::string> asked_;
  std::vector<OnnxNode> made_;
};

}  // namespace reprise
