// Tests which files remain after a process that exits at once. Tests tools/files/io/leftovers.h,
// and the writers that register unfinished files.
#include "tools/files/io/leftovers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/snapshot_directory.h"

namespace reprise {
namespace {

bool is_any(const std::string&) { return true; }
constexpr OutputKind kAny = {"any", is_any};

// Runs `work` in a child process. Before its work is complete, `work` calls `end`, which removes
// the leftovers and exits the process as a signal handler does.
void end_at_once_after(const std::function<void(const std::function<void()>& end)>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work([] {
      remove_leftovers();
      ::_exit(0);
    });
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the process has not ended in the middle";
}

TEST(Leftovers, AFileThatIsNotFinishedGoes) {
  const TemporaryFolder folder;
  write_file(folder.file("old"), "old");
  end_at_once_after([&](const auto& end) {
    Output(folder.file("old"), kAny, {}).write([&](const std::string& fresh) {
      OutputFile file(fresh);
      file.write("ne", 2);
      end();
    });
  });
  end_at_once_after([&](const auto& end) {
    Output(folder.file("old"), kAny, {}).write([&](const std::string& fresh) {
      write_file(fresh, "new");
      end();  // the file is complete, but not renamed yet
    });
  });
  EXPECT_EQ(read_file(folder.file("old")), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Leftovers, WhatIsFinishedStays) {
  const TemporaryFolder folder;
  end_at_once_after([&](const auto& end) {
    write_file(folder.file("whole"), "whole");
    end();
  });
  EXPECT_EQ(read_file(folder.file("whole")), "whole");
}

TEST(Leftovers, ASnapshotThatIsNotFinishedGoesWithItsFolder) {
  const TemporaryFolder folder;
  end_at_once_after([&](const auto& end) {
    SnapshotDirectory out(folder.file("s"), {"snapshot", {"model.safetensors"}, is_any});
    out.begin();
    OutputFile file(out.file("model.safetensors"));
    file.write("half", 4);
    end();
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Leftovers, NeitherManyNorLongPathsAreATrouble) {
  const TemporaryFolder folder;
  end_at_once_after([&](const auto& end) {
    std::vector<std::unique_ptr<Leftover>> many;
    for (int n = 0; n < 1000; ++n) many.push_back(std::make_unique<Leftover>(folder.file("none")));
    const Leftover long_path(std::string(100000, 'x'));
    many.clear();
    const Leftover file(folder.file("x"));
    write_file(folder.file("x"), "x");
    end();
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace reprise
