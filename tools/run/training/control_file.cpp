// See control_file.h.
#include "tools/run/training/control_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/files/io/error.h"

namespace reprise {

ControlFile::ControlFile(const std::string& path) : path_(path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode)) return;
  throw UserError(path + ": --control: is neither a file nor a FIFO");
}

ControlFile::~ControlFile() {
  if (fifo_ >= 0) ::close(fifo_);
}

void ControlFile::look() {
  if (read()) has_changed_ = true;
}

bool ControlFile::has_changed() {
  look();
  return std::exchange(has_changed_, false);
}

bool ControlFile::read() {
  if (fifo_ >= 0) return read_fifo();
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    bytes_ = 0;  // the file has been removed, so that its command no longer applies
    return false;
  }
  struct stat status;
  const bool is_known = ::fstat(descriptor, &status) == 0;
  bool changed = false;
  if (is_known && S_ISREG(status.st_mode)) changed = read_file(descriptor, status);
  if (is_known && S_ISFIFO(status.st_mode)) {
    // Opens the FIFO for reading and writing: a FIFO without a writer would report the end of the
    // file.
    fifo_ = ::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    changed = fifo_ >= 0 && read_fifo();
  }
  ::close(descriptor);
  return changed;
}

// Reads the end of the file. Returns true if its text or its time has changed; both are compared,
// because two writes may have the same time or the same text.
bool ControlFile::read_file(int descriptor, const struct stat& status) {
  char text[kMax];
  const off_t from = std::max<off_t>(0, status.st_size - static_cast<off_t>(kMax));
  const ssize_t count = ::pread(descriptor, text, sizeof text, from);
  if (count < 0) return false;
  const bool is_same = static_cast<size_t>(count) == bytes_ && std::memcmp(text, text_, bytes_) == 0 &&
                       written_.tv_sec == status.st_mtim.tv_sec && written_.tv_nsec == status.st_mtim.tv_nsec;
  bytes_ = static_cast<size_t>(count);
  std::memcpy(text_, text, bytes_);
  written_ = status.st_mtim;
  return !is_same;
}

// Reads the FIFO until it is empty. Returns true if a line has been completed. Bytes after the last
// line are kept for the next call.
bool ControlFile::read_fifo() {
  bool has_line = false;
  for (ssize_t count = 1; count > 0;) {
    if (bytes_ == kMax) {  // drops the older half
      bytes_ = kMax / 2;
      std::memmove(text_, text_ + kMax - bytes_, bytes_);
    }
    count = ::read(fifo_, text_ + bytes_, kMax - bytes_);
    if (count <= 0) continue;
    has_line |= std::memchr(text_ + bytes_, '\n', static_cast<size_t>(count)) != nullptr;
    bytes_ += static_cast<size_t>(count);
  }
  return has_line;
}

std::string_view ControlFile::last_line() const {
  constexpr const char* kBlank = " \t\r\n";
  std::string_view text(text_, bytes_);
  if (fifo_ >= 0) text = text.substr(0, text.rfind('\n') + 1);
  const size_t last = text.find_last_not_of(kBlank);
  if (last == std::string_view::npos) return {};
  text = text.substr(0, last + 1);
  if (const size_t end = text.rfind('\n'); end != std::string_view::npos) text.remove_prefix(end + 1);
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlank)));
  return text;
}

}  // namespace reprise
