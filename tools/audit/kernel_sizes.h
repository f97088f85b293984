// A kernel's call made of sizes that a person gives, "M=64 C=128 stride=2": the letters of its arguments' shapes and the fields of its
// attribute. Here so that scratch and stack of a call can be asked for without a recipe that makes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/graph/graph.h"

namespace reprise {

// "w[K,C] or [C,K]": the name "w" and the shapes "K,C", "C,K"; of "parameters (a group)" no shape.
struct ArgumentText {
  std::string name;
  std::vector<std::string> shapes;
};
ArgumentText argument_text(const ArgumentInfo& argument);

struct SizedCall {
  std::vector<std::optional<Tensor>> tensors;  // as kOps orders them, without scratch; empty where an optional one is absent
  AttributeTables attributes;                  // the call's at index 0

  KernelCall of(const KernelInfo& kernel) const;  // points into this
};

class KernelSizes {
 public:
  // `words` are "NAME=NUMBER". Throws UserError (usage) where the kernel has no such size.
  KernelSizes(const KernelInfo& kernel, const std::vector<std::string>& words);

  std::vector<std::string> fields() const;  // of the attribute
  // What can be given: letters of shapes, the fields, and what these follow from where they are not given.
  std::vector<std::string> names() const;

  // An optional argument is there where its sizes are, and `without` does not name it. Throws UserError (usage) where another's size is
  // missing, an attribute makes no sense, or the kernel's contract refuses the call.
  SizedCall call(DType activations, DType weights, const std::vector<std::string>& without) const;

 private:
  double value(const std::string& name, int depth = 0) const;
  double evaluate(const std::string& text, int depth) const;
  const char* definition(const std::string& name) const;
  Tensor tensor(const ArgumentInfo& argument, DType dtype) const;

  const KernelInfo& kernel_;
  std::string attribute_;  // its type's name; "" for none
  std::map<std::string, double> given_;
};

}  // namespace reprise
