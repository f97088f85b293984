// Builds a kernel call from sizes that a user gives, for example "M=64 C=128 stride=2". Sizes are
// the letters in the shapes of the arguments, and the fields of the attribute. The scratch and
// stack of a call can thus be computed without a recipe that contains the call.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

// The parts of an argument's description. "w[K,C] or [C,K]" has the name "w" and the shapes "K,C"
// and "C,K"; "parameters (a group)" has no shapes.
struct ArgumentText {
  std::string name;
  std::vector<std::string> shapes;
};
// Returns the name and the shapes of an argument, from its description in kOps.
ArgumentText argument_text(const ArgumentInfo& argument);

// The tensors and attributes of a call.
struct SizedCall {
  std::vector<std::optional<Tensor>> tensors;  // in the order of kOps, without scratch; unset if an argument is absent
  AttributeTables attributes;                  // the attribute of the call is at index 0

  KernelCall of(const KernelInfo& kernel) const;  // returns the call of `kernel`, which points into this object
};

// The sizes that a user gives for one kernel, and the call that has these sizes.
class KernelSizes {
 public:
  // Parses `words` of the form "NAME=NUMBER". Throws UserError (usage) if a word has another form,
  // is given twice, or is not a size of the kernel.
  KernelSizes(const KernelInfo& kernel, const std::vector<std::string>& words);

  std::vector<std::string> fields() const;  // returns the names of the attribute's fields
  // Returns the names of all sizes that can be given: letters of shapes, the attribute's fields,
  // and the sizes from which these can be computed.
  std::vector<std::string> names() const;

  // Returns the call. An optional argument is present if its sizes are known and `without` does not
  // name it. Throws UserError (usage) if a size of another argument is missing, if the attribute is
  // invalid, or if the kernel's contract refuses the call.
  SizedCall call(DType activations, DType weights, const std::vector<std::string>& without) const;

 private:
  double value(const std::string& name, int depth = 0) const;
  double evaluate(const std::string& text, int depth) const;
  const char* definition(const std::string& name) const;
  Tensor tensor(const ArgumentInfo& argument, DType dtype) const;

  const KernelInfo& kernel_;
  std::string attribute_;                // name of the attribute's type; "" if the kernel has no attribute
  std::map<std::string, double> given_;  // the sizes that were given, by name
};

}  // namespace reprise
