// A plan in the trace format of Chrome and Perfetto. Rows are slices on the track of their queue;
// the live bytes are a counter.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/files/io/output.h"

namespace reprise {

// The rates of a roofline. They give the time of rows if there is no profile.
struct TraceRates {
  // Defaults: the machine of PLANNING 4.1. Their ratio is kFlopsPerByte (cost.h).
  double flops_per_second = 320e9, bytes_per_second = 20e9;
};
// Returns the trace of a manifest that has passed check_manifest(). A program is a process, and a
// queue is a thread; each program is shown once. A slice lasts the row's predicted time or, without
// a profile, the time of the roofline.
nlohmann::json plan_trace(const nlohmann::json& manifest, const TraceRates& rates);

// The kind of a trace file, of a plan or of a run.
constexpr OutputKind kTraceFile = {"trace"};

}  // namespace reprise
