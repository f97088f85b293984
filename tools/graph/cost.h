// What a kernel call costs when no profile has measured it: flops and bytes.
// Here because chain and reports must count alike.
// It must not know schedules.
#pragma once

#include "tools/graph/graph.h"

namespace reprise {

struct CallCost {
  double flops = 0;  // multiply and add count as two
  double bytes = 0;  // read or written, each argument once
};

CallCost call_cost(const Graph& graph, const Call& call);

// One number in flop equivalents: flops + kFlopsPerByte * bytes. The ratio is that of the machines measured in DESIGN 8
// (320 GFLOP/s against 20 GB/s on two cores).
constexpr double kFlopsPerByte = 16;
// The same of a byte to or from disk: 320 GFLOP/s against 1 GB/s.
constexpr double kFlopsPerDiskByte = 320;
double call_price(const Graph& graph, const Call& call);

}  // namespace reprise
