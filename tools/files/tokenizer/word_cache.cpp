// See word_cache.h. The hash is XXH3, which is compiled in.
#include "tools/files/tokenizer/word_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace reprise {

void WordCache::encode(const WordModel& model, std::string_view word, std::vector<int32_t>& ids) {
  const auto append = [&](const auto& of_words) { of_words.encode(word, ids); };
  if (word.size() > kLongestWord) return std::visit(append, model);
  Entry& entry = entries_[XXH3_64bits(word.data(), word.size()) % kEntries];
  if (std::string_view(entry.word, entry.bytes) == word) {
    ids.insert(ids.end(), entry.ids, entry.ids + entry.count);
    return;
  }
  const size_t begin = ids.size();
  std::visit(append, model);
  const size_t count = ids.size() - begin;
  if (count > kMaxIds) return;
  entry.bytes = static_cast<uint8_t>(word.size());
  entry.count = static_cast<uint8_t>(count);
  std::copy(word.begin(), word.end(), entry.word);
  std::copy(ids.begin() + static_cast<ptrdiff_t>(begin), ids.end(), entry.ids);
}

}  // namespace reprise
