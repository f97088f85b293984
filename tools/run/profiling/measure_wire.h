// Measures the network between ranks with a separate program (tools/peers_mpi.cpp), which MPI
// starts on the machines. This program itself does not use MPI; a command line states which
// machines to use.
#pragma once

#include <string>

#include "tools/plan/costs/wire_time.h"

namespace reprise {

// Runs the command in the shell, for example "mpirun -np 2 -H a,b build/peers_mpi"; its stderr is
// this program's stderr. Throws UserError with the command if it fails or prints something else
// than wire_of() accepts.
Wire measure_wire(const std::string& command);

// Returns the wire from the output of the command, one line: {"ranks": 2, "broadcasts": [{"bytes",
// "seconds"}, ...], "shares": [the same]}. A share is what rows start for a gradient: every rank
// broadcasts at the same time. Its seconds are for the ranks - 1 tensors that a rank receives.
// The result is a line: message seconds + bytes * seconds per byte. It passes through the smallest
// size and is fitted to the others: the sum of squared errors, each divided by its seconds, is
// minimal. With absolute errors the largest size alone would decide; with relative errors it would
// hardly count. No coefficient is negative.
Wire wire_of(const std::string& printed, const std::string& command);

}  // namespace reprise
