// The size of card for which the programs of gpu.sh choose their table of kernels. It is in the
// environment variable CARD, which the script sets from `reprise doctor`.
#pragma once

#include <cstdlib>
#include <cstring>

#include "cuda/cuda_rules.h"

namespace reprise::bench {

inline CardSize card_here() {
  const char* size = std::getenv("CARD");
  return size != nullptr && std::strcmp(size, "large") == 0 ? CardSize::kLarge : CardSize::kSmall;
}
inline const char* backend_here() { return (card_here() == CardSize::kLarge ? kCudaLargeRules : kCudaRules).name; }

}  // namespace reprise::bench
