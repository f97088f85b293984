// See output.h.
#include "tools/files/io/output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "tools/files/io/error.h"
#include "tools/files/io/leftovers.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMarkedBytes = 4096;  // the mark is within the first kMarkedBytes bytes of a file
constexpr size_t kLargestGap = 16;     // maximum bytes between "written_by" and the mark

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

std::string beginning_of(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return "";
  std::string text(kMarkedBytes, '\0');
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size(), 0);
  ::close(descriptor);
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return text;
}

bool is_own(const std::string& path, const OutputKind& kind) {
  return kind.is_own != nullptr ? kind.is_own(path) : has_mark(path, kind);
}

bool is_entry(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

// Returns the path with links followed: a link stays, and the file that it names is replaced.
std::string target_of(const std::string& path) {
  if (path.empty()) throw UserError("an output must be a path, not \"\"");
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path target = fs::canonical(path, error);
  if (error) throw UserError(path + ": is a link to what is not there; give another path, or remove the link");
  return target.string();
}

// True if the process that wrote this file has ended: no process on this machine has its number,
// and no process on any machine has the file locked.
bool is_abandoned(const std::string& leftover, pid_t process) {
  // kill() fails with another error than ESRCH for a process of another user.
  if (process <= 0 || ::kill(process, 0) == 0 || errno != ESRCH) return false;
  const int descriptor = ::open(leftover.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool is_locked = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return !is_locked;
}

}  // namespace

std::string mark_of(const OutputKind& kind) { return std::string("reprise ") + kind.name; }

std::string marked_json(const OutputKind& kind, const std::string& json_object) {
  const size_t first = json_object.find_first_not_of(" \n", 1);
  const std::string space = first == std::string::npos ? "" : json_object.substr(1, first - 1);
  const bool is_empty = first == std::string::npos || json_object[first] == '}';
  return "{" + space + "\"" + kWriterKey + "\": \"" + mark_of(kind) + "\"" + (is_empty ? "" : ",") +
         json_object.substr(1);
}

bool has_mark(const std::string& path, const OutputKind& kind) {
  const std::string text = beginning_of(path), key = kWriterKey, mark = mark_of(kind);
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    size_t begin = at + key.size();
    while (begin < text.size() && begin - at - key.size() < kLargestGap && !is_letter_or_digit(text[begin])) ++begin;
    const size_t end = begin + mark.size();
    if (text.compare(begin, mark.size(), mark) == 0 && (end >= text.size() || !is_letter_or_digit(text[end])))
      return true;
  }
  return false;
}

void require_space(const std::vector<SpaceNeed>& needs) {
  struct Space {
    uint64_t needed = 0, free = 0;
    std::string words;
  };
  std::map<dev_t, Space> buffers;
  for (const SpaceNeed& need : needs) {
    std::error_code ignored;
    fs::path place = fs::weakly_canonical(need.path, ignored);
    while (!fs::exists(place, ignored) && place.has_relative_path()) place = place.parent_path();
    struct stat status;
    struct statvfs space;
    // An error is ignored here, because the writer will report it.
    if (::stat(place.c_str(), &status) != 0 || ::statvfs(place.c_str(), &space) != 0) continue;
    Space& of = buffers[status.st_dev];
    of.free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
    of.needed += need.bytes;
    of.words += (of.words.empty() ? "" : " and ") + need.what + " in " + need.path + " (" + std::to_string(need.bytes) +
                " bytes)";
  }
  for (const auto& [device, space] : buffers) {
    if (space.needed > space.free)
      throw UserError("the disk has " + std::to_string(space.free) + " bytes free, and " +
                      std::to_string(space.needed) + " are needed for " + space.words +
                      "; free some, or give another folder");
  }
}

std::string relative_path(const std::string& path, const std::string& folder) {
  return fs::absolute(path)
      .lexically_normal()
      .lexically_relative(fs::absolute(folder.empty() ? "." : folder).lexically_normal())
      .string();
}

bool is_same_file(const std::string& one, const std::string& other) {
  struct stat a, b;
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

Output::Output(const std::string& path, const OutputKind& kind, std::vector<std::string> inputs)
    : path_(path), target_(descriptor_named(path) ? path : target_of(path)), kind_(kind), inputs_(std::move(inputs)) {
  struct stat status;
  in_place_ = descriptor_named(path) ||
              (::stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
  check();
}

void Output::check() const {
  struct stat status;
  if (::stat(target_.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) throw UserError(path_ + ": cannot be written: is a folder");
  if (!S_ISREG(status.st_mode)) return;
  for (const std::string& input : inputs_) {
    if (!input.empty() && is_same_file(target_, input)) {
      throw UserError(path_ + ": is the input itself" + (input == path_ ? "" : ", " + input) +
                      ", which would be lost; give another output");
    }
  }
  if (in_place_ || status.st_size == 0 || is_own(target_, kind_)) return;
  throw UserError(path_ + ": is there, and is no file that this program has written as its " + kind_.name +
                  "; move it away, or give another path");
}

void Output::require_writable() const {
  if (in_place_) return;
  const std::string fresh = temporary_beside(target_);
  const int descriptor = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) throw UserError(path_ + ": cannot be written: " + std::strerror(errno));
  ::close(descriptor);
  ::unlink(fresh.c_str());
}

void Output::write(const std::string& text) const {
  write([&](const std::string& to) { write_file(to, text); });
}

void Output::write(const std::function<void(const std::string&)>& write) const {
  const std::string staged = stage(write);
  if (in_place_) return;
  const Leftover unfinished(staged);
  place(staged);
}

std::string Output::stage(const std::function<void(const std::string&)>& write) const {
  check();
  if (in_place_) return write(target_), target_;
  remove_leftovers();
  const std::string fresh = temporary_beside(target_);
  const Leftover unfinished(fresh);
  try {
    write(fresh);
  } catch (...) {
    ::unlink(fresh.c_str());
    throw;
  }
  return fresh;
}

void Output::place(const std::string& staged) const {
  if (in_place_) return;
  const auto fail = [&] {
    const std::string why = std::strerror(errno);
    ::unlink(staged.c_str());
    throw UserError(path_ + ": cannot be replaced: " + why);
  };
  if (!is_entry(target_)) {
    if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0) return;
    // The file system does not support this flag
    const bool is_refused = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
    if (!is_refused && errno != EEXIST) fail();
  }
  try {
    check();
  } catch (...) {
    ::unlink(staged.c_str());
    throw;
  }
  if (::rename(staged.c_str(), target_.c_str()) != 0) fail();
}

void Output::remove_leftovers() const {
  const fs::path target = target_;
  const std::string start = target.filename().string() + kFreshEnding;
  std::error_code ignored;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string(), path = entry.path().string();
    struct stat status;
    if (!name.starts_with(start) || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_nlink != 1)
      continue;
    const std::string number = name.substr(start.size(), name.find('-', start.size()) - start.size());
    const bool is_number =
        !number.empty() && number.size() <= 10 && number.find_first_not_of("0123456789") == std::string::npos;
    const bool is_ours =
        status.st_uid == ::geteuid() && (status.st_size == 0 || kind_.ends_with_mark || is_own(path, kind_));
    if (is_number && is_ours && is_abandoned(path, static_cast<pid_t>(std::atol(number.c_str()))))
      fs::remove(entry.path(), ignored);
  }
}

void require_different(const std::vector<std::pair<const char*, std::string>>& outputs) {
  std::error_code ignored;
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto& [option, path] = outputs[i];
      const auto& [other, taken] = outputs[j];
      if (path.empty() || taken.empty() || descriptor_named(path)) continue;
      const bool is_device =
          fs::exists(path, ignored) && !fs::is_regular_file(path, ignored) && !fs::is_directory(path, ignored);
      if (is_device ||
          (fs::weakly_canonical(path, ignored) != fs::weakly_canonical(taken, ignored) && !is_same_file(path, taken)))
        continue;
      throw UserError(std::string(other) + ", " + option + ": must be two files, not both " + path, UserError::kUsage);
    }
  }
}

}  // namespace reprise
