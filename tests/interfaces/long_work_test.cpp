// Tests the progress line of long work: in a pipe, on a narrow terminal, and with --quiet. All
// cases run at the same time, because each takes four seconds.
#include "tools/files/progress/long_work.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>

namespace reprise::test {
namespace {

constexpr char kLong[] = "planning a network whose name is longer than the terminal is wide";

void work_for(double seconds) {
  const LongWork outer(kLong);
  LongWork inner("optimal schedule");
  inner.done(0.375);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Starts a process that does long work, with `stderr_end` as its stderr. The parent reads the other
// end.
pid_t worker(int stderr_end, double seconds, bool quiet) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::dup2(stderr_end, STDERR_FILENO);
  if (quiet) silence_long_work();
  work_for(seconds);
  ::_exit(0);
}

std::string all_that_is_written(int descriptor) {
  std::string text;
  char bytes[256];
  for (ssize_t count; (count = ::read(descriptor, bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(count));
  ::close(descriptor);
  return text;
}

struct Watched {
  int reader, writer;
};

Watched watched_pipe() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {ends[0], ends[1]};
}

Watched watched_terminal(unsigned short columns) {
  const int reader = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(reader, 0);
  EXPECT_EQ(::grantpt(reader), 0);
  EXPECT_EQ(::unlockpt(reader), 0);
  const int writer = ::open(::ptsname(reader), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const struct winsize size = {24, columns, 0, 0};
  EXPECT_EQ(::ioctl(writer, TIOCSWINSZ, &size), 0);
  return {reader, writer};
}

TEST(LongWork, SaysSoFromTheThirdSecondOn) {
  const Watched pipe = watched_pipe(), terminal = watched_terminal(40), silent = watched_pipe(), quick = watched_pipe();
  const pid_t children[] = {worker(pipe.writer, 3.5, false), worker(terminal.writer, 3.5, false),
                            worker(silent.writer, 3.5, true), worker(quick.writer, 0.1, false)};
  for (const Watched& each : {pipe, terminal, silent, quick}) ::close(each.writer);
  // One line is written, because the next would follow ten seconds later.
  const std::string words = std::string(kLong) + ": optimal schedule, 37%, ";
  const std::string piped = all_that_is_written(pipe.reader);
  EXPECT_TRUE(std::regex_match(piped, std::regex("(" + words + "[0-9]+ s\n)"))) << piped;
  // One line is drawn and redrawn. It is one column narrower than the terminal, and is cleared at
  // the end.
  const std::string drawn = all_that_is_written(terminal.reader);
  EXPECT_TRUE(std::regex_match(drawn, std::regex("(\r" + words.substr(0, 39) + "\x1b\\[K){1,2}\r\x1b\\[K"))) << drawn;
  EXPECT_EQ(all_that_is_written(silent.reader), "");
  EXPECT_EQ(all_that_is_written(quick.reader), "");
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace reprise::test
