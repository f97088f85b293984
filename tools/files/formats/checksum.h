// The checksum of a file: 64-bit XXH3 (Collet, xxhash.com), which is about as fast as reading
// memory. It detects a flipped bit in trained weights; it does not protect against deliberate
// changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace reprise {

// Computes one checksum of data that are added in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(const void* data, uint64_t bytes);
  std::string text() const;  // returns 16 hexadecimal digits, for all data added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the checksum of a text, as Checksum::text() does.
std::string checksum_of(const std::string& text);

// Size and checksum of a file's contents.
struct FileSum {
  uint64_t bytes = 0;
  std::string checksum;
  bool operator==(const FileSum&) const = default;
};
// Returns the size and checksum of a file. Throws UserError if the file cannot be read.
FileSum sum_of_file(const std::string& path);

}  // namespace reprise
