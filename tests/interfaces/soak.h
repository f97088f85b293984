// The number of trials for tests that kill processes, damage files or run competing processes. It
// is `trials` in `make test`, and SOAK times as many in `make soak`.
#pragma once

#include <cstdlib>

namespace reprise {

inline int soaked(int trials) {
  const char* times = std::getenv("SOAK");
  return trials * (times == nullptr ? 1 : std::atoi(times));
}

}  // namespace reprise
