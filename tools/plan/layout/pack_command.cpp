// Reads and writes packing problems in csv and reports on them. Every error names file, line and
// column, because such files are often written by scripts.
#include "tools/plan/layout/pack_command.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "tools/files/formats/csv_file.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;  // sums of two cannot overflow

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// Returns a field for an error: one line of printable characters.
std::string shown(std::string_view text) {
  std::string line = "\"";
  for (char c : text.substr(0, 40)) line += static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c;
  return line + (text.size() > 40 ? "...\"" : "\"");
}

class Reader {
 public:
  Reader(const std::string& file, uint64_t capacity) : file_(file), capacity_(capacity) {}

  void header(std::string_view line) {
    const auto names = split(line, ',');
    fields_ = names.size();
    for (int column = 0; column < kColumns; ++column) {
      const auto named = [&](std::string_view name) { return trimmed(name) == kNames[column]; };
      const auto found = std::find_if(names.begin(), names.end(), named);
      if (found == names.end())
        fail(std::string("has no column \"") + kNames[column] + "\": the first line must name id,lower,upper,size");
      if (std::count_if(names.begin(), names.end(), named) > 1)
        fail(std::string("names column \"") + kNames[column] + "\" twice");
      where_[column] = static_cast<size_t>(found - names.begin());
    }
  }

  void buffer(std::string_view line, PackProblem& problem) {
    const auto fields = split(line, ',');
    if (fields.size() != fields_)
      fail("has " + std::to_string(fields.size()) + " fields where the first line names " + std::to_string(fields_));
    const std::string id(trimmed(fields[where_[kId]]));
    if (id.empty()) fail("column \"id\" is empty: every buffer needs a name of its own");
    const auto [known, fresh] = line_of_.emplace(id, line_);
    if (!fresh)
      fail("column \"id\": " + shown(id) + " was given on line " + std::to_string(known->second) + " already");
    const PackBuffer buffer = {number(fields, kLower), number(fields, kUpper), number(fields, kSize)};
    if (buffer.lower >= buffer.upper)
      fail("lower " + std::to_string(buffer.lower) + " is not below upper " + std::to_string(buffer.upper) +
           ": a buffer lives in [lower, upper)");
    if (capacity_ > 0 && buffer.size > capacity_)
      fail("size " + std::to_string(buffer.size) + " is larger than the capacity " + std::to_string(capacity_));
    total_ += buffer.size;
    if (total_ > kMaxBytes) fail("column \"size\": all sizes together must stay within 2^62");
    problem.ids.push_back(id);
    problem.buffers.push_back(buffer);
  }

  void next_line() { ++line_; }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(file_ + ":" + std::to_string(line_) + ": " + what);
  }

 private:
  enum Column { kId, kLower, kUpper, kSize, kColumns };
  static constexpr const char* kNames[kColumns] = {"id", "lower", "upper", "size"};

  uint64_t number(const std::vector<std::string_view>& fields, Column column) const {
    const std::string_view text = trimmed(fields[where_[column]]);
    const std::string field = std::string("column \"") + kNames[column] + "\": ";
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range || (error == std::errc() && value > kMaxBytes))
      fail(field + shown(text) + " is too large: at most 2^62");
    if (error != std::errc() || end != text.data() + text.size())
      fail(field + shown(text) + " must be a whole number, 0 or more");
    return value;
  }

  const std::string& file_;
  const uint64_t capacity_;
  size_t line_ = 0;
  size_t fields_ = 0;
  size_t where_[kColumns] = {};
  uint64_t total_ = 0;
  std::unordered_map<std::string, size_t> line_of_;
};

}  // namespace

PackProblem parse_pack_problem(const std::string& text, const std::string& file, uint64_t capacity) {
  PackProblem problem;
  Reader reader(file, capacity);
  std::string_view rest = text;
  if (rest.substr(0, 3) == "\xef\xbb\xbf") rest.remove_prefix(3);
  bool has_header = false;
  for (std::string_view line : split(rest, '\n')) {
    reader.next_line();
    if (trimmed(line).empty()) continue;
    if (has_header) reader.buffer(line, problem);
    else reader.header(line);
    has_header = true;
  }
  if (!has_header) throw UserError(file + ": is empty: the first line must name id,lower,upper,size");
  return problem;
}

namespace {
constexpr char kTitle[] = "id,lower,upper,size,offset\n";
}  // namespace

std::string packed_csv(const PackProblem& problem, const std::vector<uint64_t>& offsets) {
  std::string text = kTitle;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const PackBuffer& buffer = problem.buffers[i];
    text += csv_cell(problem.ids[i]);
    for (uint64_t value : {buffer.lower, buffer.upper, buffer.size, offsets[i]}) text += ',' + std::to_string(value);
    text += '\n';
  }
  return text;
}

namespace {

// True if the file begins with kTitle, and each other line has a value for each column of kTitle.
bool is_packing(const std::string& path) {
  try {
    const std::string text = read_file(path);
    if (!text.starts_with(kTitle)) return false;
    for (std::string_view rest = std::string_view(text).substr(std::strlen(kTitle)); !rest.empty();) {
      const size_t end = rest.find('\n');
      if (end == std::string_view::npos) return false;
      const std::vector<std::string_view> fields = split(rest.substr(0, end), ',');
      const auto is_number = [](std::string_view field) {
        return !field.empty() && field.find_first_not_of("0123456789") == std::string_view::npos;
      };
      if (fields.size() != 5 || !std::all_of(fields.begin() + 1, fields.end(), is_number)) return false;
      rest.remove_prefix(end + 1);
    }
    return true;
  } catch (const UserError&) {
    return false;
  }
}
constexpr OutputKind kPacking = {"packing", is_packing, true};

}  // namespace

nlohmann::json run_pack(const PackRequest& request) {
  std::optional<Output> output;
  if (!request.output_path.empty())
    output.emplace(request.output_path, kPacking, std::vector<std::string>{request.problem_path});
  const LongWork work("packing " + request.problem_path);
  const PackProblem problem =
      parse_pack_problem(read_file(request.problem_path), request.problem_path, request.capacity);
  const auto start = std::chrono::steady_clock::now();
  PackOptions options;
  options.capacity = request.capacity;
  options.nodes = UINT64_MAX;
  options.seconds = request.seconds;
  const Packing packing = pack_buffers(problem.buffers, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (packing.feasible && output) output->write(packed_csv(problem, packing.offsets));
  nlohmann::json report = {{"feasible", packing.feasible},
                           {"packed", nullptr},
                           {"lower_bound", packing.lower_bound},
                           {"proven", packing.proven},
                           {"seconds", seconds}};
  if (packing.feasible) report["packed"] = packing.packed_bytes;
  return report;
}

std::string describe_pack(const nlohmann::json& report, uint64_t capacity) {
  const std::string bound = std::to_string(report.at("lower_bound").get<uint64_t>());
  if (report.at("feasible").get<bool>()) {
    const bool optimum = report.at("proven").get<bool>() && capacity == 0;
    return "packed " + std::to_string(report.at("packed").get<uint64_t>()) + " bytes" +
           (optimum ? ", the optimum" : "") + "; no packing is below " + bound;
  }
  return std::string(report.at("proven").get<bool>() ? "does not fit " : "no packing found within ") +
         std::to_string(capacity) + " bytes; no packing is below " + bound;
}

}  // namespace reprise
