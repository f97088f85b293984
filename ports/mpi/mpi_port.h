// The port of several processes: MPI's ranks (mpi_peers.h), on boards that are the Linux port's in all else.
// A program that links it is linked by MPI's wrapper of the compiler, and is started by mpirun.
#pragma once

#include "lib/port.h"

namespace reprise {

const Port& mpi_port();

}  // namespace reprise
