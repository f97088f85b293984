// Cost of a kernel call that no profile has measured: flops and bytes. The chain and the reports
// use the same counts.
#pragma once

#include "tools/plan/graph/graph.h"

namespace reprise {

// Cost of one call. `flops` counts multiplications and additions of the matrix-like kernels. It is
// 0 for all other kernels, because memory limits them. `bytes` is the minimum traffic of any
// implementation, with caches that are empty before the call and large enough during it. An input
// or output counts once, and a tensor that is updated or added to counts twice. Of a table, a
// strided image or a group, only the part that the call touches counts.
struct CallCost {
  double flops = 0;
  double bytes = 0;
};

CallCost kernel_cost(const KernelCall& call, const AttributeTables& attributes);
CallCost call_cost(const Graph& graph, const Call& call);

// Flop equivalents of a byte of memory traffic: 320 GFLOP/s against 20 GB/s on two cores, as on the
// machines of PLANNING 4.1.
constexpr double kFlopsPerByte = 16;
// Flop equivalents of a byte to or from disk: 320 GFLOP/s against 1 GB/s.
constexpr double kFlopsPerDiskByte = 320;
// Flop equivalents of a byte between a card and memory of the host: 15 TFLOP/s against 25 GB/s,
// PCIe 4.0 with 16 lanes.
constexpr double kFlopsPerHostByte = 600;
// Returns flops + kFlopsPerByte * bytes of the call.
double call_price(const Graph& graph, const Call& call);

}  // namespace reprise
