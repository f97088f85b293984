// The size of card for which a backend's table of kernels is made. The tables for the two sizes
// have the same kernels, but split sums for different numbers of multiprocessors. The splits decide
// the bits of results and the bytes of scratch. The backend's name alone decides the splits, so a
// plan can be made without a device.
#pragma once

#include <cstdint>

namespace reprise {

enum class CardSize : uint8_t { kSmall, kLarge };  // kSmall: up to 16 multiprocessors, as Orin has; kLarge: more

// Returns the number of multiprocessors for which sums are split.
constexpr uint32_t multiprocessors_of(CardSize card) { return card == CardSize::kSmall ? 8 : 128; }

}  // namespace reprise
