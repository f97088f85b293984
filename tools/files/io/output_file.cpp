// Writes a file with POSIX calls and checks each of them. iostreams and stdio report a full disk
// late or not at all.
#include "tools/files/io/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"

namespace reprise {
namespace {

std::string reason() { return std::strerror(errno); }

// True for a regular file. /dev/full and other devices are not regular; they are never deleted.
bool is_regular(int descriptor) {
  struct stat status;
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

int open_to_write(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  // Clears O_NONBLOCK: later writes may wait for a slow reader.
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (const std::optional<int> named = descriptor_named(path)) {
    descriptor_ = ::fcntl(*named, F_DUPFD_CLOEXEC, 0);
  } else {
    descriptor_ = open_to_write(path, O_CREAT | O_TRUNC);
    if (descriptor_ >= 0 && is_regular(descriptor_)) {
      unfinished_.emplace(path);
      (void)::flock(descriptor_, LOCK_EX | LOCK_NB);
    }
  }
  if (descriptor_ < 0)
    throw UserError(path + ": cannot be created: " + (errno == ENXIO ? "nobody reads this pipe or socket" : reason()));
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (unfinished_) ::unlink(path_.c_str());
}

void OutputFile::write(const void* data, uint64_t bytes) {
  constexpr uint64_t kLargestWrite = uint64_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB in one call
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
  // EINVAL: the descriptor is a pipe or a device, which has nothing to flush.
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
    if (!number.empty() && number.size() <= 9 && number.find_first_not_of("0123456789") == std::string::npos)
      return std::stoi(number);
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

namespace {

// A file or a pipe that is open for reading. A read fails if nothing arrives for some time.
class WholeInput {
 public:
  explicit WholeInput(const std::string& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    if (descriptor_ < 0) throw UserError(path + ": cannot be opened: " + reason());
  }
  ~WholeInput() { ::close(descriptor_); }
  WholeInput(const WholeInput&) = delete;
  WholeInput& operator=(const WholeInput&) = delete;

  // Returns the size of a file; 0 for a pipe or a terminal.
  uint64_t stated_bytes() const {
    struct stat status;
    if (::fstat(descriptor_, &status) != 0) throw UserError(path_ + ": cannot be read: " + reason());
    if (S_ISDIR(status.st_mode)) throw UserError(path_ + ": cannot be read: is a folder; must be a file");
    const bool is_pipe = S_ISFIFO(status.st_mode) || ::isatty(descriptor_) == 1;
    if (!S_ISREG(status.st_mode) && !is_pipe)
      throw UserError(path_ + ": cannot be read: must be a file or a pipe, not a device");
    return S_ISREG(status.st_mode) ? static_cast<uint64_t>(status.st_size) : 0;
  }

  // Returns the number of bytes read; 0 at the end.
  size_t read(char* to, size_t bytes) {
    for (;;) {
      const ssize_t count = ::read(descriptor_, to, bytes);
      if (count > 0) has_begun_ = true;
      if (count > 0 || (count == 0 && !waits_for_writer())) return static_cast<size_t>(count);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN) throw UserError(path_ + ": cannot be read: " + reason());
      wait(count == 0 ? kNobody : kSilent);
    }
  }

 private:
  static constexpr int kNobody = 2, kSilent = 30;  // seconds to wait: for a first writer, and for data

  // True if no process has opened this pipe for writing yet. A read of 0 bytes is then not the end.
  bool waits_for_writer() const {
    pollfd asked = {descriptor_, POLLIN, 0};
    return !has_begun_ && ::poll(&asked, 1, 0) == 0;
  }
  void wait(int seconds) const {
    pollfd asked = {descriptor_, POLLIN, 0};
    const int result = ::poll(&asked, 1, ::isatty(descriptor_) == 1 ? -1 : seconds * 1000);
    if (result == 0)
      throw UserError(path_ + ": nothing came through this pipe for " + std::to_string(seconds) + " s; give a file");
  }

  const std::string& path_;
  const int descriptor_;
  bool has_begun_ = false;
};

}  // namespace

std::string read_file(const std::string& path, uint64_t maximum) {
  WholeInput input(path);
  std::string text;
  char buffer[65536];
  const auto refuse_as_large = [&] {
    if (text.empty()) text.assign(buffer, input.read(buffer, sizeof buffer));
    const std::string limit = std::to_string(maximum >> 20) + " MiB";
    refuse_other_kinds(path, text, "a file of at most " + limit + " here");
    throw UserError(path + ": larger than " + limit + ", the most that is read of such a file");
  };
  const uint64_t bytes = input.stated_bytes();
  if (bytes > maximum) refuse_as_large();
  text.reserve(bytes);
  while (const size_t count = input.read(buffer, sizeof buffer)) {
    text.append(buffer, count);
    if (text.size() > maximum) refuse_as_large();
  }
  return text;
}

}  // namespace reprise
