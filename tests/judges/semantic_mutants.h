// Semantic mutants of real plans. Each computes at least one wrong value, so the replay must reject
// it. The mutants are not passed to check(), which could refuse some of them. A trace of the terms
// that each row reads and writes shows where a change affects the results. The way in which a
// mutant is made guarantees that a value is wrong.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/lowering/owned_plan.h"
#include "tests/judges/replay.h"

namespace reprise::testing {

struct SemanticMutant {
  std::string name;  // kind, program, row and argument; with the seed they identify the mutant
  OwnedPlan plan;
};

// Returns, for each program, one mutant of each kind that can be made from it. If several rows or
// arguments are suitable, the seed selects one. `trace` is the trace of the correct plan. A row or
// argument is suitable if the changed value affects a lasting result. So rows whose results are not
// read are skipped, exchanged arguments contain different terms, and a stale slot contained another
// term. Two rows are exchanged only if the second row reads a result of the first.
std::vector<SemanticMutant> make_semantic_mutants(const OwnedPlan& good, const ReplayTrace& trace, uint64_t seed);

// True if `mutant`, which was made without a trace (mutants.h), gives the same lasting results as
// `good`. This is so if it has the same rows in the same order, with equal arguments or with slots
// that contain equal terms. Rows whose results are never read do not count.
bool changes_nothing(const OwnedPlan& good, const OwnedPlan& mutant, const ReplayTrace& trace);

// Returns the rows of a program whose results affect no lasting value.
std::vector<uint32_t> idle_rows(const OwnedPlan& plan, ProgramId program, const ReplayTrace& trace);

}  // namespace reprise::testing
