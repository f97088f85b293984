// Sizes as text and back, patterns for names, and lists of names.
#include "tools/files/io/text.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/shown_text.h"

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

uint64_t parse_bytes(const std::string& text, const std::string& field) {
  const auto refuse = [&]() -> uint64_t {
    throw UserError(field +
                    ": must be bytes from 1 to 2^63 - 1, an integer or with a unit of KiB, MiB, GiB, TiB, KB, MB, GB, "
                    "TB (\"7GiB\", \"1.5GiB\"), not " +
                    json_shown(text));
  };
  constexpr size_t kMaxDigits = 18;  // digits * 2^40 is then below 2^127
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, unit_at);
  const bool spaced = unit_at != std::string::npos && unit_at + 1 < text.size() && text[unit_at] == ' ';
  const std::string unit = unit_at == std::string::npos ? "" : text.substr(unit_at + spaced);
  const size_t point = number.find('.');
  const std::string whole = number.substr(0, point);
  const std::string fraction = point == std::string::npos ? "" : number.substr(point + 1);
  unsigned __int128 scale = 0;
  const std::pair<const char*, uint64_t> units[] = {
      {"", 1},         {"B", 1},       {"KiB", 1ull << 10}, {"MiB", 1ull << 20},    {"GiB", 1ull << 30},
      {"TiB", 1ull << 40}, {"KB", 1000}, {"MB", 1000000},     {"GB", 1000000000}, {"TB", 1000000000000}};
  for (const auto& [name, bytes] : units) {
    if (unit == name) scale = bytes;
  }
  const bool has_digits = !whole.empty() && (point == std::string::npos || !fraction.empty());
  if (scale == 0 || !has_digits || fraction.find('.') != std::string::npos) return refuse();
  if (scale == 1 && !fraction.empty()) return refuse();
  const size_t first_digit = std::min(whole.find_first_not_of('0'), whole.size());
  if (whole.size() - first_digit + fraction.size() > kMaxDigits + (scale == 1 ? 1 : 0)) return refuse();
  unsigned __int128 digits = 0, divisor = 1;
  for (const char c : whole + fraction) digits = digits * 10 + static_cast<unsigned>(c - '0');
  for (size_t i = 0; i < fraction.size(); ++i) divisor *= 10;
  const unsigned __int128 bytes = digits * scale / divisor;
  if (bytes == 0 || bytes > static_cast<unsigned __int128>(std::numeric_limits<int64_t>::max())) return refuse();
  return static_cast<uint64_t>(bytes);
}

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool matches_end(const std::string& pattern, const std::string& name) {
  return matches_pattern(pattern, name) || matches_pattern("*." + pattern, name);
}

std::string some_of(const std::vector<std::string>& words, const std::string& between, size_t longest) {
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < words.size() && i < kShown; ++i)
    list += (i == 0 ? "" : between) + shown_text(words[i], longest);
  return words.size() > kShown ? list + " and " + std::to_string(words.size() - kShown) + " more" : list;
}

}  // namespace reprise
