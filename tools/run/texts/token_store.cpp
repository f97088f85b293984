// See token_store.h.
#include "tools/run/texts/token_store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tools/files/io/error.h"

namespace reprise {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  const char* const reason = std::strerror(errno);
  throw UserError("a temporary file for tokens in " + std::filesystem::temp_directory_path().string() + " " + what +
                  ": " + reason + "; TMPDIR names another folder");
}

}  // namespace

TokenStore::TokenStore() {
  std::string name = (std::filesystem::temp_directory_path() / "reprise-tokens-XXXXXX").string();
  descriptor_ = ::mkstemp(name.data());
  if (descriptor_ < 0) refuse("cannot be made");
  ::unlink(name.c_str());
}

TokenStore::~TokenStore() { ::close(descriptor_); }

void TokenStore::add(std::span<const int32_t> values) {
  constexpr size_t kPiece = size_t{1} << 16;
  unwritten_.insert(unwritten_.end(), values.begin(), values.end());
  size_ += values.size();
  if (unwritten_.size() >= kPiece) finish();
}

void TokenStore::finish() {
  const char* from = reinterpret_cast<const char*>(unwritten_.data());
  for (size_t left = unwritten_.size() * sizeof(int32_t); left > 0;) {
    const ssize_t written = ::write(descriptor_, from, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("cannot be written");
    from += written;
    left -= static_cast<size_t>(written);
  }
  unwritten_.clear();
}

void TokenStore::read(uint64_t first, uint64_t count, int32_t* to) const {
  char* into = reinterpret_cast<char*>(to);
  uint64_t at = first * sizeof(int32_t);
  for (uint64_t left = count * sizeof(int32_t); left > 0;) {
    const ssize_t got = ::pread(descriptor_, into, left, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = ENODATA;
    if (got <= 0) refuse("cannot be read");
    into += got;
    at += static_cast<uint64_t>(got);
    left -= static_cast<uint64_t>(got);
  }
}

}  // namespace reprise
