// What stderr is, for lines that a person watches.
#pragma once

namespace reprise {

bool stderr_is_terminal();

// What fits into one of its lines; 120 where it is no terminal. Asked anew each time, since a window changes its width.
int stderr_columns();

}  // namespace reprise
