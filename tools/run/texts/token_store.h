// A long sequence of tokens in a temporary file. The file has no name, and the system deletes it
// when the process ends. Text is tokenised once, and the tokens need not fit into memory: the
// kernel caches as many as it has memory for. The file is in the folder of temporary files (TMPDIR)
// and needs four bytes per token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise {

class TokenStore {
 public:
  TokenStore();
  ~TokenStore();
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;

  // Appends `values`. Throws UserError with the system's reason if the file cannot be written.
  void add(std::span<const int32_t> values);
  void finish();  // writes values that are still in memory; must be called before the first read()
  uint64_t size() const { return size_; }

  // Reads values [first, first + count). Throws UserError. Allocates memory only to report an
  // error.
  void read(uint64_t first, uint64_t count, int32_t* to) const;

 private:
  int descriptor_ = -1;
  uint64_t size_ = 0;
  std::vector<int32_t> unwritten_;
};

}  // namespace reprise
