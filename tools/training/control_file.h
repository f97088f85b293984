// A file or a FIFO to which a person, or a program, writes what a training shall do; the last line counts.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

namespace reprise {

// While the last line is the first of these nothing is computed. The other asks for nothing, and so ends that; "budget B" is read by plan_requests.h.
inline constexpr std::string_view kPauseCommand = "pause", kGoCommand = "go";

class ControlFile {
 public:
  // The file may be made later. Throws UserError where there is something that is neither a file nor a FIFO.
  explicit ControlFile(const std::string& path);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  // Reads it. Takes no heap, and waits for nobody.
  void look();
  // Looks, and answers whether it was written since the last call; the first call sees what is there.
  bool has_changed();
  // Whether this was the last line when it was looked at. Takes no heap.
  bool says(std::string_view line) const { return last_line() == line; }
  // The last that is not blank, without spaces around it; of a long line its beginning is missing. Holds until the next look.
  std::string_view last_line() const;
  const std::string& path() const { return path_; }

 private:
  bool read();
  bool read_fifo();
  bool read_file(int descriptor, const struct stat& status);

  static constexpr size_t kMost = 4096;  // of the file's end
  const std::string path_;
  int fifo_ = -1;
  char text_[kMost];
  size_t bytes_ = 0;
  bool has_changed_ = false;  // since has_changed() was asked
  struct timespec written_ = {};
};

}  // namespace reprise
