// The program a plan for the CPU is compiled into: plan.h proves itself here, and the board is named.
// Here so that one small translation unit is compiled for each plan.
#include "plan.h"
#include "ports/linux/linux_port.h"
#include "tools/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated::kPlans, reprise::linux_port())}, argc, argv);
}
