// RFC 4180: finds where records end, and splits records into fields.
#include "tools/files/formats/csv_file.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <system_error>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

constexpr size_t kMaxColumns = 16384;  // as many as a spreadsheet may have

// The parser's state between two bytes of a record.
enum class Place { kBegin, kPlain, kQuoted, kBehindQuote };

// Returns the state after byte `c`. kBehindQuote is the state after a quote inside a quoted field.
// Either the field ends there, or a second quote follows and the two represent one quote.
Place place_after(Place place, char c) {
  switch (place) {
    case Place::kBegin: return c == '"' ? Place::kQuoted : c == ',' ? Place::kBegin : Place::kPlain;
    case Place::kPlain: return c == ',' ? Place::kBegin : Place::kPlain;
    case Place::kQuoted: return c == '"' ? Place::kBehindQuote : Place::kQuoted;
    case Place::kBehindQuote: break;
  }
  return c == '"' ? Place::kQuoted : c == ',' ? Place::kBegin : Place::kPlain;
}

// Returns the fields of one record. `text` does not include the end of its line; `place` begins
// error messages.
std::vector<std::string> fields_of(const std::string& text, const std::string& place) {
  std::vector<std::string> fields(1);
  const auto refuse = [&](const char* reason) {
    throw UserError(place + ": field " + std::to_string(fields.size()) + ": " + reason +
                    "; a field with quotes stands in quotes, and each of its own is written twice");
  };
  Place at = Place::kBegin;
  for (const char c : text) {
    const Place next = place_after(at, c);
    if (c == ',' && next == Place::kBegin) {
      if (fields.size() == kMaxColumns)
        throw UserError(place + ": has more than " + std::to_string(kMaxColumns) + " columns, the most that are read");
      fields.emplace_back();
    } else if (at == Place::kBehindQuote && c != '"') {
      refuse("text follows its closing quote");
    } else if (at == Place::kPlain && c == '"') {
      refuse("a quote stands in it, which does not begin with one");
    } else if (c != '"' || at == Place::kBehindQuote) {
      fields.back() += c;
    }
    at = next;
  }
  return fields;
}

bool is_number(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  double value = 0;
  const bool is_digit = !text.empty() && ((text[0] >= '0' && text[0] <= '9') || text[0] == '.');  // false for "inf"
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return is_digit && error != std::errc::invalid_argument && end == text.data() + text.size();
}

// True if a spreadsheet would read the text as a formula, as it is or after the apostrophes at its
// beginning are removed.
bool begins_as_formula(std::string_view text) {
  if (is_number(text)) return false;
  text.remove_prefix(std::min(text.find_first_not_of('\''), text.size()));
  const std::string_view signs[] = {
      "=", "+", "-", "@", "\t", "\r", "\n", "\xef\xbc\x9d", "\xef\xbc\x8b", "\xef\xbc\x8d", "\xef\xbc\xa0"};
  return std::any_of(std::begin(signs), std::end(signs), [&](std::string_view sign) { return text.starts_with(sign); });
}

// Returns a column's name in the form in which it is compared with the keys of a sample: without
// blanks around it, in lower-case letters.
std::string column_name(std::string name) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!name.empty() && is_blank(name.back())) name.pop_back();
  name.erase(name.begin(), std::find_if_not(name.begin(), name.end(), is_blank));
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace

std::string csv_cell(const std::string& text) {
  const std::string shown = (begins_as_formula(text) ? "'" : "") + text;
  if (shown.find_first_of(",\"\r\n") == std::string::npos) return shown;
  std::string quoted = "\"";
  for (const char c : shown) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

CsvFile::CsvFile(const std::string& path) : RecordFile(path) {
  find_records();
  read_header();
  if (records_.empty()) throw UserError(path + ": holds no samples: nothing follows its header");
}

void CsvFile::find_records() {
  uint64_t line = 1;
  Record record{after_mark(), 0, line};
  Place place = Place::kBegin;
  bool is_blank = true;
  const auto end_record = [&](uint64_t end) {
    if (!is_blank) add({record.begin, end, record.line});
    record = {end + 1, 0, line + 1};
    place = Place::kBegin;
    is_blank = true;
  };
  visit_bytes(record.begin, [&](uint64_t at, char c) {
    if (c == '\n' && place != Place::kQuoted) {
      end_record(at);
    } else {
      place = c == '\r' && place == Place::kBehindQuote ? place : place_after(place, c);
      is_blank = is_blank && (c == ' ' || c == '\t' || c == '\r');
    }
    line += c == '\n';
  });
  if (place == Place::kQuoted)
    throw UserError(place_of_line(record.line) +
                    ": a quoted field of the record that begins here does not end: a closing quote is missing");
  end_record(bytes());
}

void CsvFile::read_header() {
  if (records_.empty()) throw UserError(path() + ": is empty");
  const std::string place = place_of_line(records_[0].line) + ", the header";
  std::string header = text(records_[0]);
  if (!header.empty() && header.back() == '\r') header.pop_back();
  if (!is_utf8(header)) throw UserError(place + ": not UTF-8");
  std::unordered_set<std::string> names;
  for (const std::string& field : fields_of(header, place)) {
    const std::string name = column_name(field);
    if (!name.empty() && !names.insert(name).second)
      throw UserError(place + ": two columns are called " + json_shown(name));
    columns_.push_back(name);
  }
  if (std::all_of(columns_.begin(), columns_.end(), [](const std::string& name) { return name.empty(); }))
    throw UserError(place + ": no column has a name");
  records_.erase(records_.begin());
}

nlohmann::ordered_json CsvFile::read(uint64_t n) const {
  std::string record = text(records_[n]);
  if (!record.empty() && record.back() == '\r') record.pop_back();
  const std::vector<std::string> fields = fields_of(record, place(n));
  if (fields.size() != columns_.size()) {
    throw UserError(place(n) + ": " + std::to_string(fields.size()) + (fields.size() == 1 ? " field" : " fields") +
                    ", but the header names " + std::to_string(columns_.size()) +
                    (columns_.size() == 1 ? " column" : " columns") + "; a field with a comma stands in quotes");
  }
  nlohmann::ordered_json::object_t object;  // filled by push_back, because operator[] would search for each name
  for (size_t i = 0; i < fields.size(); ++i) {
    if (columns_[i].empty()) continue;
    if (!is_utf8(fields[i])) throw UserError(place(n) + ": " + shown_key(columns_[i]) + ": not UTF-8");
    object.emplace_back(columns_[i], fields[i]);
  }
  return nlohmann::ordered_json(std::move(object));
}

}  // namespace reprise
