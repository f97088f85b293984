// For which size of card the programs of gpu.sh take their table of kernels: CARD, which the script sets to what `reprise doctor` says.
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
