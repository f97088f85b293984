// Like train.cpp, for a plan of several processes, which are started by mpirun.
#include "plan.h"
#include "ports/mpi/mpi_port.h"
#include "tools/run/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated::kPlans, reprise::mpi_port())}, argc, argv);
}
