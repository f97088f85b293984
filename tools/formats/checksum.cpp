// XXH3 through libxxhash, compiled in.
// A file is summed in pieces, so that its size does not matter.
#include "tools/formats/checksum.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tools/formats/error.h"

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
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw UserError(path + ": cannot be opened: " + std::strerror(errno));
  FileSum sum;
  Checksum checksum;
  std::vector<unsigned char> piece(uint64_t{1} << 20);
  ssize_t count;
  while ((count = ::read(descriptor, piece.data(), piece.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    checksum.add(piece.data(), static_cast<uint64_t>(count));
    sum.bytes += static_cast<uint64_t>(count);
  }
  const int read_error = errno;
  ::close(descriptor);
  if (count < 0) throw UserError(path + ": cannot be read: " + std::strerror(read_error));
  sum.checksum = checksum.text();
  return sum;
}

}  // namespace reprise
