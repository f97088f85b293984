// A plan as it was compiled into a program.
#pragma once

#include "lib/plan.h"
#include "lib/port.h"

namespace reprise {

// What plan.h holds, and the board that it was planned for.
struct CompiledPlan {
  const Plan& plan;
  const char* recipe;   // the canonical recipe's text
  const char* summary;  // the plan in a few lines, for a person
  const Port& port;
  const char* hash = "";  // names the plan, as its manifest does
};

}  // namespace reprise
