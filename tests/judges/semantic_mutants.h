// Semantic mutants of real plans: each is wrong in one value, and looks right in everything that check() could know.
// Here beside mutants.h because picking a place where the change matters needs to know what each row reads and writes:
// a trace. No judge is asked: that a mutant computes something else follows from how it was made.
#pragma once

#include <string>
#include <vector>

#include "tools/lowering/owned_plan.h"
#include "tests/judges/replay.h"

namespace reprise::testing {

struct SemanticMutant {
  std::string name;  // kind and place, enough to make it again with the same seed
  OwnedPlan plan;
};

// Of every kind one mutant for each program that has a place for it; the seed picks the place. `trace` is the good
// plan's. A place is one whose value reaches what lasts: rows that nobody reads are passed over, exchanged arguments
// hold different terms, a stale slot held another term, rows are exchanged only where the second reads what the first
// writes.
std::vector<SemanticMutant> make_semantic_mutants(const OwnedPlan& good, const ReplayTrace& trace, uint64_t seed);

// Whether `mutant`, made without knowing terms (mutants.h), changes nothing that lasts: apart from rows whose results
// nobody reads, it has the same rows in the same order, on the same arguments or on slots that hold the very same term.
bool changes_nothing(const OwnedPlan& good, const OwnedPlan& mutant, const ReplayTrace& trace);

// Rows of a program whose results reach nothing that lasts.
std::vector<uint32_t> idle_rows(const OwnedPlan& plan, ProgramId program, const ReplayTrace& trace);

}  // namespace reprise::testing
