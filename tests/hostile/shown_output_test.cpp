// Tests the filter of all that a program prints: tools/progress/shown_output.h.
#include "tools/progress/shown_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>

#include "tools/command_line.h"

namespace reprise {
namespace {

// Returns what a process prints on both streams whose stdout is a pipe, or a file that is full.
std::string printed(const std::function<int()>& print, const char* stdout_file = nullptr, int expected_status = 0) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  std::fflush(stdout);  // what the test's own program has printed is not the child's
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::dup2(stdout_file == nullptr ? ends[1] : ::open(stdout_file, O_WRONLY), STDOUT_FILENO);
    int status = 0;
    {
      const ShownOutput shown;
      status = print();
    }
    std::cout.flush();
    std::fflush(stdout);
    ::_exit(status);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(count));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), expected_status);
  return text;
}

TEST(ShownOutput, EscapesWhatATerminalObeysOnBothStreams) {
  EXPECT_EQ(printed([] { return std::cout << "a\tb \x1b[2J\r\n" << 7 << "\n", 0; }), "a\tb \\u001b[2J\\u000d\n7\n");
  EXPECT_EQ(printed([] { return std::cerr << "x\xe2\x80\xae" << '\a' << "\x9b\n", 0; }), "x\\u202e\\u0007\\x9b\n");
}

TEST(ShownOutput, JoinsACharacterThatComesInPieces) {
  EXPECT_EQ(printed([] { return std::cout << "\xf0\x9f" << std::flush << "\x98\x80 \xe2" << "\x80" << std::flush << "\xae!\n", 0; }), "\xf0\x9f\x98\x80 \\u202e!\n");
  EXPECT_EQ(printed([] { return std::cout << "\xe2\x80" << "a\xc3" << "\xc3\xa4" << "\xe2", 0; }), "\\xe2\\x80a\\xc3\xc3\xa4\\xe2");
  const std::string text = "a\xe2\x80\xae\xf3\xa0\x81\x81\xed\xa0\x80\xf4\x90\x80\x80 Größe 尺寸 😀\x1b";
  const std::string whole = printed([&] { return std::cout << text, 0; });
  EXPECT_EQ(printed([&] {
              for (const char c : text) std::cout << c << std::flush;
              return 0;
            }),
            whole);
}

TEST(ShownOutput, LetsDataPassThatAskForIt) {
  const std::string text = "\x1b[31m\xff\xe2\x80";
  EXPECT_EQ(printed([&] {
              std::cout << "\xe2";
              pass_exact_output();
              std::cout << text;
              std::cerr << "\x1b";
              return 0;
            }),
            "\\xe2" + text + "\\u001b");
}

TEST(ShownOutput, ShortensLongNamesInMessagesAlone) {
  const std::string name(5000, 'x'), shown = std::string(120, 'x') + "..." + std::string(77, 'x');
  EXPECT_EQ(printed([&] { return std::cerr << "warning: " + name + " is left out\n", 0; }), "warning: " + shown + " is left out\n");
  EXPECT_EQ(printed([&] { return std::cout << "{\"name\": \"" + name + "\"}\n", 0; }), "{\"name\": \"" + name + "\"}\n");
}

TEST(ShownOutput, StillReportsAFullDisk) {
  const std::string said = printed([] { return std::cout << std::string(100000, 'x') << "\xc3", checked_output(0, "test"); }, "/dev/full", 1);
  EXPECT_EQ(said, "test: the output could not be written to stdout\n");
}

}  // namespace
}  // namespace reprise
