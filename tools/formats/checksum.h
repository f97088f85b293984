// The checksum of a file: XXH3 of 64 bits (Collet, xxhash.com), which runs at the speed of memory.
// Here because a bit that flips in trained weights is seen by nobody; it is no defence against a person.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace reprise {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(const void* data, uint64_t bytes);
  std::string text() const;  // of all that was added: 16 hexadecimal digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string checksum_of(const std::string& text);

// What a file holds, as far as a reader can check it.
struct FileSum {
  uint64_t bytes = 0;
  std::string checksum;
  bool operator==(const FileSum&) const = default;
};
// Throws UserError where the file cannot be read.
FileSum sum_of_file(const std::string& path);

}  // namespace reprise
