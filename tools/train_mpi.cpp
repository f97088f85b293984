// The same as train.cpp for a plan of several processes, which mpirun starts.
#include "plan.h"
#include "ports/mpi/mpi_port.h"
#include "tools/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated::kPlans, reprise::mpi_port())}, argc, argv);
}
