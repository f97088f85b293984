// See terminal.h.
#include "tools/files/progress/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace reprise {

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

int stderr_columns() {
  if (!stderr_is_terminal()) return 120;
  struct winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace reprise
