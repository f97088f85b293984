// See memory_pressure.h.
#include "tools/run/training/memory_pressure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace reprise {

// Fails on a kernel without PSI: the file does not exist, or cannot be read (psi=0).
std::optional<double> PressureFile::read(std::string& problem) const {
  char text[256];
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const ssize_t count = descriptor < 0 ? -1 : ::read(descriptor, text, sizeof text - 1);
  if (count < 0) problem = path_ + ": this kernel does not tell how much memory is short: " + std::strerror(errno);
  if (descriptor >= 0) ::close(descriptor);
  if (count < 0) return std::nullopt;
  text[count] = 0;
  constexpr const char* kField = "some avg10=";
  const char* const field = std::strstr(text, kField);
  char* end = nullptr;
  const double share = field == nullptr ? -1 : std::strtod(field + std::strlen(kField), &end);
  if (share >= 0 && share <= 100 && end != field + std::strlen(kField)) return share;
  problem = path_ + ": must hold a line \"some avg10=...\", as /proc/pressure/memory does";
  return std::nullopt;
}

bool PressureJudge::is_due(double seconds) {
  if (looked_ && seconds - *looked_ < 1) return false;
  looked_ = seconds;
  return true;
}

int PressureJudge::judge(double share, double seconds) {
  if (share >= threshold_ / 2) calm_since_.reset();
  if (share >= threshold_) return changed_ && seconds - *changed_ < kWindow ? 0 : -1;
  if (share >= threshold_ / 2) return 0;
  if (!calm_since_) calm_since_ = seconds;
  return seconds - *calm_since_ >= calm_ ? 1 : 0;
}

void PressureJudge::changed(int up, double seconds) {
  if (up < 0 && grown_ && seconds - *grown_ < calm_) calm_ = std::min(2 * calm_, kMaxCalm);
  if (up > 0) grown_ = seconds;
  changed_ = seconds;
  calm_since_.reset();
}

}  // namespace reprise
