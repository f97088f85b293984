// Predicts seconds of a plan from measured costs. The planner, the manifest and the audit use the
// same numbers.
#pragma once

#include <optional>

#include "tools/plan/planning/planner.h"

namespace reprise {

// Returns the seconds of a whole step; nothing without measured costs. Counted are the rows of the
// micro-batches and of the update, and the time that micro-batches take in addition to rows. The
// result differs from the makespan, because rows that nothing reads are dropped, and gradients are
// moved. Transfers to and from disk count in full, though a write overlaps the rows that follow, so
// that the result is then an upper bound. Streamed weights count only where rows wait for them, at
// a price per byte (streamed_step_cost in weight_stream.h). Data from other ranks also counts only
// where rows wait for it, if the wire was measured and no weight is streamed from a file
// (wire_time.h).
std::optional<double> predict_seconds(const SolvedModel& model, const OwnedPlan& plan);
// Returns the seconds of one row. A transfer counts in the row that starts it. Transfers between
// ranks count as 0.
std::optional<double> predict_row_seconds(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program,
                                          const Row& row);
// Returns the cost of one row: seconds, or flop equivalents without measured costs.
double row_cost(const SolvedModel& model, const OwnedPlan& plan, const OwnedProgram& program, const Row& row);
// Returns the time of a whole step, with the time that ranks need to share data. The wire must have
// been measured.
WireTime step_on_wire(const SolvedModel& model, const OwnedPlan& plan);

}  // namespace reprise
