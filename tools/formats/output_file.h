// A file being written, every write checked.
// A full disk or a vanished folder must be one clear line and leave nothing half-written; streams lose such errors.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

// Throws UserError with the path and the system's reason. A file that was not finished is deleted by the destructor.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // created, or emptied
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const void* data, uint64_t bytes);
  void finish();  // fsync and close

 private:
  std::string path_;
  int descriptor_ = -1;
};

void write_file(const std::string& path, const std::string& text);
std::string read_file(const std::string& path);

}  // namespace reprise
