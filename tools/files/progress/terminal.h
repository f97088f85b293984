// Properties of stderr, for lines that a user watches.
#pragma once

namespace reprise {

bool stderr_is_terminal();

// Seconds between two lines about the same work if stderr is not a terminal.
constexpr int kLinePauseSeconds = 10;

// Returns the number of columns of the terminal; 120 if stderr is not a terminal. Call it before
// each line, because the width of a window may change.
int stderr_columns();

}  // namespace reprise
