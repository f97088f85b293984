// See new_tokens.h. Source of the rules: github.com/huggingface/tokenizers,
// AddedVocabulary::add_tokens.
#include "tools/files/tokenizer/new_tokens.h"

#include <set>
#include <unordered_map>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/byte_alphabet.h"
#include "tools/files/tokenizer/space_mark.h"

namespace reprise {
namespace {

// Throws if the vocabulary uses the token's name for other text: for a byte, or for other bytes in
// its alphabet. The spelling of a new token is checked only in a vocabulary by characters.
void require_text(const TokenizerFile& file, const FileToken& token, bool is_new) {
  const bool by_characters = file.alphabet == Alphabet::kCharacters;
  const std::string refusal = file.path + ": new_tokens: " + json_shown(token.name);
  if (token.kind == TokenKind::kByte) throw UserError(refusal + " is a byte of the vocabulary; leave it out");
  if (is_new && !by_characters) return;
  const std::string bytes = by_characters ? bytes_of_marked(token) : bytes_of_name(token.name);
  if (bytes != token.name)
    throw UserError(refusal + " is how the vocabulary spells " + json_shown(bytes) + "; leave it out");
}

// Returns the entry for one more token: a padding entry, or a new one at the end.
FileToken& take_place(TokenizerFile& file, size_t id) {
  if (id >= kMaxTokens)
    throw UserError(file.path + ": new_tokens: a vocabulary has at most " + std::to_string(kMaxTokens) +
                    " tokens; leave some out");
  std::erase_if(file.added, [id](const AddedToken& token) { return token.id == static_cast<int32_t>(id); });
  file.padding > 0 ? void(--file.padding) : file.tokens.resize(id + 1);
  if (!file.scores.empty()) {
    file.scores.resize(file.tokens.size());
    file.scores[id] = kAddedScore;
  }
  return file.tokens[id];
}

}  // namespace

NewTokens add_tokens(TokenizerFile& file, const std::vector<std::string>& tokens) {
  NewTokens made = {.first = file.tokens.size() - file.padding, .count = 0, .names = {}};
  if (tokens.empty()) return made;
  std::set<size_t> added;
  for (const AddedToken& token : file.added) {
    if (static_cast<size_t>(token.id) < made.first) added.insert(static_cast<size_t>(token.id));
  }
  std::unordered_map<std::string, size_t> id_of_name;
  for (size_t id = 0; id < made.first; ++id) {
    if (file.tokens[id].kind != TokenKind::kAbsent) id_of_name.emplace(file.tokens[id].name, id);
  }
  for (const std::string& name : tokens) {
    const auto [place, is_new] = id_of_name.emplace(name, made.first + made.count);
    const size_t id = place->second;
    if (!added.insert(id).second) continue;
    FileToken& token = is_new ? take_place(file, id) : file.tokens[id];
    if (is_new) token = {name, TokenKind::kNormal, true};
    require_text(file, token, is_new);
    token.kind = TokenKind::kAdded;
    file.added.push_back({.id = static_cast<int32_t>(id), .rstrip = file.added_take_space});
    made.names.push_back(name);
    made.count += is_new;
  }
  return made;
}

}  // namespace reprise
