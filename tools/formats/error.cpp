// See error.h.
#include "tools/formats/error.h"

#include "tools/formats/shown_text.h"

namespace reprise {
namespace {

std::string line_to_show(const std::string& line) {
  constexpr size_t kLongest = 1200;
  const std::string shown = shortened_words(escaped_text(line));
  if (shown.size() <= kLongest) return shown;
  const auto is_inside_character = [&](size_t at) { return (static_cast<unsigned char>(shown[at]) & 0xc0) == 0x80; };
  size_t end = kLongest / 2, begin = shown.size() - kLongest / 2;
  while (end > 0 && is_inside_character(end)) --end;
  while (begin < shown.size() && is_inside_character(begin)) ++begin;
  return shown.substr(0, end) + " ... " + shown.substr(begin);
}

}  // namespace

UserError::UserError(const std::string& line, Status exit_status) : std::runtime_error(line_to_show(line)), status(exit_status) {}

}  // namespace reprise
