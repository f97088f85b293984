// A file that stays open and is read by position, every read checked.
// Here because weights and token files can be larger than memory, and may change under a run of days. A file mapped into memory would
// answer the read of a byte that is gone with SIGBUS.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

class InputFile {
 public:
  // Throws UserError with the path and the system's reason; only a regular file is taken.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // when it was opened

  // Copies bytes [at, at + bytes), which lay in the file when it was opened. Throws UserError where they are gone or cannot be read;
  // `to` then holds some of them. From any thread; the heap is touched by an error only. Of a file as large as an eighth of the machine's memory,
  // what a read of 32 KiB or more leaves in the system's page cache is given back: it would be a second copy of a model's weights.
  void read(uint64_t at, void* to, uint64_t bytes) const;

 private:
  [[noreturn]] void refuse_as_shorter() const;
  std::string path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  bool passes_cache_ = false;
};

}  // namespace reprise
