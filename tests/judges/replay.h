// The replay is the second judge of a plan (DESIGN 3): symbolic execution of every row over an
// arena of terms. check() proves that a plan is safe. The replay shows that the plan computes what
// the network defines. The two share no code, and the replay must not use check.h or the lowering.
//
// The arena is one range of bytes [ State | Carried | program's region ]. Each part of it contains
// one whole term or garbage. At the address and length of each argument, a row must find one whole
// term of the right form. A row's outputs and scratch destroy the terms that they overlap. A slot
// is garbage at its birth and after its death.
//
// The spill file is another range, which only transfers access. During a transfer the destination
// is garbage, and the source must contain the same term at the wait as at the start. At the end,
// everything that lasts must contain exactly the terms of expected_terms.h: parameters, moments,
// norms, running statistics and StepScalars.
#pragma once

#include <string>

#include "lib/plan.h"
#include "tests/judges/expected_terms.h"

namespace reprise::testing {

struct ReplayVerdict {
  bool ok = true;
  // Name of the program in which the fault was found, with the number of its run for micro_add and
  // micro_last. "the step" or "the evaluation" if the results after it were wrong; "the arena"
  // before the first program.
  std::string program;
  uint32_t row = ~0u;   // row at which the fault was found; ~0 if none
  std::string reason;

  std::string text() const;
};

// The terms that a row read and wrote, by argument; for a group, those of its first tensor. Mutants
// are made with them.
struct RowTerms {
  Term read[kMaxArguments] = {};
  Term written[kMaxArguments] = {};
};
struct ReplayTrace {
  std::vector<RowTerms> rows[kProgramCount];  // by row, from the first run of each program
};

class Replay {
 public:
  // Makes a judge for plans of `network`, which is complete, as a model builds it. Uses only the
  // optimizer and the micro-batches of the recipe.
  Replay(const Graph& network, const Recipe& recipe);

  // Runs one step, whose State starts as unknown values, and then one batch of evaluation. The plan
  // need not be safe. If `trace` is not null, it receives the terms of each row.
  ReplayVerdict judge(const Plan& plan, ReplayTrace* trace = nullptr);

 private:
  TermTable terms_;
  ExpectedStep expected_;
};

}  // namespace reprise::testing
