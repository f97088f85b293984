// Which cards a table of kernels is for. Both tables hold the same kernels; they split sums for as many multiprocessors as such a card has.
// Here because splits decide bits and scratch: they must follow the backend's name, so that a plan needs no device.
#pragma once

#include <cstdint>

namespace reprise {

enum class CardSize : uint8_t { kSmall, kLarge };  // up to 16 multiprocessors, as Orin; more

// Multiprocessors that a split is to keep busy.
constexpr uint32_t multiprocessors_of(CardSize card) { return card == CardSize::kSmall ? 8 : 128; }

}  // namespace reprise
