// A net's file as it is stored: its graph's nodes, constants, inputs and outputs, in ONNX's words. A .pt2 is read as if it were ONNX (pt2_file.h).
// Here so that nothing but this file knows protobuf's wire format and ONNX's field numbers (github.com/onnx/onnx, onnx/onnx.proto). Numbers stay in
// the file until they are asked for: a model may be larger than the memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/formats/input_file.h"

namespace reprise {

// TensorProto.DataType, what of it is read here.
enum class OnnxType : uint32_t { kFloat = 1, kInt32 = 6, kInt64 = 7, kBool = 9, kHalf = 10, kDouble = 11, kBfloat16 = 16 };

struct OnnxTensor {
  std::string name;
  std::vector<uint64_t> shape;
  uint32_t type = 0;              // an OnnxType, or one that is not read
  std::string file;               // where its numbers lie: empty for the model's own file
  uint64_t at = 0, bytes = 0;     // little-endian, one after the other
  std::vector<uint64_t> strides;  // or, where it is given, so many numbers apart, and `bytes` from the first to behind the last
  std::vector<int64_t> integers;  // or here, where they are stored as varints, or no file has them
  std::vector<float> numbers;     // or here, where no file has them
  std::optional<bool> is_trained;  // whether the module has it as a parameter, or as a buffer; where the file says so
  uint64_t elements() const;
  // Computed, or what stands for a weight or bias that a layer has not.
  bool is_made() const { return !numbers.empty(); }
};

struct OnnxAttribute {
  std::string name;
  uint32_t type = 0;  // AttributeProto.AttributeType: FLOAT 1, INT 2, STRING 3, TENSOR 4, GRAPH 5, FLOATS 6, INTS 7, STRINGS 8
  float number = 0;
  int64_t integer = 0;
  std::string text;
  std::vector<float> numbers;
  std::vector<int64_t> integers;
  std::optional<OnnxTensor> tensor;
};

struct OnnxNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;  // "" for an optional one that is absent
  std::vector<OnnxAttribute> attributes;
};

struct OnnxDimension {
  int64_t size = -1;  // -1: only named, or not known
  std::string name;
};
struct OnnxValue {
  std::string name;
  uint32_t type = 0;
  std::vector<OnnxDimension> shape;
};

constexpr size_t kMostOnnxNodes = 20000;  // those of a .pt2 once they are ONNX's

struct OnnxModel {
  std::map<std::string, int64_t> opsets;  // versions by domain; "" is ONNX's own
  bool has_functions = false, has_sparse = false;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> constants;
  std::vector<OnnxValue> inputs, outputs;  // inputs: constants may be among them, in old files
};

class OnnxFile {
 public:
  // Of either format, which its first bytes tell. Throws UserError with file and place for what is no such file, or does not fit together.
  explicit OnnxFile(const std::string& path);
  // A file that is one tensor (TensorProto), as ONNX's test data are: a model of this constant alone.
  static OnnxFile of_tensor(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }
  const OnnxModel& model() const { return model_; }

  // All numbers of a tensor, of the types that are read. Throws UserError where the file has lost them, or where they are too many.
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
