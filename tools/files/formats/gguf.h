// The GGUF format of llama.cpp: typed metadata and tensors in one file (github.com/ggml-org/ggml,
// docs/gguf.md). Supports versions 2 and 3, little-endian. Models are read and written in it, with
// their tokenizers and settings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/formats/ggml_blocks.h"
#include "tools/files/io/input_file.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"

namespace reprise {

// GGUF's type numbers, as files store them.
enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// A value of the metadata with its types, so that it can be written again unchanged. Its strings
// are bytes and need not be UTF-8. dump() may throw for them, so show them with json_shown().
struct GgufValue {
  GgufType type = GgufType::kString;
  GgufType element = GgufType::kString;  // type of an array's elements; arrays of arrays are refused
  nlohmann::json value;
};

// One entry in the table of tensors.
struct GgufTensor {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<uint64_t> shape;  // row-major, outermost first, as in other formats; the file stores the reverse order
  uint64_t offset = 0;          // first byte in the file
  uint64_t bytes = 0;
  uint64_t elements() const;
};

// A file that is open for reading. Metadata and the table of tensors are kept in memory; the
// tensors' bytes are read on demand. The constructor throws UserError if the part of the file
// before the tensors' data is wrong. It checks counts, types, strings, duplicate keys and names,
// shapes that overflow, and rows that are not whole blocks. It also checks the alignment of
// tensors, and that they do not overlap or reach beyond the file's end.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint64_t alignment() const { return alignment_; }

  // Returns the keys and values in the order of the file.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  const GgufValue* find_value(const std::string& key) const;  // returns null if there is no such key
  // Returns null if there is no such tensor.
  const GgufTensor* find_tensor(const std::string& name) const;

  // Returns the value of a key; nothing if there is no such key. Throws UserError if the value is
  // of another kind; the error names the file, the key, the value and what would be correct.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<uint64_t> unsigned_integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;  // integers are accepted too
  std::optional<bool> boolean(const std::string& key) const;
  const nlohmann::json* strings(const std::string& key) const;   // an array of strings; null if there is no such key
  const nlohmann::json* integers(const std::string& key) const;  // an array of integers; null if there is no such key
  const nlohmann::json* numbers(const std::string& key) const;   // an array of floats; null if there is no such key

  // Reads elements [first, first + count) of a tensor of this file as floats, row-major. Throws
  // UserError if the file has become shorter since it was opened.
  void read(const GgufTensor& tensor, uint64_t first, uint64_t count, float* to) const;
  // Reads bytes [at, at + bytes) of a tensor as they are stored.
  void read_stored(const GgufTensor& tensor, uint64_t at, void* to, uint64_t bytes) const;

 private:
  [[noreturn]] void refuse_kind(const std::string& key, const GgufValue& value, const char* right) const;
  const nlohmann::json* array(const std::string& key, bool (*fits)(GgufType), const char* right) const;

  InputFile file_;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> value_by_key_, tensor_by_name_;  // indices in metadata_ and in tensors_
};

// The kind of file that a GgufWriter makes, for Output (output.h).
constexpr OutputKind kGgufFile = {"gguf"};
// Writes a GGUF file without keeping it in memory. Call add() for every value and declare() for
// every tensor. Then write() the tensors' blocks in the order of declaration, in pieces of any
// size. Then call finish(). Equal calls give equal bytes. The value "general.alignment" sets the
// alignment. The metadata begin with our mark, "reprise.written_by"; a value of that key that is
// added is ignored. The destructor deletes a file that was not finished. Throws UserError if the
// file cannot be written.
class GgufWriter {
 public:
  explicit GgufWriter(const std::string& path);
  void add(const std::string& key, const GgufValue& value);
  void declare(const std::string& name, BlockType type, const std::vector<uint64_t>& shape);
  void write(const void* data, uint64_t bytes);
  FileSum finish();  // the file is flushed to the disk (fsync) when it returns

 private:
  void write_head();
  void pad();
  OutputFile file_;
  uint64_t alignment_ = 32;
  uint64_t values_ = 0;
  std::string metadata_;  // as bytes of the file
  std::vector<GgufTensor> tensors_;
  size_t tensor_ = 0;            // index of the tensor being written
  uint64_t tensor_written_ = 0;  // bytes of that tensor written so far
  bool head_written_ = false;
};

}  // namespace reprise
