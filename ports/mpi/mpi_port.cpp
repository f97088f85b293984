// Implements mpi_port.h: the Linux port's table, with the functions of mpi_peers.h for peers.
#include "ports/mpi/mpi_port.h"

#include "ports/linux/linux_port.h"
#include "ports/mpi/mpi_peers.h"

namespace reprise {
namespace {

Port with_peers(Port port) {
  port.name = "mpi";
  port.open_peers = mpi_open_peers;
  port.close_peers = mpi_close_peers;
  return port;
}

}  // namespace

// Returns the table. The table is not initialised statically, because the guard of a static
// initialiser is a function of the C++ run time.
const Port& mpi_port() {
  static Port port;
  port = with_peers(linux_port());
  return port;
}

}  // namespace reprise
