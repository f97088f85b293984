// The merges of a vocabulary that has scores in their place, as SentencePiece's files have: any two tokens whose names together are a third's.
// Here because a GGUF file has such a vocabulary, and a tokenizer.json that is made of it has merges.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

struct ScoredMerge {
  int32_t left, right, result;
  uint32_t rank;  // the first goes first; of equal scores equal
};

// Ascending by rank. Control tokens and bytes are none of the three.
std::vector<ScoredMerge> merges_by_score(const TokenizerFile& file);

// Whether merges may make it or join it: what stands in texts by its name.
inline bool is_joined(TokenKind kind) { return kind == TokenKind::kNormal || kind == TokenKind::kAdded; }

}  // namespace reprise
