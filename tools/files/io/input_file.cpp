// See input_file.h. Uses open and pread; a short read is an error.
#include "tools/files/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tools/files/io/error.h"

namespace reprise {

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: does not wait for the writer of a pipe
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw UserError(path + ": cannot be opened: " + std::strerror(errno));
  struct stat status;
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw UserError(path + ": must be a regular file");
  }
  bytes_ = static_cast<uint64_t>(status.st_size);
  passes_cache_ =
      bytes_ >= static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 8;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(uint64_t at, void* to, uint64_t bytes) const {
  if (at > bytes_ || bytes > bytes_ - at) throw std::logic_error("InputFile: a read past the end of " + path_);
  constexpr uint64_t kLargestRead = uint64_t{1} << 30;  // Linux reads at most 2 GiB - 4 KiB in one call
  constexpr uint64_t kMinDropped = uint64_t{32} << 10;
  const bool drops = passes_cache_ && bytes >= kMinDropped;
  char* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = ::pread(descriptor_, next, std::min(bytes, kLargestRead), static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw UserError(path_ + ": cannot be read: " + std::strerror(errno));
    if (count == 0) refuse_as_shorter();
    // The range starts at byte 0: the system drops only whole folios, and an earlier read may have
    // ended in the middle of a folio.
    if (drops) (void)::posix_fadvise(descriptor_, 0, static_cast<off_t>(at) + count, POSIX_FADV_DONTNEED);
    next += count;
    at += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
}

void InputFile::refuse_as_shorter() const {
  struct stat status;
  const std::string now = ::fstat(descriptor_, &status) == 0 ? std::to_string(status.st_size) : "fewer";
  throw UserError(path_ + ": has become shorter while it was in use: " + std::to_string(bytes_) +
                  " bytes when it was opened, " + now + " now; it must stay as it is until the program ends");
}

}  // namespace reprise
