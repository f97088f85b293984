// A file being written through POSIX calls, every one checked.
// Here because iostreams and stdio report a full disk late or never.
#include "tools/formats/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/formats/error.h"

namespace reprise {
namespace {

std::string reason() { return std::strerror(errno); }

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw UserError(path + ": cannot be created: " + reason());
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  struct stat status;
  const bool regular = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);  // never delete /dev/full
  ::close(descriptor_);
  if (regular) ::unlink(path_.c_str());
}

void OutputFile::write(const void* data, uint64_t bytes) {
  constexpr uint64_t kLargestWrite = uint64_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB at once
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(bytes, kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw UserError(path_ + ": cannot be written: " + reason());
    next += written;
    bytes -= static_cast<uint64_t>(written);
  }
}

void OutputFile::finish() {
  // EINVAL: a pipe or a device, which has nothing to flush.
  if (::fsync(descriptor_) != 0 && errno != EINVAL)
    throw UserError(path_ + ": cannot be flushed to the disk: " + reason());
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) {
    const std::string why = reason();
    ::unlink(path_.c_str());
    throw UserError(path_ + ": cannot be closed: " + why);
  }
}

void write_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

std::string read_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw UserError(path + ": cannot be opened: " + reason());
  std::string text;
  char buffer[65536];
  ssize_t count;
  while ((count = ::read(descriptor, buffer, sizeof buffer)) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const std::string why = reason();
      ::close(descriptor);
      throw UserError(path + ": cannot be read: " + why);
    }
    text.append(buffer, static_cast<size_t>(count));
  }
  ::close(descriptor);
  return text;
}

}  // namespace reprise
