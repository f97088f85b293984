// The form in which files store a parameter of an imported net, if it differs from the graph's
// form. For example, PyTorch's module stores positions as [1,C,H,W] or [1,T,C], and the graph as
// rows. PyTorch stores the weight of a 1-D convolution as [K,C,L]. Only code that reads or writes
// weight files needs these forms; the graph and its kernels do not.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/tensor.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {

// Returns the shape in files of a tensor that has no StoredForm. A convolution's weight [K,R,S,C]
// is [K,C,R,S] in files. Codes of moments are bytes in files, one row for each block.
std::vector<uint64_t> stored_shape(const Tensor& tensor);

// How files store one parameter, relative to the graph's tensor.
struct StoredForm {
  // The parameter's names in files of older imports, which store it with the shape `own`
  std::vector<std::string> before = {};
  std::vector<uint64_t> shape = {};      // the shape in files
  std::vector<uint64_t> own = {};        // stored_shape() of the graph's tensor
  std::vector<uint64_t> sides = {};      // lengths of the file's axes; empty: the numbers are in the graph's order
  std::vector<uint64_t> order = {};      // the graph's axes, outermost first, each as an index into `sides`
  bool operator==(const StoredForm&) const = default;
};
using StoredForms = std::map<std::string, StoredForm>;  // by the parameter's name

// A metadata key of imports and snapshots; it states that their tensors have these forms. In older
// files without the key, a tensor whose `shape` and `own` are equal is in the graph's order.
constexpr const char* kFormsKey = "module_forms";

// Returns numbers of a file, of `bytes` bytes each, rearranged to the graph's order.
std::vector<unsigned char> in_graph_order(const StoredForm& form, const std::vector<unsigned char>& numbers,
                                          size_t bytes);
// Returns numbers of the graph, of `bytes` bytes each, rearranged to the file's order.
std::vector<unsigned char> in_file_order(const StoredForm& form, const std::vector<unsigned char>& numbers,
                                         size_t bytes);

// Returns a file's tensors in the graph's form. Tensors that already have the graph's shape, as
// older imports wrote them, are unchanged. A tensor whose form has an `order` is read completely,
// and stays in memory until another such tensor is read.
std::shared_ptr<const WeightSource> as_graph_has(std::shared_ptr<const WeightSource> file, const StoredForms& forms);
std::unique_ptr<WeightSource> as_graph_has(std::unique_ptr<WeightSource> file, const StoredForms& forms);
// Returns the graph's tensors in the form that files have.
std::shared_ptr<const WeightSource> as_files_have(std::shared_ptr<const WeightSource> weights,
                                                  const StoredForms& forms);

}  // namespace reprise
