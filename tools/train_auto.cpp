// The same as train.cpp for `"backend": "auto"`, which has a plan for each: the card's where a card can run it, else the CPU's.
#include "cuda/plan.h"
#include "plan.h"
#include "ports/cuda/cuda_port.h"
#include "ports/linux/linux_port.h"
#include "tools/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated_cuda::kPlans, reprise::cuda_port()),
                                reprise::compiled_plans(reprise::generated::kPlans, reprise::linux_port())},
                               argc, argv);
}
