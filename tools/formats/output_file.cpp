// A file being written through POSIX calls, every one checked.
// Here because iostreams and stdio report a full disk late or never.
#include "tools/formats/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

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
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw UserError(path + ": cannot be created: " + reason());
  if (is_regular(descriptor_)) unfinished_.emplace(path);
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
  unfinished_.reset();
  if (closed != 0) {
    const std::string why = reason();
    ::unlink(path_.c_str());
    throw UserError(path_ + ": cannot be closed: " + why);
  }
}

FileSum write_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text.data(), text.size());
  file.finish();
  return file.sum();
}

std::string temporary_beside(const std::string& path) {
  std::string name;
  struct stat status;
  for (int n = 0; name.empty() || ::lstat(name.c_str(), &status) == 0; ++n) {
    name = path + ".new-" + std::to_string(::getpid()) + (n == 0 ? "" : "-" + std::to_string(n));
  }
  return name;
}

void replace_file(const std::string& path, const std::string& text) {
  replace_file(path, [&](const std::string& to) { write_file(to, text); });
}

void replace_file(const std::string& path, const std::function<void(const std::string&)>& write) {
  struct stat status;
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return write(path);
  const std::string fresh = temporary_beside(path);
  const Leftover unfinished(fresh);
  write(fresh);
  if (::rename(fresh.c_str(), path.c_str()) == 0) return;
  const std::string why = reason();
  ::unlink(fresh.c_str());
  throw UserError(path + ": cannot be replaced: " + why);
}

void require_writable(const std::string& path) {
  struct stat status;
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) throw UserError(path + ": cannot be written: is a folder");
  if (is_there && !S_ISREG(status.st_mode)) return;  // a pipe, a device
  const std::string fresh = temporary_beside(path);
  const int descriptor = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) throw UserError(path + ": cannot be written: " + reason());
  ::close(descriptor);
  ::unlink(fresh.c_str());
}

void require_other_file(const std::string& output, const std::string& input) {
  struct stat a, b;
  if (::stat(output.c_str(), &a) != 0 || ::stat(input.c_str(), &b) != 0 || !S_ISREG(a.st_mode)) return;
  if (a.st_dev == b.st_dev && a.st_ino == b.st_ino) throw UserError(output + ": is the input itself, which would be lost; give another output");
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
