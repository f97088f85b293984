// See stop_signal.h.
#include "tools/session/stop_signal.h"

#include <signal.h>

#include <initializer_list>

namespace reprise {
namespace {

volatile sig_atomic_t asked = 0;
void note(int signal) { asked = signal; }

}  // namespace

void set_up_signals() {
  asked = 0;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {}, before = {};
    action.sa_handler = note;
    const bool is_ignored = ::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (number == SIGHUP && is_ignored) continue;
    ::sigaction(number, &action, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

int stop_signal() { return asked; }

}  // namespace reprise
