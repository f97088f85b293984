// The wish to train on in another plan, from SIGUSR1 (the next smaller one) and SIGUSR2 (the next larger one): noted, and taken between steps.
#pragma once

#include <cstdint>
#include <optional>

namespace reprise {

// For a program with so many plans; any other is ended by these signals, as every program is. Plans are counted by size, from the smallest.
void set_up_plan_signals(uint32_t plans);

// From which plan the next signal counts, where none has come that was not taken yet.
void count_plan_signals_from(uint32_t rank);

// The plan to which the signals since the last call lead; none: none has come.
std::optional<uint32_t> take_plan_signals();

}  // namespace reprise
