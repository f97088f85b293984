// Helpers for tests of bad input: a check that an error is one clear line, and a temporary folder.
// All readers of files use them, because they must report errors in one form.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "tools/files/io/error.h"

namespace reprise {

// Requires that `call` throws a UserError with status 1, whose text is one line and contains every
// fragment.
template <typename Call>
void expect_user_error(const Call& call, std::initializer_list<std::string> fragments) {
  try {
    call();
  } catch (const UserError& error) {
    const std::string line = error.what();
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_EQ(error.status, UserError::kBadInput);
    for (const std::string& fragment : fragments) {
      EXPECT_NE(line.find(fragment), std::string::npos) << "no " << fragment << " in: " << line;
    }
    return;
  }
  ADD_FAILURE() << "accepted; expected an error about " << *fragments.begin();
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "reprise_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace reprise
