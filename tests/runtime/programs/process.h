// Runs a program as a user does, with arguments, signals and limits, and returns its exit status
// and its output on stdout and stderr. Tests use it to check the programs only from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace reprise::test {

struct ProcessOptions {
  std::string input = {};                     // text for the program's stdin
  std::vector<std::string> environment = {};  // "NAME=value", in addition to the test's environment
  uint64_t largest_file_bytes = 0;            // RLIMIT_FSIZE in bytes; 0: no limit
  uint64_t max_address_bytes = 0;            // RLIMIT_AS in bytes; 0: no limit
  uint64_t max_data_bytes = 0;  // RLIMIT_DATA: writable memory, without code and read-only files; 0: no limit
  double max_seconds = 300;                  // after this time the program is killed; long, because sanitizers are slow
};

// Returns the text without progress lines such as "planning rn, 2 s", which a program prints if it
// is slow, for example under sanitizers.
std::string without_progress(const std::string& err);

struct ProcessResult {
  int status = -1;  // exit status; 128 + signal if a signal ended it
  std::string out, err;

  // True if stderr has exactly one line, apart from progress lines, and the line contains every
  // fragment.
  bool is_one_line_with(const std::vector<std::string>& fragments) const;
};

// A running program. It writes to files without names, so that it never waits for a reader.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();  // kills the program if it is still running
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return pid_; }
  void signal(int number) const;
  std::string err_so_far() const;
  ProcessResult wait();

 private:
  double max_seconds_;
  int out_ = -1, err_ = -1;
  pid_t pid_ = -1;
};

ProcessResult run(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

// Returns the absolute path of the tested build folder: $BUILD, or "build" if it is not set.
std::string build_folder();
// Runs build/reprise with these arguments.
ProcessResult reprise_command(std::vector<std::string> arguments, const ProcessOptions& options = {});

// Returns the content of the file; "" if there is no file.
std::string file_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);
void sleep_seconds(double seconds);

// Calls `holds` every few milliseconds, until it returns true or `max_seconds` have passed. Returns
// its last result. The limit is long, because a busy machine is slow.
bool await(const std::function<bool()>& holds, double max_seconds = 200);

// Returns the factor by which a program may be slower now than on an idle machine: the number of
// runnable processes per processor, at least 1.
double busy_factor();

}  // namespace reprise::test
