// The pauses that are asked of a training: by a control file, or by SIGTSTP, which Ctrl-Z sends.
// Here because a board trains in its spare time: a camera that it watches, or an answer that it gives, comes first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lib/trainer.h"
#include "tools/training/control_file.h"

namespace reprise {

// From now on SIGTSTP stops the process where it pauses, and no longer in the middle of a row. Where it was ignored it stays so.
void set_up_pause_signal();

// Holds up whoever calls it for as long as a control file says "pause", or SIGTSTP has stopped the process. The device is idle meanwhile.
class Pause {
 public:
  // `control`: null where there is none. `say` gets a line when a pause begins and when it ends.
  Pause(ControlFile* control, const Trainer& trainer, double (*seconds)(), std::function<void(const std::string&)> say);

  // Between steps or rows. A signal that ends the training ends a pause too: the running step is ended then.
  void wait_while_asked();
  // Waits before each row. It refers to this object.
  RowObserver observer();
  // For how long all pauses took so far.
  double paused_seconds() const { return paused_; }

 private:
  static constexpr double kLookSeconds = 0.02, kSleepSeconds = 0.05;
  bool is_asked();
  void pause_while(const std::string& reason, const std::function<void()>& wait);

  ControlFile* const control_;
  const Trainer& trainer_;
  double (*const seconds_)();
  const std::function<void(const std::string&)> say_;
  double looked_ = -kLookSeconds, paused_ = 0;
};

}  // namespace reprise
