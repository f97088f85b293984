// The port of several processes: MPI's ranks (mpi_peers.h), and the Linux port's functions for
// everything else. A program that uses it is linked with MPI's compiler wrapper and started by
// mpirun.
#pragma once

#include "lib/port.h"

namespace reprise {

// Returns the port's table, which has static storage.
const Port& mpi_port();

}  // namespace reprise
