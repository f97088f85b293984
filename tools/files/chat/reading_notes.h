// Notes about input that is read differently from what a user may expect. Parts of records may have
// no effect, and spellings of control tokens may be read as plain text. `reprise chat` prints the
// notes of one record. For a file, notes are counted, and each kind becomes one warning.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace reprise {

// The notes of one record.
struct ReadingNotes {
  std::set<std::string> unused;  // parts of the record that do not change what is read, in words
  // Control tokens that texts spell and that are read as plain text. Key: the token; value: how
  // often.
  std::map<std::string, uint64_t> letters;
};

// Counts of the notes of many records.
class NoteCounts {
 public:
  // Counts the notes of one record, which became `samples` samples.
  void add(const ReadingNotes& notes, size_t samples, const std::string& place);
  // Returns one line for each kind of note that occurred. `name`, the file's name, begins each
  // line.
  std::vector<std::string> warnings(const std::string& name) const;

 private:
  struct Counts {
    std::map<std::string, uint64_t> times;  // how often each part or token was noted
    std::string first;                      // place of the first record with such a note
  };
  static void count(Counts& counts, const std::string& what, uint64_t times, const std::string& place);
  static std::string listed(const Counts& counts, const char* before, const char* of);
  Counts unused_, letters_;
  uint64_t records_ = 0, split_ = 0, samples_of_split_ = 0;
};

}  // namespace reprise
