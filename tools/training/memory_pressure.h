// Linux's pressure stall information of memory: how much of the last seconds somebody waited for memory ("PSI", Documentation/accounting/psi.rst).
// Here because it says before anything fails that a machine has too little memory, whoever takes it.
#pragma once

#include <optional>
#include <string>

namespace reprise {

// /proc/pressure/memory, or a control group's memory.pressure: "some avg10=1.53 avg60=0.87 avg300=0.22 total=6647206".
class PressureFile {
 public:
  explicit PressureFile(const std::string& path) : path_(path) {}
  // Per cent of the last 10 seconds in which at least one task waited. None where it cannot be read, or says nothing of the kind: `problem` is why.
  std::optional<double> read(std::string& problem) const;

 private:
  const std::string path_;
};

// When to take less memory, and when to take it again, so that a training does not change back and forth: what it gives back ends the
// pressure, and would bring it again.
class PressureJudge {
 public:
  explicit PressureJudge(double threshold) : threshold_(threshold) {}

  // Averages change every 2 seconds: once a second is enough.
  bool is_due(double seconds);
  // -1: the share has reached the threshold, and the last change is old enough for its effect to be seen. 1: it has been below half of the
  // threshold for a while. The while is doubled each time that pressure comes back within it, up to an hour.
  int judge(double share, double seconds);
  // Whoever was told so did it.
  void changed(int up, double seconds);

 private:
  static constexpr double kWindow = 10, kCalm = 60, kMostCalm = 3600;  // seconds
  const double threshold_;
  double calm_ = kCalm;
  std::optional<double> looked_, changed_, grown_, calm_since_;
};

}  // namespace reprise
