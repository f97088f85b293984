// See process.h. Uses fork, setrlimit, exec and wait. The program writes to files without names,
// which are read when it has ended.
#include "tests/runtime/programs/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace reprise::test {

namespace {

int nameless_file() {
  std::string path = (std::filesystem::temp_directory_path() / "reprise_output_XXXXXX").string();
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0 || ::unlink(path.c_str()) != 0) throw std::runtime_error("no temporary file at " + path);
  return descriptor;
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  ssize_t count;
  for (off_t at = 0; (count = ::pread(descriptor, buffer, sizeof buffer, at)) > 0; at += count)
    text.append(buffer, static_cast<size_t>(count));
  return text;
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const ProcessOptions& options, int in, int out,
                         int err) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const std::string& entry : options.environment) ::putenv(const_cast<char*>(entry.c_str()));
  const auto limit = [](auto resource, uint64_t bytes) {
    const rlimit maximum = {bytes, bytes};
    if (bytes != 0) ::setrlimit(resource, &maximum);
  };
  limit(RLIMIT_FSIZE, options.largest_file_bytes);
  limit(RLIMIT_AS, options.max_address_bytes);
  limit(RLIMIT_DATA, options.max_data_bytes);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::signal(SIGHUP, SIG_DFL);  // the test suite may run under nohup, which ignores SIGHUP
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

// Returns the descriptor of an unlinked file that contains `text`. Reading starts at its begin.
int file_of(const std::string& text) {
  const int descriptor = nameless_file();
  if (::pwrite(descriptor, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("no temporary file can be written");
  return descriptor;
}

}  // namespace

std::string without_progress(const std::string& err) {
  std::istringstream lines(err);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    const size_t comma = line.rfind(", ");
    const size_t unit = comma == std::string::npos ? comma : line.find_first_not_of("0123456789", comma + 2);
    const bool is_progress = unit != std::string::npos && unit > comma + 2 && line.substr(unit) == " s";
    if (!is_progress) rest += line + "\n";
  }
  return err.ends_with("\n") || rest.empty() ? rest : rest.substr(0, rest.size() - 1);
}

bool ProcessResult::is_one_line_with(const std::vector<std::string>& fragments) const {
  const std::string line = without_progress(err);
  if (line.empty() || line.find('\n') != line.size() - 1) return false;
  for (const std::string& fragment : fragments) {
    if (line.find(fragment) == std::string::npos) return false;
  }
  return true;
}

Process::Process(const std::vector<std::string>& arguments, const ProcessOptions& options)
    : max_seconds_(options.max_seconds), out_(nameless_file()), err_(nameless_file()) {
  const int in = file_of(options.input);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ == 0) become(arguments, options, in, out_, err_);
  ::close(in);
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(out_);
  ::close(err_);
}

void Process::signal(int number) const { ::kill(pid_, number); }

std::string Process::err_so_far() const { return read_all(err_); }

ProcessResult Process::wait() {
  int state = 0;
  constexpr double kPause = 0.002;
  for (double waited = 0; ::waitpid(pid_, &state, WNOHANG) == 0; waited += kPause) {
    if (waited > max_seconds_) ::kill(pid_, SIGKILL);
    sleep_seconds(kPause);
  }
  pid_ = -1;
  return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), read_all(out_), read_all(err_)};
}

ProcessResult run(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  return Process(arguments, options).wait();
}

std::string build_folder() {
  const char* build = std::getenv("BUILD");
  return std::filesystem::absolute(build != nullptr ? build : "build").string();
}

ProcessResult reprise_command(std::vector<std::string> arguments, const ProcessOptions& options) {
  arguments.insert(arguments.begin(), build_folder() + "/reprise");
  return run(arguments, options);
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!(file << text).flush()) throw std::runtime_error("cannot write " + path);
}

bool await(const std::function<bool()>& holds, double max_seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (!holds()) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > max_seconds) return false;
    sleep_seconds(0.002);
  }
  return true;
}

double busy_factor() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return 1;
  return std::max(1.0, (load + 1) / std::max(1u, std::thread::hardware_concurrency()));
}

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace reprise::test
