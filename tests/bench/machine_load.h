// Returns the machine's load average as text for the results, because figures of a busy machine
// differ from those of an idle one.
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
