// A folder that is written whole or not at all, by a temporary folder and one exchange of names.
// Here because a run may be killed, or a disk fill up, at any moment of saving.
#include "tools/formats/snapshot_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tools/formats/error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw UserError(path + ": " + what + ": " + std::strerror(errno));
}

// Absolute, without a trailing slash; a symbolic link to the folder is followed, so that the link stays.
std::string target_of(const std::string& path) {
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

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);  // does not follow symbolic links
  if (error) throw UserError(path + ": cannot be removed: " + error.message());
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
                    ", which is not part of a snapshot and would be lost; give another folder");
  }
}

// Puts `fresh` where `path` is. Afterwards the old folder, if there was one, is at the place that is returned.
std::string put_in_place(const std::string& fresh, const std::string& path) {
  if (!is_there(path)) {
    if (::rename(fresh.c_str(), path.c_str()) != 0) refuse(path, "cannot be put in place");
    return "";
  }
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return fresh;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) refuse(path, "cannot be exchanged");
  // No exchange on this file system: two renames. A kill between them leaves DIR.old, see recover_snapshot.
  const std::string old = path + ".old";
  remove_folder(old);
  if (::rename(path.c_str(), old.c_str()) != 0) refuse(path, "cannot be renamed");
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int rename_error = errno;
    if (::rename(old.c_str(), path.c_str()) != 0) refuse(old, "cannot be renamed back");
    errno = rename_error;
    refuse(path, "cannot be put in place");
  }
  return old;
}

// A kill between put_in_place's two renames: the old snapshot gets its name back.
void restore_old(const std::string& path) {
  const std::string old = path + ".old";
  if (is_there(path) || !is_folder(old)) return;
  if (::rename(old.c_str(), path.c_str()) != 0) refuse(old, "cannot be renamed to " + path);
}

}  // namespace

SnapshotDirectory::SnapshotDirectory(const std::string& path) : path_(target_of(path)), temporary_(path_ + ".tmp") {
  std::error_code ignored;  // mkdir will say why not
  fs::create_directories(fs::path(path_).parent_path(), ignored);
  restore_old(path_);
  remove_folder(temporary_);
  if (::mkdir(temporary_.c_str(), 0777) != 0) refuse(temporary_, "cannot be created");
}

SnapshotDirectory::~SnapshotDirectory() {
  std::error_code ignored;  // a destructor cannot report; the next run removes it
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void SnapshotDirectory::commit() {
  const std::vector<std::string> names = entries_of(temporary_);
  refuse_foreign_files(path_, names);
  for (const std::string& name : names) flush(file(name), O_RDONLY);
  flush(temporary_, O_RDONLY | O_DIRECTORY);
  const std::string old = put_in_place(temporary_, path_);
  committed_ = true;
  flush(fs::path(path_).parent_path().string(), O_RDONLY | O_DIRECTORY);
  if (!old.empty()) remove_folder(old);
}

void check_snapshot_target(const std::string& path, const std::vector<std::string>& file_names) {
  const std::string target = target_of(path);
  refuse_foreign_files(target, file_names);
  SnapshotDirectory probe(path);  // creates DIR.tmp and removes it again
}

void recover_snapshot(const std::string& path) {
  const std::string target = target_of(path);
  restore_old(target);
  if (!is_folder(target)) throw UserError(path + ": is no folder; give one that holds a snapshot");
}

}  // namespace reprise
