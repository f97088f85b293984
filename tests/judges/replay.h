// The replay, second judge of a plan (DESIGN 3): symbolic execution of every row over an arena of terms.
// Here because check() proves that a plan is safe, not that it computes what the network says; the two share no code.
// It must not look at check.h or at the lowering.
//
// The arena is one range of bytes [ State | Carried | program's region ]; each range of it holds one whole term or
// garbage. A row must find, at exactly its arguments' addresses and lengths, whole terms of their very forms; what it
// writes destroys whatever it overlaps, scratch included. The spill file is a second such range, which transfers alone reach; under way a
// transfer's destination is garbage, and its source must hold at the wait what it held at the start. A slot is garbage when it is born and when it dies. At the
// end everything that lasts (parameters, moments, norms, running statistics, StepScalars) must hold the terms of
// expected_terms.h, neither more nor less.
#pragma once

#include <string>

#include "lib/plan.h"
#include "tests/judges/expected_terms.h"

namespace reprise::testing {

struct ReplayVerdict {
  bool ok = true;
  std::string program;  // which run of which program; "the step" and "the evaluation" for what is wrong after it
  uint32_t row = ~0u;   // ~0: none
  std::string reason;

  std::string text() const;
};

// The terms that a row read and wrote, argument by argument (of a group: its first tensor); for makers of mutants.
struct RowTerms {
  Term read[kMaxArguments] = {};
  Term written[kMaxArguments] = {};
};
struct ReplayTrace {
  std::vector<RowTerms> rows[kProgramCount];  // of the first run of each program
};

class Replay {
 public:
  // The network as a model builds it; optimizer and micro-batches come from the recipe. Nothing else is believed.
  Replay(const Graph& network, const Recipe& recipe);

  // Runs one step from any State, then one batch of evaluation. The plan may be as wrong as it likes.
  ReplayVerdict judge(const Plan& plan, ReplayTrace* trace = nullptr);

 private:
  TermTable terms_;
  ExpectedStep expected_;
};

}  // namespace reprise::testing
