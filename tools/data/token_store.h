// A long row of tokens in a file of its own that has no name and goes away with the process.
// Here because text is tokenised once, and a data set's tokens need not fit into memory: the kernel keeps in its cache what there is room
// for. Four bytes a token, in the folder of temporary files (TMPDIR).
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

  // Throws UserError with the system's reason where there is no room.
  void add(std::span<const int32_t> values);
  void finish();  // before the first read
  uint64_t size() const { return size_; }

  // Values [first, first + count). Throws UserError. No heap allocation but for an error.
  void read(uint64_t first, uint64_t count, int32_t* to) const;

 private:
  int descriptor_ = -1;
  uint64_t size_ = 0;
  std::vector<int32_t> unwritten_;
};

}  // namespace reprise
