// The safetensors format: named, typed, shaped tensors behind a JSON header (github.com/huggingface/safetensors).
// Weights go in and out of the program in this format, so that other frameworks read them and ours reads theirs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tools/formats/input_file.h"
#include "tools/formats/output_file.h"

namespace reprise {

enum class StoredType : uint8_t { kF64, kF32, kF16, kBf16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

const char* stored_type_name(StoredType type);  // "F32" ...
uint64_t stored_type_bytes(StoredType type);

struct StoredTensor {
  StoredType type = StoredType::kF32;
  std::vector<uint64_t> shape;  // row-major, outermost first; empty for a scalar
  uint64_t offset = 0;  // of its first byte in the file; little-endian
  uint64_t bytes = 0;
};

// One file, open for the object's life. Only its header is held in memory; the tensors' bytes are read when they are asked for.
// The constructor checks everything: header length, JSON, dtypes, shapes, offsets that cover the data without gap or
// overlap, the file's length. Throws UserError.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }

  // Copies bytes [at, at + bytes) of one of this file's tensors. Throws UserError where the file has lost them since it was opened.
  void read(const StoredTensor& tensor, uint64_t at, void* to, uint64_t bytes) const;

  // The tensor of that name, which must have this shape and one of these dtypes. Throws UserError naming file, tensor, what is
  // there and what would be right.
  const StoredTensor& find(const std::string& name, const std::vector<StoredType>& types, const std::vector<uint64_t>& shape) const;
  const StoredTensor& find(const std::string& name, StoredType type, const std::vector<uint64_t>& shape) const {
    return find(name, std::vector<StoredType>{type}, shape);
  }

 private:
  void read_tensors(const std::string& header_text, uint64_t data_begin);
  InputFile file_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Returns whether the file's metadata say that this program wrote it ("written_by": "reprise"); false too where it cannot be read.
bool is_written_here(const std::string& path);

// Writes a file without ever holding it whole: declare every tensor, then write() their bytes in the order of
// declaration, in pieces of any size, then finish(). The header's order is the order of declaration, so equal calls
// give equal bytes. The metadata begin with our mark. Every write is checked: a full disk throws UserError. A file that was not finished is deleted.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(const std::string& path);
  void add_metadata(const std::string& key, const std::string& value);
  void declare(const std::string& name, StoredType type, const std::vector<uint64_t>& shape);
  void write(const void* data, uint64_t bytes);
  FileSum finish();  // flushed to the disk (fsync) when it returns

 private:
  struct Declared {
    std::string name;
    StoredType type;
    std::vector<uint64_t> shape;
    uint64_t bytes;
  };
  void write_header();
  OutputFile file_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Declared> declared_;
  std::unordered_set<std::string> names_;  // of those declared
  uint64_t declared_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  bool header_written_ = false;
};

}  // namespace reprise
