// Registers what must be removed if the process is ended by a signal: unfinished files and folders,
// and a child process. A signal handler removes them; it may call only a few functions.
#pragma once

#include <string>

namespace reprise {

// Registers a file, or a folder that is to be removed if it is empty, for the object's lifetime.
class Leftover {
 public:
  explicit Leftover(const std::string& path);
  ~Leftover();
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;

 private:
  int slot_;  // -1: not registered, because the path is too long or the table is full
};

// Registers a child process, the leader of its own process group, for the object's lifetime.
class RunningChild {
 public:
  explicit RunningChild(int process);
  ~RunningChild();
  RunningChild(const RunningChild&) = delete;
  RunningChild& operator=(const RunningChild&) = delete;
};

// Ends the registered process with its group and waits for it. Then deletes the registered files,
// and the registered folders that are empty. Async-signal-safe.
void remove_leftovers();

}  // namespace reprise
