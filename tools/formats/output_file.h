// A file being written, every write checked.
// A full disk or a vanished folder must be one clear line and leave nothing half-written; streams lose such errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/formats/checksum.h"
#include "tools/formats/leftovers.h"

namespace reprise {

// Opens a file for writing with the flags of open(), and returns its descriptor, or -1 with errno. A pipe that nobody reads is ENXIO: nothing waits
// for a reader.
int open_to_write(const std::string& path, int flags);

// Throws UserError with the path and the system's reason. A file that was not finished is deleted by the destructor. While it is written it
// is locked (flock), so that another process sees that its writer lives.
class OutputFile {
 public:
  // Creates the file, or empties it: tools give it a name that no file has, which Output (output.h) and SnapshotDirectory choose. A device, a
  // pipe or a descriptor is written as it is.
  explicit OutputFile(const std::string& path);
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

// Writes a file that holds `text`, as OutputFile does.
FileSum write_file(const std::string& path, const std::string& text);

// Returns the bytes of a file, or of a pipe such as <(...) and /dev/stdin. Throws UserError where it is neither, has more than `most` bytes, or
// where nothing comes through the pipe for half a minute.
constexpr uint64_t kMostReadWhole = uint64_t{256} << 20;
std::string read_file(const std::string& path, uint64_t most = kMostReadWhole);

// The key under which a file says who wrote it.
constexpr const char* kWriterKey = "written_by";

// Returns a new name beside the path, PATH.new-PROCESS: no file has it.
std::string temporary_beside(const std::string& path);
constexpr const char* kFreshEnding = ".new-";

// Returns the number of the open descriptor that the path names: of /dev/stdin, stdout and stderr, /dev/fd/N and /proc/self/fd/N.
std::optional<int> descriptor_named(const std::string& path);

}  // namespace reprise
