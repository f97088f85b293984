// A cache of the ids of words. The hash of a word selects an entry, and an entry keeps the last
// word that was stored in it. Words are often repeated in texts. The cache's memory is fixed,
// whatever the text.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/files/tokenizer/byte_pairs.h"
#include "tools/files/tokenizer/word_pieces.h"

namespace reprise {

// The algorithm that converts a word to ids.
using WordModel = std::variant<BytePairs, WordPieces>;

// Looks up words before the model encodes them.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // Appends the ids of a word.
  void encode(const WordModel& model, std::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr size_t kEntries = size_t{1} << 15;  // entries of 64 bytes: 2 MiB
  static constexpr size_t kLongestWord = 22, kMaxIds = 10;
  struct alignas(64) Entry {
    uint8_t bytes = 0, count = 0;  // bytes is 0 if the entry is empty
    char word[kLongestWord];
    int32_t ids[kMaxIds];
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;
};

}  // namespace reprise
