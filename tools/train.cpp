// The program a plan is compiled into: plan.h proves itself here.
// Here so that one small translation unit is compiled for each plan.
// It must not know what is in the plan.
#include "plan.h"
#include "tools/training/program.h"

int main(int argc, char** argv) {
  using namespace reprise::generated;
  return reprise::run_training({kPlan, kRecipe, kSummary}, argc, argv);
}
