// What a kernel call costs when no profile has measured it: flops and bytes.
// Here because chain and reports must count alike.
#pragma once

#include "tools/graph/graph.h"

namespace reprise {

// Flops of the matrix-like kernels (multiply and add count as two; the others are bound by memory and count as none), and the bytes
// that no implementation of the call can do without, were every cache empty before it and large within it: what it reads once, what it
// writes once, what it adds to or updates twice. Of a table, a strided image or a group that is what the call touches, not what
// the argument holds.
struct CallCost {
  double flops = 0;
  double bytes = 0;
};

CallCost kernel_cost(const KernelCall& call, const AttributeTables& attributes);
CallCost call_cost(const Graph& graph, const Call& call);

// One number in flop equivalents: flops + kFlopsPerByte * bytes. The ratio is that of the machines of PLANNING 4.1
// (320 GFLOP/s against 20 GB/s on two cores).
constexpr double kFlopsPerByte = 16;
// The same of a byte to or from disk: 320 GFLOP/s against 1 GB/s.
constexpr double kFlopsPerDiskByte = 320;
// The same of a byte between a card and memory of the host: 15 TFLOP/s against 25 GB/s, of PCIe 4.0 with 16 lanes.
constexpr double kFlopsPerHostByte = 600;
double call_price(const Graph& graph, const Call& call);

}  // namespace reprise
