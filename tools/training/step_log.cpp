// Lines by snprintf into a fixed buffer, written with one call each.
// Numbers that are not finite are written as null: JSON has none.
// It must not know training.
#include "tools/training/step_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/formats/error.h"
#include "tools/formats/output_file.h"

namespace reprise {

namespace {

std::string lines_up_to(const std::string& path, uint64_t step) {
  std::string kept, line;
  std::ifstream file(path);
  while (step > 0 && std::getline(file, line)) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    if (entry.is_object() && entry.value("step", uint64_t{0}) <= step && entry.contains("step")) kept += line + "\n";
  }
  return kept;
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

}  // namespace

StepLog::~StepLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void StepLog::open(const std::string& path, uint64_t resumed_step) {
  path_ = path;
  const std::string kept = lines_up_to(path, resumed_step);
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw UserError(path + ": --log: cannot be written: " + std::strerror(errno));
  write_text(kept.data(), static_cast<int>(kept.size()));
}

void StepLog::write(const StepLine& line) {
  if (!is_open()) return;
  char text[400];
  const int length = std::snprintf(text, sizeof text,
                                   "{\"step\": %" PRIu64 ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, \"seconds\": %.6f, \"planned_bytes\": %" PRIu64
                                   ", \"measured_bytes\": %" PRIu64 "}\n",
                                   line.step, Number(line.loss, 9).text, Number(line.grad_norm, 9).text, Number(line.lr, 9).text, line.seconds,
                                   line.planned_bytes, line.measured_bytes);
  write_text(text, length);
}

void StepLog::write(const EvaluationLine& line) {
  if (!is_open()) return;
  char text[200];
  const int length = std::snprintf(text, sizeof text, "{\"step\": %" PRIu64 ", \"eval_loss\": %s, \"accuracy\": %s}\n", line.step,
                                   Number(line.eval_loss, 9).text, Number(line.accuracy, 9).text);
  write_text(text, length);
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
