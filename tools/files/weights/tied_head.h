// Handles a file with a head for a model whose config ties the head to the embeddings. Transformers
// 4 ignores such a head without a message, and transformers 5 uses it. Code that loads such a file
// must therefore report the head.
#pragma once

#include "tools/files/weights/weight_source.h"

namespace reprise {

constexpr const char* kHead = "lm_head.weight";

// Returns the name of the embeddings in the source; "" if it has none.
std::string find_embeddings(const WeightSource& source);

// True if the source has a head and embeddings that differ in their shape or in at least one
// number.
bool has_other_head(const WeightSource& source);

}  // namespace reprise
