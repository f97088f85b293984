// The wish to end, from SIGINT, SIGTERM or SIGHUP: noted, so that a training may save first. Its running step ends, the snapshot is saved where
// --save asks for one, an adapter is written, and the exit status is 0 where something was saved, else 128 and the signal (training_run.cpp).
#pragma once

namespace reprise {

// A SIGHUP that the program was started to ignore stays ignored (nohup). Files that may grow no further, and readers that went away, are
// errors of write() from then on, not signals.
void set_up_signals();

// The signal that asked the program to end; 0 while none has.
int stop_signal();

}  // namespace reprise
