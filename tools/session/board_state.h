// What a board does to a run, as Linux tells it: swap, who is killed first where memory ends, the power mode, the clocks that are allowed now,
// and heat. Here because a run that is slow, or was killed, is so for a reason that stands in these files, and nobody looks there.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

struct BoardState {
  uint64_t memory_bytes = 0, available_bytes = 0;  // what the system may give away at all, and now
  uint64_t swap_bytes = 0, swap_free_bytes = 0;
  bool swaps_to_memory = false;                 // some of it is zram, memory that is compressed into memory
  int oom_score_adjustment = 0;                 // of this process: from -1000, never killed, to 1000, killed first
  std::string power_mode;                       // of NVIDIA's nvpmodel: "2 (15W)"; "" where there is none
  std::optional<uint64_t> processor_hz, processor_most_hz;  // what the fastest core may run at now; what it could. None where nothing tells
  std::optional<uint64_t> card_hz;              // what an integrated card may run at now
  std::optional<double> hottest;                // degrees Celsius, of all sensors
  std::vector<std::string> throttled_by;        // what holds clocks down now: cooling devices that are at work, such as "cpu-throttle-alert"
};

// `root`: "" but for tests, which have files of their own. What a machine does not have is absent, and no error.
BoardState read_board_state(const std::string& root = "");

// All but memory, which `reprise doctor` has in keys of its own.
nlohmann::json json_of(const BoardState& state);
// For a person, in one line.
std::string text_of(const BoardState& state);

// What differs for a run that goes on: of the power mode, the clocks by a twentieth or more, and what throttles. "" where nothing does.
std::string change_of(const BoardState& before, const BoardState& now);

}  // namespace reprise
