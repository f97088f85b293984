// The machine's load average, as a text beside what was measured.
// Here because a busy machine's figures are not a quiet one's.
#pragma once

#include <fstream>
#include <string>

namespace reprise::bench {

inline std::string load_average() {
  std::ifstream file("/proc/loadavg");
  std::string one, five;
  file >> one >> five;
  return one + " (1 min), " + five + " (5 min)";
}

}  // namespace reprise::bench
