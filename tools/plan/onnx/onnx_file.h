// A net's file as it is stored: nodes, constants, inputs and outputs of its graph, in ONNX's terms.
// A .pt2 is read as if it were ONNX (pt2_file.h). Only this file and onnx_writer.h use protobuf's
// wire format and ONNX's field numbers (github.com/onnx/onnx, onnx/onnx.proto). Numbers stay in the
// file until they are requested: a model may be larger than the memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/io/input_file.h"

namespace reprise {

// The values of TensorProto.DataType that are read here.
enum class OnnxType : uint32_t {
  kFloat = 1,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kHalf = 10,
  kDouble = 11,
  kBfloat16 = 16
};

struct OnnxTensor {
  std::string name;
  std::vector<uint64_t> shape;
  uint32_t type = 0;           // an OnnxType, or a type that is not read
  std::string file;            // file that has the numbers; empty: the model's own file
  uint64_t at = 0, bytes = 0;  // offset and bytes of the numbers: little-endian, contiguous unless `strides` is set
  // Distance along each axis, in numbers; empty if contiguous. `bytes` then spans from the first
  // number to the end of the last.
  std::vector<uint64_t> strides;
  std::vector<int64_t> integers;  // the numbers, if they are stored as varints or no file has them
  std::vector<float> numbers;     // the numbers, if no file has them
  // True for a parameter of the module, false for a buffer or a constant; unset if the file does
  // not state it.
  std::optional<bool> is_trained;
  // True if the file states that no number of the tensor is trained: a buffer, or a parameter with
  // requires_grad=False.
  bool is_frozen = false;
  // Name of the module's tensor that this tensor stands for; "" if that is `name` or unknown.
  std::string parameter;
  bool is_computed = false;  // the exporter computed the tensor from a parameter
  // True if the file has the tensor's numbers under another tensor's name, or not at all
  // (module_names.h).
  bool is_copy = false;
  uint64_t elements() const;
  // True if no file has the numbers: they were computed, or stand for a weight or bias that the
  // file leaves out.
  bool is_made() const { return !numbers.empty(); }
};

struct OnnxAttribute {
  std::string name;
  // AttributeProto.AttributeType: FLOAT 1, INT 2, STRING 3, TENSOR 4, FLOATS 6, INTS 7, STRINGS 8.
  uint32_t type = 0;
  float number = 0;
  int64_t integer = 0;
  std::string text;
  std::vector<float> numbers;
  std::vector<int64_t> integers;
  std::optional<OnnxTensor> tensor;
};

// OnnxNode::origin of an Identity that was a dropout, in a .pt2 that was exported for evaluation.
constexpr const char* kIdleDropout = "dropout";

struct OnnxNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;  // an absent optional input or output is ""
  std::vector<OnnxAttribute> attributes;
  // The op of PyTorch that the node comes from, as torch's newer exporter records it:
  // "...target=torch.ops.aten.add.Tensor](args = (%x, %p_b), ...".
  std::string origin = {};
  // Name of the bias, all zeros, that the node's module adds and the exporter left out; "" for
  // none.
  std::string bias = {};
  // PyTorch's name of the module that computes the node, as torch's newer exporter records it; ""
  // if the file does not state it.
  std::string module = {};
};

struct OnnxDimension {
  int64_t size = -1;  // -1: unknown, or given only as a name
  std::string name;
};
struct OnnxValue {
  std::string name;
  uint32_t type = 0;
  std::vector<OnnxDimension> shape;
};

constexpr size_t kMaxOnnxNodes = 20000;  // maximum nodes of a model, of a .pt2 after the translation into ONNX

struct OnnxModel {
  std::map<std::string, int64_t> opsets;  // versions by domain; "" is ONNX's own domain
  bool has_functions = false, has_sparse = false;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> constants;
  std::vector<OnnxValue> inputs, outputs;  // inputs: old files also list constants here
  std::vector<std::string> refused;        // reasons against the model apart from its nodes, one line each
  std::string producer;                                      // the program that wrote the file
  std::string signature;  // the module's parameters and buffers, as torch's newer exporter records them
  // Constants that torch's newer exporter computed, each with a list of the values that it was
  // computed from.
  std::map<std::string, std::string> folded_from;
  std::vector<std::string> lost;                             // parameters of the module that no node reads
};

// True if a BatchNormalization uses each batch's own statistics. Opsets before 14 have no attribute
// for it; there, a node in training has more than one output.
bool is_in_training(const OnnxModel& model, const OnnxNode& batch_norm);

class OnnxFile {
 public:
  // Reads an ONNX model or a .pt2; the first bytes show which it is. Throws UserError with the file
  // and the offset of the fault if it is neither, or if its parts do not fit together.
  explicit OnnxFile(const std::string& path);
  // Reads a file with one tensor (TensorProto), the format of ONNX's test data. The result is a
  // model with only this constant.
  static OnnxFile of_tensor(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }
  const OnnxModel& model() const { return model_; }

  // Returns all numbers of a tensor. Throws UserError if its type is not read, if its bytes do not
  // fit its shape, or if its file has become shorter.
  std::vector<float> floats(const OnnxTensor& tensor) const;
  std::vector<int64_t> integers(const OnnxTensor& tensor) const;

 private:
  OnnxFile(const std::string& path, OnnxModel (*read)(const InputFile& file)) : file_(path), model_(read(file_)) {}
  void read_stored(const OnnxTensor& tensor, void* to) const;
  std::vector<unsigned char> bytes_of(const OnnxTensor& tensor, uint64_t of_number) const;
  InputFile file_;
  OnnxModel model_;
};

}  // namespace reprise
