// Peers by MPI: the ranks are the processes that mpirun has started, on one or several machines.
// Only mpi_port.cpp uses this header; other code uses the table. A program that links this code is
// compiled and linked with MPI's compiler wrapper, $(MPICXX) in the Makefile.
//
// All calls come from the thread that opened the peers (MPI_THREAD_FUNNELED). MPI makes progress
// only during its calls: every start and every wait advance all transfers in progress. Nothing here
// uses the heap; MPI itself does.
#pragma once

#include "lib/port.h"

namespace reprise {

// Returns the number of processes according to the environment of Open MPI's or MPICH's mpirun; 0
// if the environment does not state the number.
uint32_t mpi_processes();

// Connects to mpirun's processes. Returns kUnsupported, with `ranks` as the detail, if the number
// of processes is not `ranks`. One rank needs neither MPI nor mpirun. A process can open its peers
// only once, because MPI cannot restart.
//
// A call waits at most `timeout_seconds` without the end of any transfer. Time during which the
// process is stopped, for example by a job queue, does not count. After the timeout every waiting
// rank reports itself to the others. The error's detail is the lowest rank that has not reported
// within a second: it has ended, hangs, or computes for too long.
Status mpi_open_peers(uint32_t ranks, double timeout_seconds, Peers* peers);

// Closes the peers; all ranks close together. Each rank waits for its transfers and for the other
// ranks, with the same timeout as in any wait.
// After a fault, or if this wait fails, MPI_Abort ends every rank with status 1, including this
// one: write messages before you call this function. All ranks are also ended if a process exits
// without closing. If a process is killed, mpirun ends the others.
// A process leaves MPI when it exits, with its own exit status. It then waits for the others up to
// the timeout.
void mpi_close_peers(Peers* peers);

}  // namespace reprise
