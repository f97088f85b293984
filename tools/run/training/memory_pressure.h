// Linux's pressure stall information for memory ("PSI", Documentation/accounting/psi.rst): the
// share of recent time in which a task waited for memory. It shows that a machine is short of
// memory before allocations fail, whichever process uses the memory.
#pragma once

#include <optional>
#include <string>

namespace reprise {

// The file /proc/pressure/memory, or a control group's memory.pressure, with a line such as
// "some avg10=1.53 avg60=0.87 avg300=0.22 total=6647206".
class PressureFile {
 public:
  explicit PressureFile(const std::string& path) : path_(path) {}
  // Returns the percentage of the last 10 seconds in which at least one task waited for memory.
  // Returns nothing and sets `problem` if the file cannot be read or has no such line.
  std::optional<double> read(std::string& problem) const;

 private:
  const std::string path_;
};

// Decides when a training should use less memory, and when more again. It must not switch back and
// forth: releasing memory ends the pressure, and using the memory again would bring the pressure
// back.
class PressureJudge {
 public:
  explicit PressureJudge(double threshold) : threshold_(threshold) {}

  // True if at least a second has passed since the last call that returned true. The kernel updates
  // its averages every 2 seconds.
  bool is_due(double seconds);
  // Returns -1 (use less memory) if the share has reached the threshold and the last change is at
  // least kWindow ago, so that its effect is included. Returns 1 (use more) if the share has been
  // below half of the threshold for the calm time. Otherwise returns 0.
  int judge(double share, double seconds);
  // Records that the plan was changed as judge() requested: `up` is its result. If pressure has
  // returned within the calm time after a change to more memory, doubles the calm time, up to
  // kMaxCalm.
  void changed(int up, double seconds);

 private:
  static constexpr double kWindow = 10, kCalm = 60, kMaxCalm = 3600;  // seconds
  const double threshold_;
  double calm_ = kCalm;
  // Times of the last is_due(), of the last change, of the last change to more memory, and of the
  // beginning of calm.
  std::optional<double> looked_, changed_, grown_, calm_since_;
};

}  // namespace reprise
