// A file being written, every write checked.
// A full disk or a vanished folder must be one clear line and leave nothing half-written; streams lose such errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tools/formats/checksum.h"
#include "tools/formats/leftovers.h"

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
  FileSum sum() const { return {bytes_, checksum_.text()}; }  // of what was written

 private:
  std::string path_;
  uint64_t bytes_ = 0;
  Checksum checksum_;
  int descriptor_ = -1;
  std::optional<Leftover> unfinished_;  // none of what is no regular file
};

FileSum write_file(const std::string& path, const std::string& text);
std::string read_file(const std::string& path);

// A new name beside the path: nobody else's file has it.
std::string temporary_beside(const std::string& path);
// A file of that name is either the old one or the new one, whatever happens. What is no regular file is written in place.
void replace_file(const std::string& path, const std::string& text);
// The same with a file that `write` writes to the path which it is given.
void replace_file(const std::string& path, const std::function<void(const std::string&)>& write);

// For who writes a file at the end of long work: throws UserError where it could not be made now. A file that is there stays as it is.
void require_writable(const std::string& path);

// Throws UserError where the output is the input's file, by whatever name.
void require_other_file(const std::string& output, const std::string& input);

}  // namespace reprise
