// What a program for a card asks of the card's memory beside the arena, and of a host whose memory the card shares (lib/host_share.h).
#pragma once

#include <cstdint>

namespace reprise {

// Left free on every card when the arena is taken: behind it come the graphs of a plan's programs, and the kernels' code, which the driver
// loads when it first meets a kernel. Those took 6 to 8 MiB of an H200 (tests/bench/GPU_RESULTS.md), and all code for one card is 13 MiB; the
// rest is for programs of tens of thousands of rows. On a board that shares its memory it is the host's, too, and the spill file's mebibyte
// comes out of it.
constexpr uint64_t kCudaHeadroomBytes = uint64_t{256} << 20;
// Pinned memory through which batches, scalars and weights go to the card.
constexpr uint64_t kCudaStagingBytes = uint64_t{8} << 20;

}  // namespace reprise
