// One call of an aten op, and the ONNX nodes that it becomes. A handler must ask for each argument.
// An argument that was not asked for ends the translation of the call with a reason.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/plan/pt2/aten_graph.h"

namespace reprise {

OnnxAttribute integer_attribute(const std::string& name, int64_t value);
OnnxAttribute integers_attribute(const std::string& name, std::vector<int64_t> values);
OnnxAttribute number_attribute(const std::string& name, double value);
OnnxAttribute text_attribute(const std::string& name, const std::string& value);

// The names of the graph's values in the ONNX model. An op that changes a value in place gives the
// value and its views another name.
class AtenNames {
 public:
  explicit AtenNames(const AtenGraph& graph) : graph_(graph) {}

  std::string name(const std::string& value) const;
  // True if another view of the value was changed in place, so that this value's numbers are out of
  // date.
  bool is_stale(const std::string& value) const { return stale_.count(value) > 0; }
  // Records that `value` and `with` are views of the same numbers.
  void share(const std::string& value, const std::string& with);
  // Records that an op changed `value` in place, and that the result is `into`. All views with the
  // same current name as `value` get the name `into`; the other views become stale.
  void change(const std::string& value, const std::string& into);
  // Gives `value` another name for the same numbers.
  void rename(const std::string& value, const std::string& into) { now_[value] = into; }
  // Returns `value` and all other views of its numbers.
  std::vector<std::string> views_of(const std::string& value) const;

 private:
  const std::string& last(const std::string& value) const;
  std::vector<std::string>& views(const std::string& value);
  const AtenGraph& graph_;
  std::map<std::string, std::string> now_;        // name of a value after its last change; index: its earlier name
  std::map<std::string, size_t> group_of_;        // index in groups_, by value
  std::vector<std::vector<std::string>> groups_;  // values that are views of the same numbers
  std::set<std::string> stale_;                   // values whose numbers another view has changed
};

class AtenCall {
 public:
  // Starts the translation of a node; `op` is the ONNX op of its output. Borrows all arguments.
  AtenCall(const AtenNode& node, const std::string& op, const AtenGraph& graph, const AtenNames& names)
      : node_(node), op_(op), graph_(graph), names_(names) {}

  const AtenNode& node() const { return node_; }
  void give_up(const std::string& reason);  // Ends the translation for this reason, unless it has ended already.
  const std::string& reason() const { return reason_; }
  void finish();  // Gives up if an argument that is not None was not asked for.
  std::vector<OnnxNode>& made() { return made_; }

  // ---- arguments; tensors have torch's names, and value() returns the model's ----

  // True if the argument is given and is not None.
  bool has(const std::string& name) { return find(name) != nullptr; }
  std::string first();                          // Returns the first argument, a tensor.
  std::string tensor(const std::string& name);  // Returns the tensor's name; "" if the argument is absent.
  std::vector<std::string> tensors(const std::string& name);
  int64_t integer(const std::string& name, int64_t absent);
  std::vector<int64_t> integers(const std::string& name, const std::vector<int64_t>& absent);
  double number(const std::string& name, double absent);
  std::vector<double> numbers(const std::string& name);
  std::string text(const std::string& name, const std::string& absent);
  void ignore(const std::string& name) { asked_.insert(name); }
  void require(const std::string& name, double right, double absent);
  bool is_tensor(const std::string& name);

  const OnnxValue& meta(const std::string& value);  // Returns the value's type and shape.
  int64_t rank(const std::string& value) { return static_cast<int64_t>(meta(value).shape.size()); }
  int64_t axis(const std::string& value, int64_t dim);  // Returns the axis, counted from the front.
  // Returns the size of an axis; gives up if the size is known only at run time.
  int64_t size(const std::string& value, int64_t axis);
  const std::string& output(size_t n = 0);
  bool has_same_shape(const std::string& a, const std::string& b);

  // ---- nodes; each function returns the name of the value that it writes ----

  // Returns the value's name in the model; gives up if the value is stale.
  std::string value(const std::string& name);
  // Adds a node that writes `to`, or a new value if `to` is empty.
  std::string add(const std::string& op, const std::vector<std::string>& inputs,
                  std::vector<OnnxAttribute> attributes = {}, const std::string& to = "");
  void write(const std::vector<std::string>& inputs, std::vector<OnnxAttribute> attributes = {}) {
    add(op_, inputs, std::move(attributes), output());
  }
  void write_identity(const std::string& input) { add("Identity", {input}, {}, output()); }
  // Adds nodes that read the size `symbol` from an input, as a list of one number. Gives up if no
  // input has this size.
  std::string open_size(const std::string& symbol);
  std::string integers_constant(const std::vector<int64_t>& values);
  std::string integer_constant(int64_t value);
  // Adds a constant of this shape, all numbers of which are `value`.
  std::string number_constant(const std::vector<uint64_t>& shape, float value);
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
  std::set<std::string> asked_;  // names of the arguments that were requested
  std::vector<OnnxNode> made_;   // the nodes of the translation so far
};

}  // namespace reprise
