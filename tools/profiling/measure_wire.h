// What the network between ranks takes, by a program of its own (tools/peers_mpi.cpp), which MPI starts on them.
// Here because this program knows no MPI, and a command line says best which machines are meant.
#pragma once

#include <string>

#include "tools/planning/wire_time.h"

namespace reprise {

// Runs the command by the shell, as "mpirun -np 2 -H a,b build/peers_mpi"; its stderr is this program's. Throws UserError, which names the command,
// where it fails or prints something else.
Wire measure_wire(const std::string& command);

// Of what it printed: {"ranks": 2, "broadcasts": [{"bytes", "seconds"}, ...], "shares": [the same]}, on one line. A share is what rows start for a
// gradient: a broadcast of each rank at once. Its seconds are those of ranks - 1 tensors, which each rank receives; message + bytes * byte has those
// of the smallest size, and is fitted to the others so that the sum of the errors' squares, each divided by the seconds, is least: between absolute
// errors, which the largest alone would decide, and relative ones, in which it would be lost. Neither is negative.
Wire wire_of(const std::string& printed, const std::string& command);

}  // namespace reprise
