// Memory that a program for a card needs in addition to the arena: on the card, and on the host if
// card and host share one memory (lib/host_share.h).
#pragma once

#include <cstdint>

namespace reprise {

// Bytes that stay free on every card after the arena is acquired. These bytes are for the graphs of
// a plan's programs, and for kernels' code, which the driver loads at a kernel's first use. Graphs
// and code together took 6 to 8 MiB of an H200 (tests/bench/pages/GPU_RESULTS.md), and all code for
// one card is 13 MiB. The remaining bytes are for the graphs of programs with tens of thousands of
// rows. If card and host share one memory, the host uses these bytes too; 1 MiB of them is for the
// spill file.
constexpr uint64_t kCudaHeadroomBytes = uint64_t{256} << 20;
// Bytes of the pinned memory through which batches, scalars and weights go to the card.
constexpr uint64_t kCudaStagingBytes = uint64_t{8} << 20;

}  // namespace reprise
