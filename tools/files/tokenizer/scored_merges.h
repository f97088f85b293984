// Computes merges for a vocabulary that has scores and no merges, as in SentencePiece's files. Two
// tokens can be merged if their names together are the name of a third token. GGUF files have such
// vocabularies, and a tokenizer.json that is made from one needs merges.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// One merge: tokens `left` and `right` become `result`.
struct ScoredMerge {
  int32_t left, right, result;
  uint32_t rank;  // the merge with the lowest rank is applied first; equal scores have equal ranks
};

// Returns the merges by ascending rank. Control tokens and bytes do not take part.
std::vector<ScoredMerge> merges_by_score(const TokenizerFile& file);

// True if merges may make or join a token of this kind, which is the case if its name is its text.
inline bool is_joined(TokenKind kind) { return kind == TokenKind::kNormal || kind == TokenKind::kAdded; }

}  // namespace reprise
