// Reads one node of a model. A handler asks for the node's attributes; attributes that it did not
// ask for are refused.
#pragma once

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tools/plan/onnx/onnx_file.h"

namespace reprise {

class NodeReader {
 public:
  NodeReader(const OnnxNode& node, std::vector<std::string>& refused)
      : node_(node), refused_(refused), begin_(refused.size()) {}

  const OnnxNode& node() const { return node_; }
  bool has_input(size_t n) const { return n < node_.inputs.size() && !node_.inputs[n].empty(); }
  // True if the node was refused, or reads a value that a refused node writes: a handler must then
  // write nothing.
  bool failed() const { return lacks_ || refused_.size() > begin_; }
  void refuse(const std::string& reason);
  // Notes that the writer of an input was refused. This node then needs no line of its own.
  void note_lack() { lacks_ = true; }

  int64_t integer(const char* name, int64_t absent);
  double number(const char* name, double absent);
  std::vector<int64_t> integers(const char* name, const std::vector<int64_t>& absent);
  std::string text(const char* name, const std::string& absent);
  const OnnxAttribute* find(const char* name);
  void require_integer(const char* name, int64_t right);
  void require_number(const char* name, double right);
  void require_text(const char* name, const std::string& right);
  void finish();  // Refuses the attributes that were not asked for.

 private:
  const OnnxNode& node_;
  std::vector<std::string>& refused_;
  const size_t begin_;
  bool lacks_ = false;
  std::set<std::string> asked_;  // names of the attributes that were requested
};

// Returns the decimal number with the fewest digits that is rounded to the same float as `number`,
// for example 1e-5 for 1e-5f.
double shortest(double number);

}  // namespace reprise
