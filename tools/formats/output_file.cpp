// A file being written through POSIX calls, every one checked.
// Here because iostreams and stdio report a full disk late or never.
#include "tools/formats/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "tools/formats/error.h"

namespace reprise {
namespace {

std::string reason() { return std::strerror(errno); }

// False of /dev/full and its like, which are never deleted.
bool is_regular(int descriptor) {
  struct stat status;
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (const std::optional<int> named = descriptor_named(path)) {
    descriptor_ = ::fcntl(*named, F_DUPFD_CLOEXEC, 0);
  } else {
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (is_regular(descriptor_)) {
      unfinished_.emplace(path);
      (void)::flock(descriptor_, LOCK_EX | LOCK_NB);
    }
  }
  if (descriptor_ < 0) throw UserError(path + ": cannot be created: " + reason());
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (unfinished_) ::unlink(path_.c_str());
}

void OutputFile::write(const void* data, uint64_t bytes) {
  constexpr uint64_t kLargestWrite = uint64_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB at once
  const char* next = static_cast<const char*>(data);
  checksum_.add(data, bytes);
  bytes_ += bytes;
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
  const std::string why = reason();
  if (closed != 0) {
    if (unfinished_) ::unlink(path_.c_str());
    throw UserError(path_ + ": cannot be closed: " + why);
  }
  unfinished_.reset();
}

FileSum write_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.finish();
  return file.sum();
}

std::optional<int> descriptor_named(const std::string& path) {
  constexpr std::pair<std::string_view, int> kNames[] = {{"/dev/stdin", 0}, {"/dev/stdout", 1}, {"/dev/stderr", 2}};
  for (const auto& [name, number] : kNames) {
    if (path == name) return number;
  }
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    const std::string number = path.starts_with(folder) ? path.substr(folder.size()) : "";
    if (!number.empty() && number.size() <= 9 && number.find_first_not_of("0123456789") == std::string::npos) return std::stoi(number);
  }
  return std::nullopt;
}

std::string temporary_beside(const std::string& path) {
  std::string name;
  struct stat status;
  for (int n = 0; name.empty() || ::lstat(name.c_str(), &status) == 0; ++n) {
    name = path + kFreshEnding + std::to_string(::getpid()) + (n == 0 ? "" : "-" + std::to_string(n));
  }
  return name;
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
