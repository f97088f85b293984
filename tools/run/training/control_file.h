// A file or a FIFO through which a person or a program gives commands to a training. Only its last
// line counts.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

namespace reprise {

// Commands. Training pauses while the last line is kPauseCommand. kGoCommand has no effect of its
// own; writing it ends the pause. plan_requests.h reads the command "budget B".
inline constexpr std::string_view kPauseCommand = "pause", kGoCommand = "go";

// Reads the last line of the file or FIFO.
class ControlFile {
 public:
  // Stores the path; the file may be created later. Throws UserError if `path` exists and is
  // neither a file nor a FIFO.
  explicit ControlFile(const std::string& path);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  // Reads the file. Does not use the heap, and never blocks.
  void look();
  // Calls look(). Returns true if the file was written since the last call; the first call returns
  // true if it already contains text.
  bool has_changed();
  // True if `line` was the last line at the last look(). Does not use the heap.
  bool says(std::string_view line) const { return last_line() == line; }
  // Returns the last line that is not blank, without surrounding white space. If the line is longer
  // than kMax bytes, its beginning is missing. Valid until the next look().
  std::string_view last_line() const;
  const std::string& path() const { return path_; }

 private:
  bool read();
  bool read_fifo();
  bool read_file(int descriptor, const struct stat& status);

  static constexpr size_t kMax = 4096;  // bytes that are read from the end of the file
  const std::string path_;
  int fifo_ = -1;
  char text_[kMax];
  size_t bytes_ = 0;
  bool has_changed_ = false;  // true if the file has changed since the last has_changed()
  // Modification time of the file when it was read.
  struct timespec written_ = {};
};

}  // namespace reprise
