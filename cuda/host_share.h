// What a program for a card asks of a host whose memory the card shares, beside the arena (lib/host_share.h).
#pragma once

#include <cstdint>

namespace reprise {

// Left free on the host. The spill file's mebibyte comes out of it.
constexpr uint64_t kCudaHeadroomBytes = uint64_t{256} << 20;
// Pinned memory through which batches, scalars and weights go to the card.
constexpr uint64_t kCudaStagingBytes = uint64_t{8} << 20;

}  // namespace reprise
