// See file_lock.h.
#include "tools/files/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"

namespace reprise {

FileLock::FileLock(const std::string& path, const std::string& waiting, const std::function<void()>& interrupted) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  descriptor_ =
      ::open(path.c_str(), is_folder ? O_RDONLY | O_CLOEXEC : O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) throw UserError(path + ": cannot be opened: " + std::strerror(errno));
  const LongWork work(waiting);
  try {
    while (::flock(descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) return;
      if (interrupted) interrupted();
    }
  } catch (...) {
    give_back();
    throw;
  }
}

void FileLock::give_back() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace reprise
