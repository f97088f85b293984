// Writes records: a length, its checksum, the data, their checksum, all little-endian. The data are
// an Event message of TensorFlow's event.proto.
#include "tools/run/training/event_file.h"

#include <cmath>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "tools/files/io/error.h"

namespace reprise {
namespace {

// CRC-32C (Castagnoli, RFC 3720), reflected.
constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}();

// Returns the CRC-32C of `data`, masked as the format requires. Without the mask, the checksum of
// data that contain checksums would be weak.
uint32_t masked_crc(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char c : data) crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <typename Number>
void append_little_endian(std::string& to, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);  // all supported machines are little-endian
  to.append(bytes, sizeof bytes);
}

// Types of protobuf's wire format. A field is a key (field number and type), then the value.
enum class WireKind : uint32_t { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };

void append_varint(std::string& to, uint64_t number) {
  for (; number >= 0x80; number >>= 7) to += static_cast<char>(number | 0x80);
  to += static_cast<char>(number);
}
void append_key(std::string& to, uint32_t field, WireKind wire) {
  append_varint(to, field << 3 | static_cast<uint32_t>(wire));
}
void append_bytes(std::string& to, uint32_t field, std::string_view bytes) {
  append_key(to, field, WireKind::kBytes);
  append_varint(to, bytes.size());
  to += bytes;
}

// Field numbers of event.proto and summary.proto. The comments name their messages.
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;  // Event's fields
constexpr uint32_t kValue = 1;                                                                 // Summary's field
constexpr uint32_t kTag = 1, kSimpleValue = 2;                                                 // Summary.Value's fields
constexpr uint32_t kStatus = 1, kStart = 1;  // field "status" of SessionLog, and its value START

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw UserError(path + ": --tensorboard: " + what + ": " + std::strerror(errno));
}

}  // namespace

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::open(const std::string& folder, uint64_t resumed_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  char host[256] = "host";
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == 0) std::strcpy(host, "host");
  // TensorBoard reads files in the order of their names, so that the time is first, then a number.
  const std::string begin =
      folder + "/events.out.tfevents." + std::to_string(static_cast<uint64_t>(wall_seconds())) + ".";
  for (uint32_t n = 0; descriptor_ < 0; ++n) {
    path_ = begin + std::to_string(n) + "." + host;
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) refuse(path_, "cannot be made");
  }
  write_event(0, kFileVersion, "brain.Event:2");
  if (resumed_step == 0) return;
  std::string start;
  append_key(start, kStatus, WireKind::kVarint);
  append_varint(start, kStart);
  write_event(resumed_step + 1, kSessionLog, start);
}

void EventFile::write(const StepLine& line) {
  write_scalars(line.step, {{"train/loss", line.loss},
                            {"train/grad_norm", line.grad_norm},
                            {"train/learning_rate", line.lr},
                            {"train/step_seconds", line.seconds}});
  if (!line.answers) return;
  const JudgedAnswers& answers = *line.answers;
  write_scalars(line.step, {{"train/rewards/chosen", answers.rewards[0]},
                            {"train/rewards/rejected", answers.rewards[1]},
                            {"train/rewards/margins", answers.margin()},
                            {"train/rewards/accuracies", answers.accuracy}});
}

void EventFile::write(const EvaluationLine& line) {
  if (std::isnan(line.accuracy)) {
    write_scalars(line.step, {{"evaluation/loss", line.eval_loss}});
  } else {
    write_scalars(line.step, {{"evaluation/loss", line.eval_loss}, {"evaluation/accuracy", line.accuracy}});
  }
  for (const Metric& metric : line.metrics)
    write_scalars(line.step, {{(std::string("evaluation/") + metric.name).c_str(), metric.value}});
  if (!line.answers) return;
  const JudgedAnswers& answers = *line.answers;
  write_scalars(line.step, {{"evaluation/rewards/chosen", answers.rewards[0]},
                            {"evaluation/rewards/rejected", answers.rewards[1]},
                            {"evaluation/rewards/margins", answers.margin()}});
}

void EventFile::write_scalars(uint64_t step, std::initializer_list<std::pair<const char*, double>> scalars) {
  if (!is_open()) return;
  values_.clear();
  for (const auto& [tag, number] : scalars) {
    std::string& value = event_;
    value.clear();
    append_bytes(value, kTag, tag);
    append_key(value, kSimpleValue, WireKind::kFloat);
    append_little_endian(value, static_cast<float>(number));
    append_bytes(values_, kValue, value);
  }
  write_event(step, kSummary, values_);
}

void EventFile::write_event(uint64_t step, uint32_t field, const std::string& value) {
  event_.clear();
  append_key(event_, kWallTime, WireKind::kDouble);
  append_little_endian(event_, wall_seconds());
  append_key(event_, kStep, WireKind::kVarint);
  append_varint(event_, step);
  append_bytes(event_, field, value);
  record_.clear();
  append_little_endian(record_, uint64_t{event_.size()});
  append_little_endian(record_, masked_crc(record_));
  record_ += event_;
  append_little_endian(record_, masked_crc(event_));
  for (size_t written = 0; written < record_.size();) {
    const ssize_t n = ::write(descriptor_, record_.data() + written, record_.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(path_, "cannot be written");
    written += static_cast<size_t>(n);
  }
}

}  // namespace reprise
