// Helpers for all fuzz targets, which libFuzzer (LLVM) runs under the address sanitizer. A parser
// must accept an input, or refuse it with one clear line. Files that a target needs are created in
// memory.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/files/io/error.h"

namespace reprise::fuzz {

inline void require(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "fuzz: broken: %s\n", what);
  std::abort();
}

// Calls `parse`, which may throw a UserError with one line of printable text. Any other exception
// escapes and counts as a crash.
template <typename Parse>
void answers_or_refuses(const Parse& parse) {
  try {
    parse();
  } catch (const UserError& error) {
    const std::string line = error.what();
    require(!line.empty(), "a refusal says why");
    for (const char c : line)
      require(static_cast<unsigned char>(c) >= 0x20, "a refusal is one line of printable characters");
  }
}

// A file in memory that has a path, for code that opens files by their paths.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", 0)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    require(descriptor_ >= 0, "a file in memory can be made");
  }
  const std::string& path() const { return path_; }
  void hold(const uint8_t* data, size_t size) const {
    const bool written =
        ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size);
    require(written, "a file in memory can be written");
  }

 private:
  int descriptor_;
  std::string path_;
};

// A folder in /tmp that contains symbolic links to files in memory. The destructor removes it.
class MemoryFolder {
 public:
  MemoryFolder() {
    char name[] = "/tmp/reprise-fuzz-XXXXXX";
    require(::mkdtemp(name) != nullptr, "a folder can be made");
    path_ = name;
  }
  ~MemoryFolder() {
    for (const std::string& name : names_) ::unlink((path_ + "/" + name).c_str());
    ::rmdir(path_.c_str());
  }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  const std::string& path() const { return path_; }
  void add(const std::string& name, const MemoryFile& file) {
    require(::symlink(file.path().c_str(), (path_ + "/" + name).c_str()) == 0, "a link can be made");
    names_.push_back(name);
  }

 private:
  std::string path_;
  std::vector<std::string> names_;
};

}  // namespace reprise::fuzz
