// Signals that ask a running training for another plan: SIGUSR1 for the next smaller one, SIGUSR2
// for the next larger one. They are recorded when they arrive, and read between steps.
#pragma once

#include <cstdint>
#include <optional>

namespace reprise {

// Installs the handlers, for a program with `plans` plans. Without this call the signals end the
// program, which is their default. Plans are numbered by size, 0 for the smallest.
void set_up_plan_signals(uint32_t plans);

// Sets the plan to which the next signal is relative. Has no effect if a signal is pending.
void count_plan_signals_from(uint32_t rank);

// Returns the plan that the signals since the last call request; nothing if there was no signal.
std::optional<uint32_t> take_plan_signals();

}  // namespace reprise
