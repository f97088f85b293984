// How long a campaign of kills, damage or rivals is: a short form in every run of the suite, SOAK times as long in `make soak`.
#pragma once

#include <cstdlib>

namespace reprise {

inline int soaked(int trials) {
  const char* times = std::getenv("SOAK");
  return trials * (times == nullptr ? 1 : std::atoi(times));
}

}  // namespace reprise
