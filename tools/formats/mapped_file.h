// A whole file as read-only memory.
// Weights and token files can be larger than what is free; the system pages them in and out.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

// Throws UserError with the path and the system's reason. The data live as long as the object.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;  // null for an empty file
  uint64_t bytes_ = 0;
};

}  // namespace reprise
