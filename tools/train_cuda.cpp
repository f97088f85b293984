// The same as train.cpp for a plan of `"backend": "cuda"`.
#include "plan.h"
#include "ports/cuda/cuda_port.h"
#include "tools/training/program.h"

int main(int argc, char** argv) {
  using namespace reprise::generated;
  return reprise::run_training({{kPlan, kRecipe, kSummary, reprise::cuda_port(), kPlanHash}}, argc, argv);
}
