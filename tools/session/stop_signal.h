// The wish to end, from SIGINT, SIGTERM or SIGHUP: noted, so that a training may save first.
#pragma once

namespace reprise {

// A SIGHUP that the program was started to ignore stays ignored (nohup). Files that may grow no further, and readers that went away, are
// errors of write() from then on, not signals.
void set_up_signals();

// The signal that asked the program to end; 0 while none has.
int stop_signal();

}  // namespace reprise
