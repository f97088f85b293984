// Sizes as text.
// Here because iostreams and printf differ in how they round.
// It must not parse; parse_bytes does.
#include "tools/formats/text.h"

#include <cstdio>

namespace reprise {

std::string bytes_text(uint64_t bytes) {
  static const char* const kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 3; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", value < 10 ? 2 : 1, value, kUnits[unit]);
  return text;
}

}  // namespace reprise
