// Reads the state of a board that affects a run: swap, power mode, clocks that are allowed now, and
// heat. It also reads which process Linux kills first when memory runs out. These values explain
// why a run is slow, or was killed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// The state of a board at one time.
struct BoardState {
  uint64_t memory_bytes = 0, available_bytes = 0;  // memory of the machine; memory that is available to processes now
  uint64_t swap_bytes = 0, swap_free_bytes = 0;
  bool swaps_to_memory = false;  // true if swap includes zram, which is compressed memory
  int oom_score_adjustment = 0;  // of this process: from -1000 (never killed) to 1000 (killed first)
  std::string power_mode;        // NVIDIA's nvpmodel, for example "2 (15W)"; "" if there is none
  // Maximum clock that the fastest core may use now, and maximum clock that it has. Unset if the
  // system does not report them.
  std::optional<uint64_t> processor_hz, processor_most_hz;
  std::optional<uint64_t> card_hz;  // maximum clock that an integrated GPU may use now; unset if there is none
  std::optional<double> hottest;    // highest temperature of all sensors, in degrees Celsius
  // Cooling devices that reduce clocks now, for example "cpu-throttle-alert".
  std::vector<std::string> throttled_by;
};

// Reads the state. `root` is "" except in tests, which provide their own files below it. Values
// that a machine does not report stay unset; this is not an error.
BoardState read_board_state(const std::string& root = "");

// Returns all values except memory, for which `reprise doctor` has its own keys.
nlohmann::json json_of(const BoardState& state);
// Returns the state as one line for the user.
std::string text_of(const BoardState& state);

// Returns which changes affect a running training: the power mode, clocks that differ by at least a
// twentieth, and throttling. Returns "" if there are none.
std::string change_of(const BoardState& before, const BoardState& now);

}  // namespace reprise
