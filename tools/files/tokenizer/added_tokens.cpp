// See added_tokens.h. Searches a tree of prefixes, from each byte with which an added token can
// begin.
#include "tools/files/tokenizer/added_tokens.h"

#include <algorithm>

#include "tools/files/tokenizer/characters.h"

namespace reprise {
namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word_character(character_at(text, character_before(text, begin)).code);
  const bool word_after = end < text.size() && is_word_character(character_at(text, end).code);
  return !word_before && !word_after;
}

size_t before_space(std::string_view text, size_t minimum, size_t at) {
  while (at > minimum) {
    const size_t before = character_before(text, at);
    if (character_at(text, before).kind != CharacterClass::kSpace) break;
    at = before;
  }
  return at;
}

size_t after_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (next.kind != CharacterClass::kSpace) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

void AddedTokens::add(const AddedToken& token, std::string_view text, bool is_control) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (const uint32_t* next = child(node, byte)) {
      node = *next;
      continue;
    }
    const auto made = static_cast<uint32_t>(nodes_.size());
    auto& edges = nodes_[node].next;
    edges.insert(std::upper_bound(edges.begin(), edges.end(), std::pair(byte, UINT32_MAX)), {byte, made});
    nodes_.emplace_back();
    node = made;
  }
  begins_[static_cast<uint8_t>(text[0])] = true;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token, is_control});
}

const uint32_t* AddedTokens::child(uint32_t node, uint8_t byte) const {
  const auto& edges = nodes_[node].next;
  const auto edge = std::lower_bound(edges.begin(), edges.end(), std::pair(byte, uint32_t{0}));
  return edge != edges.end() && edge->first == byte ? &edge->second : nullptr;
}

const AddedTokens::Token* AddedTokens::longest_at(std::string_view text, size_t at, bool with_control,
                                                  size_t& end) const {
  const Token* longest = nullptr;
  uint32_t node = 0;
  while (at < text.size()) {
    const uint32_t* next = child(node, static_cast<uint8_t>(text[at]));
    if (next == nullptr) break;
    node = *next;
    ++at;
    if (nodes_[node].token < 0) continue;
    const Token& token = tokens_[static_cast<size_t>(nodes_[node].token)];
    if (token.is_control && !with_control) continue;
    longest = &token;
    end = at;
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from, bool with_control,
                                                    const ControlFilter& may_be) const {
  if (tokens_.empty()) return std::nullopt;
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    size_t end = at;
    const Token* found = longest_at(text, at, with_control, end);
    if (found == nullptr || (found->is_control && may_be && !may_be(at, end, found->token.id))) continue;
    if (found->token.single_word && !stands_alone(text, at, end)) {
      at = end - 1;
      continue;
    }
    const size_t begin = found->token.lstrip ? before_space(text, from, at) : at;
    return Match{begin, found->token.rstrip ? after_space(text, end) : end, found->token.id, at, end};
  }
  return std::nullopt;
}

}  // namespace reprise
