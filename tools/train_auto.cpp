// Like train.cpp, for `"backend": "auto"`, with two plans: the card's plan is used if a card can
// run it, otherwise the CPU's plan.
#include "cuda/plan.h"
#include "plan.h"
#include "ports/cuda/cuda_port.h"
#include "ports/linux/linux_port.h"
#include "tools/run/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated_cuda::kPlans, reprise::cuda_port()),
                                reprise::compiled_plans(reprise::generated::kPlans, reprise::linux_port())},
                               argc, argv);
}
