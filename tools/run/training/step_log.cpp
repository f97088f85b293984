// Formats a line with snprintf in a fixed buffer, and writes it with one call. Numbers that are not
// finite are written as null, because JSON cannot represent them.
#include "tools/run/training/step_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"

namespace reprise {

namespace {

constexpr OutputKind kLog = {"log", [](const std::string&) { return true; }};  // end_of_kept_lines() checks the lines

constexpr size_t kLineBytes = 512;  // capacity for an evaluation without metrics

// Returns the offset in an existing log at which a run appends: after the last complete line. A
// resumed run drops the last run's lines after `resumed_step`. Throws UserError if the file is not
// a log.
off_t end_of_kept_lines(const std::string& path, uint64_t resumed_step) {
  off_t end = 0, kept = 0;
  uint64_t lines = 0, last_step = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line); ++lines) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    const auto has = [&entry](std::initializer_list<const char*> keys) {
      return std::all_of(keys.begin(), keys.end(), [&](const char* key) { return entry.contains(key); });
    };
    const bool is_entry = entry.is_object() && has({"step"}) && entry["step"].is_number_unsigned() &&
                          (has({"loss", "grad_norm", "lr", "seconds"}) || has({"eval_loss", "accuracy"}));
    constexpr std::string_view kStart = "{\"step\": ";
    // The last line may be incomplete if its run was killed.
    if (file.eof() && lines > 0 && kStart.substr(0, line.size()) == std::string_view(line).substr(0, kStart.size()))
      break;
    if (!is_entry)
      throw UserError(path + ": --log: line " + std::to_string(lines + 1) +
                      " is none of a training's log; give another file");
    const uint64_t step = entry["step"].get<uint64_t>();
    if (step < last_step || (step == last_step && entry.contains("loss"))) kept = end;  // a new run begins here
    end += static_cast<off_t>(line.size()) + 1;
    if (step <= resumed_step) kept = end;
    last_step = step;
  }
  return resumed_step == 0 ? end : kept;
}

struct Number {
  char text[32];
  Number(double value, int digits) {
    if (std::isfinite(value)) {
      std::snprintf(text, sizeof text, "%.*g", digits, value);
    } else {
      std::strcpy(text, "null");
    }
  }
};

// Formats the keys for judged answers, with a comma before the first key; "" if there are none.
struct AnswerKeys {
  char text[256] = "";
  explicit AnswerKeys(const std::optional<JudgedAnswers>& answers) {
    if (!answers) return;
    std::snprintf(
        text, sizeof text,
        ", \"rewards_chosen\": %s, \"rewards_rejected\": %s, \"rewards_margins\": %s, \"rewards_accuracies\": %s",
        Number(answers->rewards[0], 9).text, Number(answers->rewards[1], 9).text, Number(answers->margin(), 9).text,
        Number(answers->accuracy, 9).text);
  }
};

// Returns the keys for metrics, with a comma before the first key.
std::string metric_keys(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    text += std::string(", \"") + metric.name + "\": " + Number(metric.value, 9).text;
    for (size_t i = 0; i < metric.each.size(); ++i) {
      text += (i == 0 ? std::string(", \"") + metric.each_name + "\": [" : std::string(", ")) +
              Number(metric.each[i], 9).text + (i + 1 == metric.each.size() ? "]" : "");
    }
  }
  return text;
}

}  // namespace

StepLog::~StepLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void StepLog::open(const std::string& path, const std::vector<std::string>& inputs, uint64_t resumed_step) {
  path_ = path;
  const Output refuses_inputs(path, kLog, inputs);
  line_.reserve(kLineBytes);
  struct stat status;
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  const off_t kept = is_there && S_ISREG(status.st_mode) ? end_of_kept_lines(path, resumed_step) : 0;
  descriptor_ = open_to_write(path, O_CREAT);
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0)
    throw UserError(path + ": --log: cannot be written: " +
                    (errno == ENXIO ? "nobody reads this pipe or socket" : std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) return;  // a terminal or a pipe needs no lock
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw UserError(path + ": --log: another run writes it; give another file");
  }
  if (::ftruncate(descriptor_, kept) != 0 || ::lseek(descriptor_, kept, SEEK_SET) != kept) {
    throw UserError(path + ": --log: cannot be cut to the lines up to step " + std::to_string(resumed_step) + ": " +
                    std::strerror(errno));
  }
}

void StepLog::write(const StepLine& line) {
  if (!is_open()) return;
  char text[768], budget[48] = "";
  if (line.budget_bytes) std::snprintf(budget, sizeof budget, ", \"budget_bytes\": %" PRIu64, *line.budget_bytes);
  const int length =
      std::snprintf(text, sizeof text,
                    "{\"step\": %" PRIu64
                    ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"seconds\": %.6f, \"planned_bytes\": %" PRIu64
                    ", \"measured_bytes\": %" PRIu64 "%s%s}\n",
                    line.step, Number(line.loss, 9).text, Number(line.grad_norm, 9).text, Number(line.lr, 9).text,
                    line.seconds, line.planned_bytes, line.measured_bytes, AnswerKeys(line.answers).text, budget);
  write_text(text, length);
}

void StepLog::write(const EvaluationLine& line) {
  if (!is_open()) return;
  char text[kLineBytes];
  const int length =
      std::snprintf(text, sizeof text, "{\"step\": %" PRIu64 ", \"eval_loss\": %s, \"accuracy\": %s%s", line.step,
                    Number(line.eval_loss, 9).text, Number(line.accuracy, 9).text, AnswerKeys(line.answers).text);
  line_.assign(text, static_cast<size_t>(length));
  line_ += metric_keys(line.metrics);
  line_ += "}\n";
  write_text(line_.data(), static_cast<int>(line_.size()));
}

void StepLog::flush() const {
  if (is_open()) (void)::fdatasync(descriptor_);
}

void StepLog::write_text(const char* text, int length) {
  for (int written = 0; written < length;) {
    const ssize_t n = ::write(descriptor_, text + written, static_cast<size_t>(length - written));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw UserError(path_ + ": --log: cannot be written: " + std::strerror(errno));
    written += static_cast<int>(n);
  }
}

}  // namespace reprise
