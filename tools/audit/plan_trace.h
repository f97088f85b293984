// A plan in the trace format of Chrome and Perfetto: rows as slices on their queues, the live bytes as a counter.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/formats/output.h"

namespace reprise {

// Of a manifest that check_manifest has passed. A program is a process, a queue a thread, and each program is shown once. Slices last the predicted
// time; without a profile, the time that `flops_per_second` and `bytes_per_second` leave: the roofline's.
struct TraceRates {
  double flops_per_second = 320e9, bytes_per_second = 20e9;  // of PLANNING 4.1's machines: as cost.h weighs them
};
nlohmann::json plan_trace(const nlohmann::json& manifest, const TraceRates& rates);

// A trace of a plan or of a run.
constexpr OutputKind kTraceFile = {"trace"};

}  // namespace reprise
