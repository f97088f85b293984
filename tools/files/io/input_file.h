// A file that stays open and is read by position; every read is checked. Weights and token files
// can be larger than memory, and may change during a run of days. If they were mapped into memory,
// reading a byte that is gone would raise SIGBUS.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

// An open file.
class InputFile {
 public:
  // Opens a regular file. Throws UserError with the path and the system's reason.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // size when the file was opened

  // Copies bytes [at, at + bytes), which must have been in the file when it was opened. Throws
  // UserError if they are gone or cannot be read; `to` then contains some of them. Every thread may
  // call it. It allocates only to report an error. If the file is at least an eighth of the
  // machine's memory, reads of 32 KiB or more are dropped from the system's page cache. Otherwise
  // the cache would be a second copy of a model's weights.
  void read(uint64_t at, void* to, uint64_t bytes) const;

 private:
  [[noreturn]] void refuse_as_shorter() const;
  std::string path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  bool passes_cache_ = false;
};

}  // namespace reprise
