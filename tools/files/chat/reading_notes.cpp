// See reading_notes.h.
#include "tools/files/chat/reading_notes.h"

namespace reprise {

void NoteCounts::count(Counts& counts, const std::string& what, uint64_t times, const std::string& place) {
  if (counts.times.empty()) counts.first = place;
  counts.times[what] += times;
}

void NoteCounts::add(const ReadingNotes& notes, size_t samples, const std::string& place) {
  for (const std::string& part : notes.unused) count(unused_, part, 1, place);
  for (const auto& [token, times] : notes.letters) count(letters_, token, times, place);
  ++records_;
  if (samples < 2) return;
  ++split_;
  samples_of_split_ += samples;
}

std::string NoteCounts::listed(const Counts& counts, const char* before, const char* of) {
  constexpr size_t kMaxShown = 8;
  std::string list;
  size_t shown = 0;
  for (const auto& [what, times] : counts.times) {
    if (shown++ == kMaxShown) break;
    list += (list.empty() ? "" : ", ") + what + before + std::to_string(times) + of + (times == 1 ? "" : "s");
  }
  if (counts.times.size() > kMaxShown) list += " and " + std::to_string(counts.times.size() - kMaxShown) + " more";
  return list + "; the first: " + counts.first;
}

std::vector<std::string> NoteCounts::warnings(const std::string& name) const {
  std::vector<std::string> lines;
  if (!unused_.times.empty())
    lines.push_back(name + ": not read, or without effect on what is read: " + listed(unused_, " in ", " record"));
  if (!letters_.times.empty())
    lines.push_back(
        name + ": control tokens that are spelled in texts are read as letters: " + listed(letters_, " ", " time"));
  if (split_ > 0) {
    lines.push_back(name + ": " + std::to_string(split_) + " of " + std::to_string(records_) +
                    " conversations are read as " + std::to_string(samples_of_split_) +
                    " samples: the chat template writes earlier replies otherwise once others follow, and each reply "
                    "is learned as the model is asked for it");
  }
  return lines;
}

}  // namespace reprise
