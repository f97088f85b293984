// Writes a file and checks every write. A full disk or a folder that was removed must give one
// clear line and leave no incomplete file; streams lose such errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/files/formats/checksum.h"
#include "tools/files/io/leftovers.h"

namespace reprise {

// Returns the descriptor of a file that is opened for writing with the flags of open(); -1 and
// errno if that fails. Does not wait for the reader of a pipe: without a reader it fails with
// ENXIO.
int open_to_write(const std::string& path, int flags);

// A file that is being written. Throws UserError with the path and the system's reason. The
// destructor deletes a file that was not finished. The file is locked (flock) while it is written,
// so that other processes can see that its writer is alive.
class OutputFile {
 public:
  // Creates the file, or empties an existing one. Output (output.h) and SnapshotDirectory pass a
  // name that no file has. A device, a pipe or a descriptor is written in place.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, uint64_t bytes);
  void finish();                                              // calls fsync and close
  FileSum sum() const { return {bytes_, checksum_.text()}; }  // all bytes written so far

 private:
  std::string path_;
  uint64_t bytes_ = 0;
  Checksum checksum_;
  int descriptor_ = -1;
  std::optional<Leftover> unfinished_;  // unset for a device, a pipe or a descriptor
};

// Writes a file that contains `text`, with the same checks as OutputFile.
FileSum write_file(const std::string& path, const std::string& text);

// Maximum bytes of a file that read_file() reads.
constexpr uint64_t kMaxReadWhole = uint64_t{256} << 20;
// Returns the bytes of a file, or of a pipe such as <(...) or /dev/stdin. Throws UserError if it is
// neither, if it has more than `maximum` bytes, or if the pipe gives no data for half a minute.
std::string read_file(const std::string& path, uint64_t maximum = kMaxReadWhole);

// The key under which a file names the program that wrote it.
constexpr const char* kWriterKey = "written_by";

// Returns a path for a new file next to `path`: PATH.new-PROCESS.
std::string temporary_beside(const std::string& path);
constexpr const char* kFreshEnding = ".new-";

// Returns the number of an open descriptor if the path names one: /dev/stdin, stdout and stderr,
// /dev/fd/N and /proc/self/fd/N.
std::optional<int> descriptor_named(const std::string& path);

}  // namespace reprise
