// A lock that one process has at a time, for as long as it keeps it; a process that ends gives it back.
// Here because several runs on one machine, or ranks of one, make the same files.
#pragma once

#include <functional>
#include <string>

namespace reprise {

class FileLock {
 public:
  // Waits for it, and says so on stderr in `waiting`'s words; a file system without locks gives it at once. `path` is a folder, or a file, which is made
  // where it is not there, and stays. `interrupted` is called when a signal has come; it may throw. Throws UserError where it cannot be opened.
  FileLock(const std::string& path, const std::string& waiting, const std::function<void()>& interrupted = {});
  ~FileLock() { give_back(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  void give_back();

 private:
  int descriptor_ = -1;
};

}  // namespace reprise
