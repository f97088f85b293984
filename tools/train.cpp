// The program for which a plan for the CPU is compiled: plan.h is proved here, and the port is
// selected. Only this small translation unit is compiled for each plan.
#include "plan.h"
#include "ports/linux/linux_port.h"
#include "tools/run/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated::kPlans, reprise::linux_port())}, argc,
                               argv);
}
