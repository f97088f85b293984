// Runs a program as a person would: arguments, exit status, what came on stdout and stderr, signals, limits.
// Here because the two programs are judged from outside.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace reprise::test {

struct ProcessOptions {
  std::string input = {};                     // what it reads on stdin
  std::vector<std::string> environment = {};  // "NAME=value", added to ours
  uint64_t largest_file_bytes = 0;            // RLIMIT_FSIZE; 0: none
  uint64_t most_address_bytes = 0;            // RLIMIT_AS; 0: none
  uint64_t most_data_bytes = 0;               // RLIMIT_DATA: what it can write, without code and read-only files; 0: none
  double most_seconds = 300;                  // then it is killed: a program that hangs, not one that sanitizers slow down
};

// Returns the text without the lines of long work ("planning rn, 2 s"), which appear under the sanitizers or on a busy machine.
std::string without_progress(const std::string& err);

struct ProcessResult {
  int status = -1;  // the exit status; 128 + signal where one ended it
  std::string out, err;

  // stderr is one line that holds every one of these, beside what is said of long work.
  bool is_one_line_with(const std::vector<std::string>& fragments) const;
};

// A program that runs. Its output goes to files that have no name, so that it never waits for a reader.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();  // kills it if nobody waited
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return pid_; }
  void signal(int number) const;
  std::string err_so_far() const;
  ProcessResult wait();

 private:
  double most_seconds_;
  int out_ = -1, err_ = -1;
  pid_t pid_ = -1;
};

ProcessResult run(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

// The folder that is being tested: $BUILD, else "build"; absolute.
std::string build_folder();
// build/reprise with these arguments.
ProcessResult reprise_command(std::vector<std::string> arguments, const ProcessOptions& options = {});

std::string file_text(const std::string& path);  // "" where there is none
void write_text(const std::string& path, const std::string& text);
void sleep_seconds(double seconds);

// Asks every few milliseconds until `holds`, for at most `most_seconds`; returns whether it does. A busy machine may take long: the limit is for what
// never comes.
bool await(const std::function<bool()>& holds, double most_seconds = 200);

// How many times longer than on a machine of its own a program may take now: the processes that want a processor for each that there is, at least 1.
double busy_factor();

}  // namespace reprise::test
