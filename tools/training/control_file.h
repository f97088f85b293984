// A file or a FIFO to which a person, or a program, writes what a training shall do; the last line counts.
#pragma once

#include <sys/stat.h>

#include <string>

namespace reprise {

class ControlFile {
 public:
  // The file may be made later. Throws UserError where there is something that is neither a file nor a FIFO.
  explicit ControlFile(const std::string& path);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  // Whether it was written since the last call; the first call sees what is there. Takes no heap, and waits for nobody.
  bool has_changed();
  // The last that is not blank, without spaces around it; of a long line its beginning is missing.
  std::string last_line() const;
  const std::string& path() const { return path_; }

 private:
  bool read_fifo();
  bool read_file(int descriptor, const struct stat& status);

  static constexpr size_t kMost = 4096;  // of the file's end
  const std::string path_;
  int fifo_ = -1;
  char text_[kMost];
  size_t bytes_ = 0;
  struct timespec written_ = {};
};

}  // namespace reprise
