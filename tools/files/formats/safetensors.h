// The safetensors format: tensors with names, types and shapes after a JSON header
// (github.com/huggingface/safetensors). Weights are read and written in it, as in other frameworks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tools/files/io/input_file.h"
#include "tools/files/io/output_file.h"

namespace reprise {

enum class StoredType : uint8_t { kF64, kF32, kF16, kBf16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

const char* stored_type_name(StoredType type);  // returns "F32" and so on
uint64_t stored_type_bytes(StoredType type);

// One tensor's entry in the header.
struct StoredTensor {
  StoredType type = StoredType::kF32;
  std::vector<uint64_t> shape;  // row-major, outermost first; {} for a scalar
  uint64_t offset = 0;          // offset of the tensor's first byte in the file
  uint64_t bytes = 0;           // length of the tensor's data in the file; the numbers are little-endian
};

// A file that is open for reading. Only its header is kept in memory; the tensors' bytes are read
// on demand. The constructor throws UserError if the file is wrong. It checks the header's length,
// JSON, dtypes, shapes, the file's length, and that offsets cover the data without gap or overlap.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }

  // Copies bytes [at, at + bytes) of a tensor of this file. Throws UserError if the file has become
  // shorter since it was opened.
  void read(const StoredTensor& tensor, uint64_t at, void* to, uint64_t bytes) const;

  // Returns the tensor of that name. Throws UserError if it does not have this shape and one of
  // these types; the error names the file, the tensor, what it is and what would be correct.
  const StoredTensor& find(const std::string& name, const std::vector<StoredType>& types,
                           const std::vector<uint64_t>& shape) const;
  const StoredTensor& find(const std::string& name, StoredType type, const std::vector<uint64_t>& shape) const {
    return find(name, std::vector<StoredType>{type}, shape);
  }

 private:
  void read_tensors(const std::string& header_text, uint64_t data_begin);
  InputFile file_;
  std::map<std::string, StoredTensor> tensors_;  // by name
  std::map<std::string, std::string> metadata_;
};

// True if the file's metadata state that this program wrote it ("written_by": "reprise"). False if
// the metadata cannot be read.
bool is_written_here(const std::string& path);

// Writes a safetensors file without keeping it in memory. Declare every tensor, then write() the
// bytes in the order of declaration, in pieces of any size, then call finish(). The header has the
// order of declaration, so that equal calls give equal bytes. The metadata begin with the key
// "written_by", the mark of this program. Every write is checked; a full disk throws UserError. The
// destructor deletes a file that was not finished.
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(const std::string& path);
  void add_metadata(const std::string& key, const std::string& value);
  void declare(const std::string& name, StoredType type, const std::vector<uint64_t>& shape);
  void write(const void* data, uint64_t bytes);
  FileSum finish();  // the file is flushed to the disk (fsync) when it returns

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
  std::unordered_set<std::string> names_;  // the names in declared_
  uint64_t declared_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  bool header_written_ = false;
};

}  // namespace reprise
