// Registers what would stay if the process ended now: unfinished files and folders, and a compiler that runs.
// Here because the handler of a signal may end the process, and may call hardly anything.
#pragma once

#include <string>

namespace reprise {

// Registers a file, or a folder that is of no use once it is empty, from its making to its end.
class Leftover {
 public:
  explicit Leftover(const std::string& path);
  ~Leftover();
  Leftover(const Leftover&) = delete;
  Leftover& operator=(const Leftover&) = delete;

 private:
  int slot_;  // -1: the path is too long, or too many are registered
};

// Registers a process that leads a group of its own, from its making to its end.
class RunningChild {
 public:
  explicit RunningChild(int process);
  ~RunningChild();
  RunningChild(const RunningChild&) = delete;
  RunningChild& operator=(const RunningChild&) = delete;
};

// Ends the registered process with its group and waits for it, then deletes the registered files and those of the folders that are empty.
// A handler of a signal may call it.
void remove_leftovers();

}  // namespace reprise
