// Shows the progress of long work on stderr, from its third second on. A terminal shows one line
// that is redrawn each second; other outputs get a line every ten seconds.
//   planning gpt-1000: optimal schedule, 37%, 12 s
// The function that does the work creates the object, so that no callback has to be passed to it.
#pragma once

#include <cstddef>
#include <string>

namespace reprise {

// Shows `what` as long as the object exists. Work that starts within other work is appended to its
// name after a colon.
class LongWork {
 public:
  explicit LongWork(const std::string& what);
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  // Sets the share of the work that is done, from 0 to 1. Every thread may call it. Before the
  // first call no share is shown.
  void done(double share);

 private:
  size_t level_;
};

// Writes "NAME: " for each work in progress, outermost first, without allocating. A program calls
// it when it ends because no memory is left. Writes nothing if the names are locked at this moment.
void write_long_work(int descriptor);

// Disables all output, for --quiet.
void silence_long_work();

}  // namespace reprise
