// Tests the filter for everything that a program prints: tools/files/progress/shown_output.h.
#include "tools/files/progress/shown_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <streambuf>
#include <string>
#include <vector>

#include "tools/run/session/command_line.h"

namespace reprise {
namespace {

// Runs `print` in a child process, and returns its output on both streams. stdout is a pipe or
// `stdout_file`, which may be a full device.
std::string printed(const std::function<int()>& print, const char* stdout_file = nullptr, int expected_status = 0) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  std::fflush(stdout);  // otherwise the child would print the test's own output again
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
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(count));
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
  EXPECT_EQ(printed([] {
              return std::cout << "\xf0\x9f" << std::flush << "\x98\x80 \xe2"
                               << "\x80" << std::flush << "\xae!\n",
                     0;
            }),
            "\xf0\x9f\x98\x80 \\u202e!\n");
  EXPECT_EQ(printed([] {
              return std::cout << "\xe2\x80"
                               << "a\xc3"
                               << "\xc3\xa4"
                               << "\xe2",
                     0;
            }),
            "\\xe2\\x80a\\xc3\xc3\xa4\\xe2");
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
  EXPECT_EQ(printed([&] { return std::cerr << "warning: " + name + " is left out\n", 0; }),
            "warning: " + shown + " is left out\n");
  EXPECT_EQ(printed([&] { return std::cout << "{\"name\": \"" + name + "\"}\n", 0; }),
            "{\"name\": \"" + name + "\"}\n");
}

// Counts the calls that write to a stream.
class CountedWrites : public std::streambuf {
 public:
  std::vector<std::string> writes;

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    writes.emplace_back(text, static_cast<size_t>(count));
    return count;
  }
};

TEST(ShownOutput, WritesEachLineOfAMessageByOneCall) {
  CountedWrites counted;
  std::streambuf* const before = std::cerr.rdbuf(&counted);
  const std::string long_line(5000, ' ');
  {
    const ShownOutput shown;
    std::cerr << "warning: " << 7 << " \x1b and Größe";
    EXPECT_EQ(counted.writes.size(), 0u);
    std::cerr << "\nnext: " << 'a' << "\nlast";
    EXPECT_EQ(counted.writes, (std::vector<std::string>{"warning: 7 \\u001b and Größe\n", "next: a\n"}));
    std::cerr << "> " << std::flush;
    EXPECT_EQ(counted.writes.back(), "last> ");
    std::cerr << "x" << long_line << "y\n";
    std::cerr << "end";
  }
  std::string all;
  for (const std::string& write : counted.writes) all += write;
  EXPECT_EQ(all, "warning: 7 \\u001b and Größe\nnext: a\nlast> x" + long_line + "y\nend");
  EXPECT_EQ(counted.writes.back(), "end");
  std::cerr.rdbuf(before);
}

TEST(ShownOutput, StillReportsAFullDisk) {
  const std::string said =
      printed([] { return std::cout << std::string(100000, 'x') << "\xc3", checked_output(0, "test"); }, "/dev/full",
              1);
  EXPECT_EQ(said, "test: the output could not be written to stdout\n");
}

}  // namespace
}  // namespace reprise
