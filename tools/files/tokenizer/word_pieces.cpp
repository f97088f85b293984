// See word_pieces.h.
#include "tools/files/tokenizer/word_pieces.h"

#include <algorithm>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/files/tokenizer/scored_merges.h"

namespace reprise {
namespace {

bool is_longer(std::string_view word, size_t characters) {
  if (word.size() <= characters) return false;
  size_t count = 0;
  for (size_t at = 0; at < word.size(); at += character_at(word, at).bytes) ++count;
  return count > characters;
}

}  // namespace

WordPieces::WordPieces(const TokenizerFile& file) : rules_(file.pieces), unknown_(file.unknown.value_or(-1)) {
  if (!file.unknown) throw UserError(file.path + ": the vocabulary has no token for an unknown word, as [UNK]");
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    const auto& [name, kind, is_added_alone] = file.tokens[id];
    if (!is_joined(kind) || is_added_alone || name.empty()) continue;
    // Names are limited, because all lengths up to the longest name are looked up at each position
    // of a word.
    constexpr size_t kLongestName = 256;
    if (name.size() > kLongestName)
      throw UserError(file.path + ": the token " + std::to_string(id) + ", " + json_shown(name) + ", has " +
                      std::to_string(name.size()) + " bytes; a piece of a word must have at most " +
                      std::to_string(kLongestName));
    id_of_name_.emplace(name, static_cast<int32_t>(id));
    longest_bytes_ = std::max(longest_bytes_, name.size());
  }
}

WordPieces::Piece WordPieces::longest(std::string_view text, size_t minimum) const {
  size_t end = text.size();
  while (end > minimum && end > longest_bytes_) end = character_before(text, end);
  for (; end > minimum; end = character_before(text, end)) {
    const auto found = id_of_name_.find(text.substr(0, end));
    if (found != id_of_name_.end()) return {found->second, end};
  }
  return {unknown_, 0};
}

void WordPieces::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (is_longer(word, rules_.longest_word)) return ids.push_back(unknown_);
  const size_t first = ids.size();
  Piece piece = longest(word, 0);
  for (std::string rest(word); piece.bytes > 0;) {
    ids.push_back(piece.id);
    if (piece.bytes == rest.size()) return;
    rest.replace(0, piece.bytes, rules_.prefix);
    piece = longest(rest, rules_.prefix.size());
  }
  ids.resize(first);
  ids.push_back(unknown_);
}

std::string text_of_piece(const WordPieceRules& rules, const std::string& name) {
  if (!rules.prefix.empty() && name.starts_with(rules.prefix)) return name.substr(rules.prefix.size());
  bool is_joined = false;
  for (const char* begin : {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"})
    is_joined = is_joined || name.starts_with(begin);
  return is_joined && rules.joins_punctuation ? name : " " + name;
}

}  // namespace reprise
