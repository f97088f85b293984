// The effects of SIGINT, SIGTERM and SIGHUP, which ask a program to end.
//
//   first signal    prints one line on stderr at once. The program ends its activity after the
//                   current unit of work, for example a step; a training then saves
//                   (training_run.cpp)
//   second          ends the running program of rows at its next row. State is half updated and is
//                   not saved. A snapshot that is being saved is completed first. During the
//                   set-up, and at the end of the program, the effect is that of the third
//   third           ends the process at once; unfinished files are deleted
//
// A SIGHUP counts only if it is the first signal, because a terminal that closes sends several.
// Signals within a tenth of a second after another one do not count either. The exit status is 0 if
// something was saved, otherwise 128 plus the signal.
#pragma once

#include <cstdint>

namespace reprise {

// Installs the handlers. If SIGHUP was ignored when the program started, it stays ignored (nohup).
// Exceeding the file size limit, or writing to a closed pipe, becomes an error of write() instead
// of a signal.
void set_up_signals();

// Installs handlers for a program that has nothing to save. The first signal prints a line, deletes
// unfinished files, ends a child process, and then ends the process in the default way. A signal
// that was ignored stays ignored.
void set_up_ending_signals();

// Returns the first signal that asked the program to end; 0 if there was none.
int stop_signal();

// True if a second signal has arrived. It is the function for Trainer::stops.
bool stops_at_row();

// Disables the lines that signals print, in all ranks except the first.
void silence_stop_signals();

// The current activity; the line that a signal prints names it.
enum class Activity : uint8_t { kSettingUp, kTraining, kEvaluating, kPredicting, kAnswering, kSaving, kEnding };

// Sets the activity for the object's lifetime; the destructor restores the previous one. Only one
// thread may use it.
class Doing {
 public:
  explicit Doing(Activity activity);
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

  // Starts a unit of work, for example a step, and states how many seconds it usually takes; 0 if
  // unknown.
  void begin_turn(double usual_seconds);

 private:
  const Activity before_;
};

}  // namespace reprise
