// Work that may take long says so on stderr: from its third second on a line a second, on a terminal one line that is redrawn.
//   planning gpt-1000: optimal schedule, 37%, 12 s
// Here so that whoever does the work names it where it is done, and nobody hands a callback through.
#pragma once

#include <cstddef>
#include <string>

namespace reprise {

// From its making to its end. Those that are made inside another one's life follow its words behind a colon.
class LongWork {
 public:
  explicit LongWork(const std::string& what);
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  // How much of it is done, from 0 to 1; from any thread. Nothing is shown of it before the first call.
  void done(double share);

 private:
  size_t level_;
};

// Nothing is shown from here on: --quiet.
void silence_long_work();

}  // namespace reprise
