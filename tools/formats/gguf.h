// The GGUF format of llama.cpp: typed metadata and tensors in one file (github.com/ggml-org/ggml, docs/gguf.md). Versions 2 and 3,
// little-endian.
// Models come in and go out in it, their tokenizer and settings with them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/formats/ggml_blocks.h"
#include "tools/formats/input_file.h"
#include "tools/formats/output.h"
#include "tools/formats/output_file.h"

namespace reprise {

// The numbers are the file's.
enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// A value of the metadata, with what is needed to write it back unchanged. Its strings are bytes: they need not be UTF-8, so dump() of
// them may throw; json_shown() shows them.
struct GgufValue {
  GgufType type = GgufType::kString;
  GgufType element = GgufType::kString;  // of an array's elements; arrays of arrays are refused
  nlohmann::json value;
};

struct GgufTensor {
  std::string name;
  BlockType type = BlockType::kF32;
  std::vector<uint64_t> shape;  // row-major, outermost first, as other formats have it: the file has it the other way round
  uint64_t offset = 0;          // of its first byte in the file
  uint64_t bytes = 0;
  uint64_t elements() const;
};

// One file, open for the object's life. Metadata and the table of tensors are held in memory; the tensors' bytes are read when they are
// asked for. The constructor checks everything: counts, types, strings, keys and names given twice, shapes that overflow, rows that are
// no whole blocks, alignment, tensors that overlap or reach past the file's end. Throws UserError.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint64_t alignment() const { return alignment_; }

  // In the file's order.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  const GgufValue* find_value(const std::string& key) const;  // null: not there
  const GgufTensor* find_tensor(const std::string& name) const;

  // The value of a key that must have this kind where it is there. Throws UserError naming file, key, what is there and what would be right.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<uint64_t> unsigned_integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;  // integers too
  std::optional<bool> boolean(const std::string& key) const;
  const nlohmann::json* strings(const std::string& key) const;   // an array of strings; null: not there
  const nlohmann::json* integers(const std::string& key) const;  // an array of integers
  const nlohmann::json* numbers(const std::string& key) const;   // an array of floats

  // Elements [first, first + count) of one of this file's tensors, row-major, as floats. Throws UserError where the file has lost them
  // since it was opened.
  void read(const GgufTensor& tensor, uint64_t first, uint64_t count, float* to) const;
  // Bytes [at, at + bytes) as they are stored.
  void read_stored(const GgufTensor& tensor, uint64_t at, void* to, uint64_t bytes) const;

 private:
  [[noreturn]] void refuse_kind(const std::string& key, const GgufValue& value, const char* right) const;
  const nlohmann::json* array(const std::string& key, bool (*fits)(GgufType), const char* right) const;

  InputFile file_;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t> value_by_key_, tensor_by_name_;
};

// Writes a file without ever holding it whole: give every value and declare every tensor, then write() the tensors' blocks in the order
// of declaration, in pieces of any size, then finish(). Equal calls give equal bytes. A value "general.alignment" sets the alignment. A
// file that was not finished is deleted. The metadata begin with our mark, "reprise.written_by"; one that is given is passed over. Throws
// UserError where the file cannot be written.
constexpr OutputKind kGgufFile = {"gguf"};
class GgufWriter {
 public:
  explicit GgufWriter(const std::string& path);
  void add(const std::string& key, const GgufValue& value);
  void declare(const std::string& name, BlockType type, const std::vector<uint64_t>& shape);
  void write(const void* data, uint64_t bytes);
  FileSum finish();  // flushed to the disk (fsync) when it returns

 private:
  void write_head();
  void pad();
  OutputFile file_;
  uint64_t alignment_ = 32;
  uint64_t values_ = 0;
  std::string metadata_;  // as the file has them
  std::vector<GgufTensor> tensors_;
  size_t tensor_ = 0;            // the one being written
  uint64_t tensor_written_ = 0;  // its bytes so far
  bool head_written_ = false;
};

}  // namespace reprise
