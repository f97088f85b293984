// The ids of words that have been seen: one place for each, found by the word's sum, and the last word that came there stays.
// Here because a text says the same words again; the memory is fixed, whatever the text.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/tokenizer/byte_pairs.h"
#include "tools/tokenizer/word_pieces.h"

namespace reprise {

// What a word becomes ids by.
using WordModel = std::variant<BytePairs, WordPieces>;

class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // Appends the ids of a word.
  void encode(const WordModel& model, std::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr size_t kEntries = size_t{1} << 15;  // 2 MiB
  static constexpr size_t kLongestWord = 22, kMostIds = 10;
  struct alignas(64) Entry {
    uint8_t bytes = 0, count = 0;  // no bytes: empty
    char word[kLongestWord];
    int32_t ids[kMostIds];
  };
  static_assert(sizeof(Entry) == 64);
  std::vector<Entry> entries_;
};

}  // namespace reprise
