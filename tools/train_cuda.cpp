// Like train.cpp, for a plan with `"backend": "cuda"`.
#include "plan.h"
#include "ports/cuda/cuda_port.h"
#include "tools/run/training/program.h"

int main(int argc, char** argv) {
  return reprise::run_training({reprise::compiled_plans(reprise::generated::kPlans, reprise::cuda_port())}, argc, argv);
}
