// See snapshot_directory.h. Uses a lock, a folder next to the snapshot, and one exchange of names.
#include "tools/files/io/snapshot_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw UserError(path + ": " + what + ": " + std::strerror(errno));
}

// Returns the absolute path without a trailing slash. If the path is a symbolic link, it is
// followed, so that the link itself stays.
std::string folder_target_of(const std::string& path) {
  if (path.empty()) throw UserError("snapshot folder: must be a path, not \"\"");
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (error) {
    target = fs::absolute(path).lexically_normal();
    if (!target.has_filename()) target = target.parent_path();
  }
  if (!target.has_filename()) throw UserError(path + ": cannot be a snapshot folder");
  return target.string();
}

bool is_there(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

bool is_folder(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

void flush(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) refuse(path, "cannot be opened");
  const int flushed = ::fsync(descriptor);
  const int flush_error = errno;
  ::close(descriptor);
  if (flushed != 0 && flush_error != EINVAL) {
    errno = flush_error;
    refuse(path, "cannot be flushed to the disk");
  }
}

std::vector<std::string> entries_of(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entries(folder, error);
  if (error) throw UserError(folder + ": cannot be listed: " + error.message());
  for (const auto& entry : entries) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void refuse_foreign_files(const std::string& path, const std::vector<std::string>& file_names) {
  if (!is_there(path)) return;
  if (!is_folder(path)) throw UserError(path + ": is no folder; give a new folder or one that holds a snapshot");
  for (const std::string& name : entries_of(path)) {
    if (std::find(file_names.begin(), file_names.end(), name) != file_names.end()) continue;
    throw UserError(path + ": holds " + name +
                    ", which is not part of what is written there and would be lost; give another folder");
  }
}

constexpr char kLockMark[] = "reprise ";  // beginning of the lock's text; the number of the process follows

// Returns the process that a lock names. Returns 0 if the text cannot be read or is not from this
// program. Returns -1 if there is no text or no number, because the owner was killed before or
// while it wrote.
pid_t owner_of(int lock) {
  char text[64] = {};
  const ssize_t bytes = ::pread(lock, text, sizeof text - 1, 0);
  if (bytes == 0) return -1;
  if (bytes < 0 || std::strncmp(text, kLockMark, sizeof kLockMark - 1) != 0) return 0;
  const long owner = std::strtol(text + sizeof kLockMark - 1, nullptr, 10);
  return owner > 0 ? static_cast<pid_t>(owner) : -1;
}

bool is_empty_folder(const std::string& path) {
  std::error_code error;
  return fs::is_empty(path, error) && !error;
}

// True if this program did not make the folder: it is a link, or it is not empty and has no lock. A
// folder that vanishes meanwhile counts as empty.
bool is_foreign(const std::string& folder) {
  std::error_code error;
  bool holds_any = fs::is_symlink(folder, error);
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().filename() == "lock") return false;
    holds_any = true;
  }
  return holds_any;
}

// Throws if the folder is the root of a file system. A root cannot be exchanged with another
// folder, so that the save at the end would fail.
void refuse_mount(const std::string& folder) {
  struct statx status;
  if (::statx(AT_FDCWD, folder.c_str(), 0, STATX_BASIC_STATS, &status) != 0 ||
      (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
    return;
  throw UserError(folder + ": is the root of a file system, which no other folder can replace; give a folder in it");
}

// True if `path` names the file that is open as `descriptor`. It may name another file, because an
// owner removes the lock file while other processes wait for it.
bool is_open_one(int descriptor, const std::string& path) {
  struct stat open_one, named;
  return ::fstat(descriptor, &open_one) == 0 && ::lstat(path.c_str(), &named) == 0 && open_one.st_dev == named.st_dev &&
         open_one.st_ino == named.st_ino;
}

}  // namespace

void require_replaceable(const std::string& folder, const FolderKind& kind, const std::vector<std::string>& inputs) {
  if (!is_there(folder)) return;
  for (const std::string& input : inputs) {
    const bool is_in_it = !input.empty() && !is_folder(input) && is_there(input) &&
                          is_same_file(folder, fs::absolute(input).parent_path().string());
    if (input.empty() || !(is_in_it || is_same_file(folder, input))) continue;
    throw UserError(folder + (is_in_it ? ": holds the input " + input : ": is an input") +
                    ", which would be lost; give another folder");
  }
  refuse_foreign_files(folder, kind.files);
  const std::vector<std::string> names = entries_of(folder);
  if (names.empty() || kind.is_own(folder)) return;
  throw UserError(folder + ": holds " + names.front() + ", and is no " + kind.name +
                  " that this program has written: it would be lost; give another folder");
}

void remove_snapshot(const std::string& folder, const std::vector<std::string>& names) {
  if (!is_there(folder)) return;
  for (const std::string& name : names) {
    const std::string file = folder + "/" + name;
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) refuse(file, "cannot be removed");
  }
  if (::rmdir(folder.c_str()) == 0) return;
  if (errno == ENOTEMPTY || errno == EEXIST) {
    throw UserError(folder + ": holds files that are not a snapshot's; they would be lost: move them away");
  }
  refuse(folder, "cannot be removed");
}

SnapshotDirectory::SnapshotDirectory(const std::string& path, const FolderKind& kind,
                                     const std::vector<std::string>& inputs)
    : path_(folder_target_of(path)),
      saving_(path_ + ".saving"),
      fresh_(saving_ + "/new"),
      old_(saving_ + "/old"),
      kind_(kind),
      inputs_(inputs) {
  std::error_code ignored;  // mkdir will report the reason
  fs::create_directories(fs::path(path_).parent_path(), ignored);
  require_replaceable(path_, kind_, inputs_);
  refuse_mount(path_);
  take_lock();
  try {
    if (!is_there(path_) && is_folder(old_) && ::rename(old_.c_str(), path_.c_str()) != 0)
      refuse(old_, "cannot be renamed to " + path_);
    remove_snapshot(old_, kind_.files);
    remove_snapshot(fresh_, kind_.files);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

SnapshotDirectory::~SnapshotDirectory() {
  abandon();
  if (made_saving_) {
    ::unlink((saving_ + "/lock").c_str());  // removed while locked: a waiting process checks that the file exists
    ::rmdir(saving_.c_str());
  }
  ::close(lock_);
}

void SnapshotDirectory::take_lock() {
  while (!try_lock()) {
  }
}

// Tries to lock DIR.saving. Returns false if another process removed the folder in between.
bool SnapshotDirectory::try_lock() {
  const std::string lock = saving_ + "/lock";
  made_saving_ = ::mkdir(saving_.c_str(), 0777) == 0;
  if (!made_saving_ && errno != EEXIST) refuse(saving_, "cannot be created");
  // An empty folder: its owner was killed before it created the lock, or is about to remove the
  // folder.
  const bool is_new = made_saving_ || is_empty_folder(saving_);
  lock_ = ::open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (is_new ? O_CREAT : 0), 0666);
  if (lock_ < 0 && errno == ENOENT && !is_foreign(saving_)) return false;
  if (lock_ < 0)
    throw UserError(saving_ + ": is in the way: a run keeps there what it is writing; move it, or give " +
                    kind_.option + " another folder");
  const bool locked = ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
  // The file system has no locks: check whether the process lives instead
  const bool cannot_lock = !locked && errno != EWOULDBLOCK;
  const pid_t owner = owner_of(lock_);
  const bool is_held = cannot_lock ? owner > 0 && owner != ::getpid() && ::kill(owner, 0) == 0 : !locked;
  std::string refusal;
  if (owner == 0) {
    refusal = lock + ": is no lock of a run: move it, or give " + kind_.option + " another folder";
  } else if (is_held) {
    refusal = path_ + ": another run saves there" + (owner > 0 ? ", process " + std::to_string(owner) : "") +
              ": give " + kind_.option + " another folder, or wait until it has ended";
  } else if (is_open_one(lock_, lock)) {
    const std::string text = kLockMark + std::to_string(::getpid()) + "\n";
    if (::ftruncate(lock_, 0) != 0 ||
        ::pwrite(lock_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      refusal = lock + ": cannot be written: " + std::strerror(errno);
    } else {
      made_saving_ = true;
      saving_leftover_.emplace(saving_);
      lock_leftover_.emplace(lock);
      return true;
    }
  }
  ::close(lock_);
  lock_ = -1;
  if (!refusal.empty()) throw UserError(refusal);
  return false;
}

void SnapshotDirectory::begin() {
  remove_snapshot(fresh_, kind_.files);
  fresh_leftover_.emplace(fresh_);
  if (::mkdir(fresh_.c_str(), 0777) != 0) refuse(fresh_, "cannot be created");
}

void SnapshotDirectory::abandon() noexcept {
  try {
    remove_snapshot(fresh_, kind_.files);
  } catch (const UserError&) {  // the next run removes the folder, or reports why it cannot
  }
}

// Moves the new snapshot to DIR. Returns the path of the old folder; "" if there was none.
std::string SnapshotDirectory::put_in_place() {
  if (!is_there(path_)) {
    if (::rename(fresh_.c_str(), path_.c_str()) != 0) refuse(path_, "cannot be put in place");
    return "";
  }
  if (::renameat2(AT_FDCWD, fresh_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) return fresh_;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) refuse(path_, "cannot be exchanged");
  // This file system cannot exchange names: rename twice. If the process is killed in between, the
  // old snapshot is in DIR.saving/old.
  if (::rename(path_.c_str(), old_.c_str()) != 0) refuse(path_, "cannot be renamed");
  if (::rename(fresh_.c_str(), path_.c_str()) != 0) {
    const int rename_error = errno;
    if (::rename(old_.c_str(), path_.c_str()) != 0) refuse(old_, "cannot be renamed back");
    errno = rename_error;
    refuse(path_, "cannot be put in place");
  }
  return old_;
}

void SnapshotDirectory::commit(const std::string& keep_old_as) {
  require_replaceable(path_, kind_, inputs_);
  for (const std::string& name : entries_of(fresh_)) flush(file(name), O_RDONLY);
  flush(fresh_, O_RDONLY | O_DIRECTORY);
  const std::string old = put_in_place();
  flush(saving_, O_RDONLY | O_DIRECTORY);
  flush(fs::path(path_).parent_path().string(), O_RDONLY | O_DIRECTORY);
  if (old.empty()) return;
  if (keep_old_as.empty()) return remove_snapshot(old, kind_.files);
  if (::renameat2(AT_FDCWD, old.c_str(), AT_FDCWD, keep_old_as.c_str(), RENAME_NOREPLACE) != 0)
    refuse(keep_old_as, "the snapshot of before cannot be kept there");
}

void recover_snapshot(const std::string& path, const FolderKind& kind) {
  const std::string target = folder_target_of(path);
  if (!is_there(target) && is_folder(target + ".saving/old")) SnapshotDirectory recovered(path, kind);
  if (!is_folder(target)) throw UserError(path + ": is no folder; give one that holds a snapshot");
}

}  // namespace reprise
