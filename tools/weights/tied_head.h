// The head of a model whose config ties it to the embeddings, while its file holds one of its own.
// Here because such a head is dropped, in silence by transformers 4 and not at all by transformers 5: whoever loads the file must say so.
#pragma once

#include "tools/weights/weight_source.h"

namespace reprise {

constexpr const char* kHead = "lm_head.weight";

// The source's name of its embeddings; "" where it has none.
std::string find_embeddings(const WeightSource& source);

// Whether the source has a head that differs in one number from its embeddings.
bool has_other_head(const WeightSource& source);

}  // namespace reprise
