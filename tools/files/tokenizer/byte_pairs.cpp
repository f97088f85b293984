// Stores the merges in a hash table by pair. Encodes a short word by scanning all pairs, and a long
// word with a heap of pairs. Both apply the merges in the same order.
#include "tools/files/tokenizer/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/files/tokenizer/scored_merges.h"
#include "tools/files/tokenizer/space_mark.h"

namespace reprise {
namespace {

constexpr int32_t kLeftOut = -1;
constexpr uint64_t kNoPair = UINT64_MAX;
constexpr size_t kShort = 64;  // bytes; for longer words, the n^2 steps of a scan take more time than a heap

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BytePairs::BytePairs(const TokenizerFile& file, const std::vector<std::string>& bytes)
    : by_characters_(file.alphabet == Alphabet::kCharacters) {
  std::unordered_map<std::string_view, int32_t> id_of_name;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].kind != TokenKind::kAbsent) id_of_name.emplace(file.tokens[id].name, static_cast<int32_t>(id));
  }
  by_characters_ ? take_characters(file) : take_bytes(file, id_of_name);
  file.scores.empty() ? add_merges(file, id_of_name) : add_scored_merges(file);
  if (!file.takes_whole_words) return;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].kind == TokenKind::kNormal) id_of_word_.emplace(bytes[id], static_cast<int32_t>(id));
  }
}

void BytePairs::take_bytes(const TokenizerFile& file, const std::unordered_map<std::string_view, int32_t>& id_of_name) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = id_of_name.find(alphabet_character(static_cast<uint8_t>(byte)));
    id_of_byte_[byte] = found != id_of_name.end() ? found->second : file.unknown.value_or(kLeftOut);
  }
}

void BytePairs::take_characters(const TokenizerFile& file) {
  id_of_byte_.fill(kLeftOut);
  id_of_ascii_.fill(kLeftOut);
  for (size_t i = 0; i < file.tokens.size(); ++i) {
    const auto& [name, kind, is_added_alone] = file.tokens[i];
    const auto id = static_cast<int32_t>(i);
    if (kind == TokenKind::kByte) id_of_byte_[*byte_of_name(name)] = id;
    if (!is_joined(kind) || name.empty()) continue;
    const Character first = character_at(name, 0);
    if (first.bytes != name.size()) continue;
    if (first.code < id_of_ascii_.size()) id_of_ascii_[first.code] = id;
    else id_of_character_.emplace(first.code, id);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (id_of_byte_[byte] != kLeftOut) continue;
    throw UserError(file.path + ": the vocabulary has no token " + name_of_byte(static_cast<uint8_t>(byte)) +
                    "; all 256 bytes must be tokens, to which other characters fall back");
  }
}

void BytePairs::add_merges(const TokenizerFile& file, const std::unordered_map<std::string_view, int32_t>& id_of_name) {
  reserve(file.merges.size());
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto id_of = [&](const std::string& name) {
      const auto found = id_of_name.find(name);
      if (found != id_of_name.end()) return found->second;
      throw UserError(file.path + ": " + file.merges_field + "[" + std::to_string(rank) + "]: " + json_shown(name) +
                      " is no token of the vocabulary");
    };
    const auto& [left, right] = file.merges[rank];
    const uint64_t pair = pair_of(id_of(left), id_of(right));
    Merge& place = place_for(pair);
    if (place.pair == pair) {
      throw UserError(file.path + ": " + file.merges_field + "[" + std::to_string(rank) + "]: " +
                      json_shown(left + " " + right) + " is given before, as number " + std::to_string(place.rank));
    }
    const int32_t result = id_of(left + right);
    // Merges that make a control token are skipped: a text must never become one.
    if (file.tokens[static_cast<size_t>(result)].kind != TokenKind::kControl)
      place = {pair, static_cast<uint32_t>(rank), result};
  }
}

void BytePairs::add_scored_merges(const TokenizerFile& file) {
  const std::vector<ScoredMerge> merges = merges_by_score(file);
  reserve(merges.size());
  for (const auto& [left, right, result, rank] : merges) {
    const uint64_t pair = pair_of(left, right);
    place_for(pair) = {pair, rank, result};
  }
}

void BytePairs::reserve(size_t merges) {
  table_.assign(std::bit_ceil(2 * merges + 2), {kNoPair, kNoRank, kLeftOut});
  shift_ = 64 - std::countr_zero(table_.size());
}

BytePairs::Merge& BytePairs::place_for(uint64_t pair) {
  uint64_t place = place_of(pair);
  while (table_[place].pair != kNoPair && table_[place].pair != pair) place = (place + 1) & (table_.size() - 1);
  return table_[place];
}

// Returns an index in the table: the upper bits of a product with the golden ratio, which depend on
// all bits of both ids (Knuth, section 6.4).
uint64_t BytePairs::place_of(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15) >> shift_; }

const BytePairs::Merge& BytePairs::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  uint64_t place = place_of(pair);
  while (table_[place].pair != pair && table_[place].pair != kNoPair) place = (place + 1) & (table_.size() - 1);
  return table_[place];
}

void BytePairs::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (!id_of_word_.empty()) {
    const auto found = id_of_word_.find(word);
    if (found != id_of_word_.end()) return ids.push_back(found->second);
  }
  word.size() <= kShort ? encode_short(word, ids) : encode_long(word, ids);
}

void BytePairs::append_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  const auto append_bytes = [&](std::string_view bytes) {
    for (const char c : bytes) {
      const int32_t id = id_of_byte_[static_cast<uint8_t>(c)];
      if (id != kLeftOut) ids.push_back(id);
    }
  };
  if (!by_characters_) return append_bytes(word);
  for (size_t at = 0; at < word.size();) {
    const Character next = character_at(word, at);
    int32_t id = kLeftOut;
    if (next.code < id_of_ascii_.size()) {
      id = id_of_ascii_[next.code];
    } else if (const auto found = id_of_character_.find(next.code); found != id_of_character_.end()) {
      id = found->second;
    }
    id != kLeftOut ? ids.push_back(id) : append_bytes(word.substr(at, next.bytes));
    at += next.bytes;
  }
}

void BytePairs::encode_short(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t begin = ids.size();
  append_symbols(word, ids);
  int32_t* const symbols = ids.data() + begin;
  size_t count = ids.size() - begin;
  Merge merges[kShort];  // merges[i] joins symbols i and i + 1
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const size_t at = static_cast<size_t>(
        std::min_element(merges, merges + count - 1, [](const Merge& a, const Merge& b) { return a.rank < b.rank; }) -
        merges);
    if (merges[at].rank == kNoRank) break;
    symbols[at] = merges[at].result;
    std::copy(symbols + at + 2, symbols + count, symbols + at + 1);
    --count;
    if (at + 1 < count) std::copy(merges + at + 2, merges + count, merges + at + 1);
    if (at > 0) merges[at - 1] = find(symbols[at - 1], symbols[at]);
    if (at + 1 < count) merges[at] = find(symbols[at], symbols[at + 1]);
  }
  ids.resize(begin + count);
}

void BytePairs::encode_long(std::string_view word, std::vector<int32_t>& ids) const {
  // The symbols are a linked list. The queue has an entry for each possible merge: rank * 2^32 +
  // index of its left symbol. An entry is skipped if the rank at its symbol has changed since.
  struct Symbol {
    int32_t id;
    uint32_t before, next, rank;
  };
  std::vector<int32_t> first;
  append_symbols(word, first);
  const auto count = static_cast<uint32_t>(first.size());
  std::vector<Symbol> symbols(count);
  std::vector<uint64_t> waiting;
  const auto look = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next < count ? find(symbol.id, symbols[symbol.next].id).rank : kNoRank;
    return symbol.rank != kNoRank;
  };
  const auto waits = [&](uint32_t at) { return uint64_t{symbols[at].rank} << 32 | at; };
  for (uint32_t i = 0; i < count; ++i) symbols[i] = {first[i], i - 1, i + 1, kNoRank};
  for (uint32_t i = 0; i < count; ++i) {
    if (look(i)) waiting.push_back(waits(i));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue({}, std::move(waiting));
  while (!queue.empty()) {
    const uint64_t first = queue.top();
    queue.pop();
    const auto at = static_cast<uint32_t>(first);
    Symbol& left = symbols[at];
    if (left.rank != first >> 32) continue;
    Symbol& right = symbols[left.next];
    left.id = find(left.id, right.id).result;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next < count) symbols[left.next].before = at;
    if (look(at)) queue.push(waits(at));
    if (at > 0 && look(left.before)) queue.push(waits(left.before));
  }
  for (uint32_t at = 0; at < count; at = symbols[at].next) ids.push_back(symbols[at].id);
}

}  // namespace reprise
