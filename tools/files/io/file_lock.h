// A lock that only one process has at a time; it is released when the process ends. It is needed
// because several runs on one machine, or several ranks of one run, create the same files.
#pragma once

#include <functional>
#include <string>

namespace reprise {

// Holds the lock for its lifetime, or until give_back().
class FileLock {
 public:
  // Waits for the lock, and shows `waiting` on stderr meanwhile; returns at once if the file system
  // has no locks. `path` is a folder or a file; a file is created if it does not exist, and is not
  // deleted. `interrupted` is called after each signal and may throw. Throws UserError if `path`
  // cannot be opened.
  FileLock(const std::string& path, const std::string& waiting, const std::function<void()>& interrupted = {});
  ~FileLock() { give_back(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  // Releases the lock.
  void give_back();

 private:
  int descriptor_ = -1;
};

}  // namespace reprise
