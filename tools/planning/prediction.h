// Seconds of a plan before it runs, from costs that were measured.
// Here because the planner, the manifest and the audit foretell with the same numbers.
#pragma once

#include <optional>

#include "tools/planning/planner.h"

namespace reprise {

// Of a whole step: the rows of its micro-batches and of the update, and what a micro-batch takes beside them. It is not the
// makespan: rows that nothing reads are dropped, gradients moved. None without measured costs. Transfers to and from disk count in
// full, though a write overlaps the rows that follow it: with them it is an upper bound. Of streamed weights only what rows wait for them counts,
// at so much a byte (streamed_step_cost in weight_stream.h). Of what comes from other ranks the same counts, where the wire was measured and
// nothing comes from a file (wire_time.h).
std::optional<double> predict_seconds(const SolvedModel& model, const OwnedPlan& plan);
// Of one row; a transfer's are at its start, and what ranks share has none.
std::optional<double> predict_row_seconds(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program, const Row& row);
// The same, in flop equivalents where nothing was measured.
double row_cost(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program, const Row& row);
// Of a whole step with what ranks share; the wire must have been measured.
WireTime step_on_wire(const SolvedModel& model, const OwnedPlan& plan);

}  // namespace reprise
