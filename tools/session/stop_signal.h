// The wish to end, from SIGINT, SIGTERM or SIGHUP, and what becomes of it.
//
//   first signal    one line on stderr at once, and the turn that runs is ended: a training saves then (training_run.cpp)
//   second          the program of rows that runs ends at its next row; State is half updated and is not saved. Where no rows run, as the third
//   third           the process ends at once; files that are not finished are deleted
//
// A SIGHUP counts only where it is the first, because a terminal that closes sends several; so does a signal within a tenth of a second.
// The exit status is 0 where something was saved, else 128 and the signal.
#pragma once

#include <cstdint>

namespace reprise {

// A SIGHUP that the program was started to ignore stays ignored (nohup). Files that may grow no further, and readers that went away, are
// errors of write() from then on, not signals.
void set_up_signals();

// For a program that has nothing to save: the first signal prints a line, deletes files that are not finished, ends a compiler that runs, and
// then ends the process as without it. A signal that is ignored stays ignored.
void set_up_ending_signals();

// The first signal that asked the program to end; 0 while none has.
int stop_signal();

// True from the second signal on: Trainer::stops.
bool stops_at_row();

// No line is printed from here on: of several ranks the first one speaks.
void silence_stop_signals();

// Names what is going on, for the line at a signal.
enum class Activity : uint8_t { kSettingUp, kTraining, kEvaluating, kPredicting, kAnswering, kSaving, kEnding };

// Says what is going on from its making to its end, then what went on before. By one thread only.
class Doing {
 public:
  explicit Doing(Activity activity);
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

  // A turn begins, as a step, that takes about so many seconds; 0: not known.
  void begin_turn(double usual_seconds);

 private:
  const Activity before_;
};

}  // namespace reprise
