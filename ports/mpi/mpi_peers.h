// Peers by MPI: the ranks are the processes that mpirun has started, on one machine or several. A program that links this is compiled and linked by
// MPI's wrapper of the compiler, $(MPICXX) in the Makefile. Here so that mpi_port.cpp can name the functions; everybody else goes through the table.
//
// All calls come from the thread that opened the peers (MPI_THREAD_FUNNELED). MPI moves nothing by itself but while it is called: every start moves
// what is under way a bit, and a wait moves all of it, whatever it waits for. Nothing here takes heap; MPI takes its own.
#pragma once

#include "lib/port.h"

namespace reprise {

// How many processes the environment of Open MPI's mpirun or MPICH's says that there are; 0 where it says nothing.
uint32_t mpi_processes();

// Of mpirun's processes, which must be `ranks`: else kUnsupported with `ranks` as the detail. Peers of one rank do without MPI and mpirun. A process
// opens its peers once: MPI cannot start again.
//
// The time of `timeout_seconds` runs while a call waits and nothing that is under way ends, and stands still while the whole process is stopped, as
// a queue of jobs stops it. Then the ranks that wait, too, say that they are there, and the detail is the lowest rank of which nothing was heard for
// a second: it has ended, hangs, or computes for too long.
Status mpi_open_peers(uint32_t ranks, double timeout_seconds, Peers* peers);

// All ranks close together: each waits for what is under way and for the others to come here, as any wait does. After a fault, and where that wait
// fails, every rank is ended with status 1 by MPI_Abort, this one as well: what it has to say must be said before. The same happens where a process
// exits without closing; one that is killed is seen by mpirun, which ends the others. A process leaves MPI when it exits, with its status: it waits
// for the others to do so for the time that the peers were given.
void mpi_close_peers(Peers* peers);

}  // namespace reprise
