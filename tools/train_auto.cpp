// The same as train.cpp for `"backend": "auto"`, which has a plan for each: the card's where a card can run it, else the CPU's.
#include "cuda/plan.h"
#include "plan.h"
#include "ports/cuda/cuda_port.h"
#include "ports/linux/linux_port.h"
#include "tools/training/program.h"

int main(int argc, char** argv) {
  namespace card = reprise::generated_cuda;
  namespace cpu = reprise::generated;
  return reprise::run_training({{card::kPlan, card::kRecipe, card::kSummary, reprise::cuda_port(), card::kPlanHash},
                                {cpu::kPlan, cpu::kRecipe, cpu::kSummary, reprise::linux_port(), cpu::kPlanHash}},
                               argc, argv);
}
