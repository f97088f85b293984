// The merges in a table by pair, and two ways over a word: a scan of all its pairs where it is short, a heap of them where it is long.
// Both join in the same order.
#include "tools/tokenizer/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/tokenizer/byte_alphabet.h"

namespace reprise {
namespace {

constexpr int32_t kLeftOut = -1;
constexpr uint64_t kNoPair = UINT64_MAX;
constexpr size_t kShort = 64;  // bytes; beyond it n^2 steps cost more than a heap

uint64_t pair_of(int32_t left, int32_t right) { return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right); }

}  // namespace

BytePairs::BytePairs(const TokenizerFile& file, const std::vector<std::string>& bytes) {
  std::unordered_map<std::string_view, int32_t> id_of_name;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].kind != TokenKind::kAbsent) id_of_name.emplace(file.tokens[id].name, static_cast<int32_t>(id));
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto found = id_of_name.find(alphabet_character(static_cast<uint8_t>(byte)));
    id_of_byte_[byte] = found != id_of_name.end() ? found->second : file.unknown.value_or(kLeftOut);
  }
  add_merges(file, id_of_name);
  if (!file.takes_whole_words) return;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].kind == TokenKind::kNormal) id_of_word_.emplace(bytes[id], static_cast<int32_t>(id));
  }
}

void BytePairs::add_merges(const TokenizerFile& file, const std::unordered_map<std::string_view, int32_t>& id_of_name) {
  table_.assign(std::bit_ceil(2 * file.merges.size() + 2), {kNoPair, kNoRank, kLeftOut});
  shift_ = 64 - std::countr_zero(table_.size());
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto id_of = [&](const std::string& name) {
      const auto found = id_of_name.find(name);
      if (found != id_of_name.end()) return found->second;
      throw UserError(file.path + ": " + file.merges_field + "[" + std::to_string(rank) + "]: " + json_shown(name) + " is no token of the vocabulary");
    };
    const auto& [left, right] = file.merges[rank];
    const uint64_t pair = pair_of(id_of(left), id_of(right));
    uint64_t place = place_of(pair);
    while (table_[place].pair != kNoPair && table_[place].pair != pair) place = (place + 1) & (table_.size() - 1);
    if (table_[place].pair == pair) {
      throw UserError(file.path + ": " + file.merges_field + "[" + std::to_string(rank) + "]: " + json_shown(left + " " + right) +
                      " is given before, as number " + std::to_string(table_[place].rank));
    }
    table_[place] = {pair, static_cast<uint32_t>(rank), id_of(left + right)};
  }
}

// The upper bits of a product with the golden ratio, which depend on all bits of both ids (Knuth, section 6.4).
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

void BytePairs::append_bytes(std::string_view word, std::vector<int32_t>& ids) const {
  for (const char c : word) {
    const int32_t id = id_of_byte_[static_cast<uint8_t>(c)];
    if (id != kLeftOut) ids.push_back(id);
  }
}

void BytePairs::encode_short(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t begin = ids.size();
  append_bytes(word, ids);
  int32_t* const symbols = ids.data() + begin;
  size_t count = ids.size() - begin;
  Merge merges[kShort];  // of symbols i and i + 1
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const size_t at = static_cast<size_t>(std::min_element(merges, merges + count - 1, [](const Merge& a, const Merge& b) { return a.rank < b.rank; }) - merges);
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
  // Symbols are a list; each merge that may be done waits as rank * 2^32 + place of its left symbol. What waits for a symbol that has
  // changed since is passed over: `ranks` says which merge each symbol and its next one have now.
  struct Symbol {
    int32_t id;
    uint32_t before, next, rank;
  };
  std::vector<int32_t> bytes;
  append_bytes(word, bytes);
  const auto count = static_cast<uint32_t>(bytes.size());
  std::vector<Symbol> symbols(count);
  std::vector<uint64_t> waiting;
  const auto look = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next < count ? find(symbol.id, symbols[symbol.next].id).rank : kNoRank;
    return symbol.rank != kNoRank;
  };
  const auto waits = [&](uint32_t at) { return uint64_t{symbols[at].rank} << 32 | at; };
  for (uint32_t i = 0; i < count; ++i) symbols[i] = {bytes[i], i - 1, i + 1, kNoRank};
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
