// XXH3 from libxxhash, which is compiled in. A file of any size is read and summed in pieces.
#include "tools/files/formats/checksum.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tools/files/io/input_file.h"
#include "tools/files/progress/long_work.h"

namespace reprise {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Checksum::~Checksum() = default;

void Checksum::add(const void* data, uint64_t bytes) {
  if (bytes != 0) XXH3_64bits_update(&state_->xxh3, data, bytes);
}

std::string Checksum::text() const {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(&state_->xxh3)));
  return digits;
}

std::string checksum_of(const std::string& text) {
  Checksum sum;
  sum.add(text.data(), text.size());
  return sum.text();
}

FileSum sum_of_file(const std::string& path) {
  const InputFile file(path);
  LongWork work("checking " + path);
  Checksum checksum;
  std::vector<unsigned char> piece(uint64_t{1} << 20);
  for (uint64_t at = 0; at < file.bytes(); at += piece.size()) {
    const uint64_t bytes = std::min<uint64_t>(piece.size(), file.bytes() - at);
    file.read(at, piece.data(), bytes);
    checksum.add(piece.data(), bytes);
    work.done(static_cast<double>(at + bytes) / static_cast<double>(file.bytes()));
  }
  return {file.bytes(), checksum.text()};
}

}  // namespace reprise
